package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Kind is the kind of thing that a [Change] is about.
type Kind string

// Kinds of things that change.
const (
	KindLimits     Kind = "limits"
	KindAdmin      Kind = "admin"
	KindSessionLog Kind = "session_log"
	KindListener   Kind = "listener"
	KindUpstream   Kind = "upstream"
	KindEndpoint   Kind = "endpoint"
	KindLane       Kind = "lane"
	KindMetrics    Kind = "metrics"
	KindTraces     Kind = "traces"
	KindStateFile  Kind = "state_file"
)

// Kinds returns all kinds, in the order of summaries.
func Kinds() []Kind {
	return []Kind{
		KindLimits, KindStateFile, KindLane, KindAdmin, KindMetrics, KindSessionLog, KindTraces,
		KindListener, KindUpstream, KindEndpoint,
	}
}

// Single reports whether a configuration has at most one thing of the kind.
func (k Kind) Single() bool { return k != KindListener && k != KindUpstream && k != KindEndpoint }

// An Action is the way in which a thing changes.
type Action string

// Actions. An endpoint with a new address is a different endpoint: removed and added.
const (
	Added   Action = "added"
	Removed Action = "removed"
	Changed Action = "changed"
)

// A Change is a difference between two configurations.
type Change struct {
	Kind     Kind
	Upstream string // of an endpoint
	Name     string // of a listener, an upstream or an endpoint
	Address  string // of an endpoint
	Action   Action
	Keys     []KeyChange // changed keys, if Action is Changed
}

// A KeyChange is one key with a different value. Secrets are not shown.
type KeyChange struct {
	Key      string // with dots, and [index], below the listener, upstream or endpoint
	Old, New string
	Restart  bool // the new value takes effect when the process is started again
}

// String returns one line: listener web changed: timeouts.idle: 1h → 10m.
func (c Change) String() string {
	var b strings.Builder
	b.WriteString(string(c.Kind))
	if c.Kind == KindEndpoint {
		fmt.Fprintf(&b, " %s/%s", c.Upstream, c.Name)
		if c.Name != c.Address {
			fmt.Fprintf(&b, " (%s)", c.Address)
		}
	} else if c.Name != "" {
		fmt.Fprintf(&b, " %s", c.Name)
	}
	fmt.Fprintf(&b, " %s", c.Action)
	for i, k := range c.Keys {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s → %s", sep, k.Key, k.Old, k.New)
		if k.Restart {
			b.WriteString(" (after a restart)")
		}
	}
	return b.String()
}

// Diff returns the changes from old to next, in the order of next. Removed things come first.
// Positions, the order of listeners and upstreams, and how a value was written do not matter.
func Diff(old, next *Config) []Change {
	d := &differ{}
	d.changed(Change{Kind: KindLimits}, d.keys(root().byKey["limits"], &old.Limits, &next.Limits))
	if old.StateFile != next.StateFile {
		d.found = nil
		d.field(root().byKey["state_file"], "", reflect.ValueOf(old.StateFile), reflect.ValueOf(next.StateFile))
		d.changed(Change{Kind: KindStateFile}, d.found)
	}
	d.changed(Change{Kind: KindLane}, d.keys(root().byKey["lane"], &old.Lane, &next.Lane))
	d.thing(Change{Kind: KindAdmin}, root().byKey["admin"].obj, value(old.Admin), value(next.Admin))
	d.thing(Change{Kind: KindSessionLog}, root().byKey["session_log"].obj, value(old.SessionLog), value(next.SessionLog))
	d.thing(Change{Kind: KindMetrics}, root().byKey["metrics"].obj, value(old.Metrics), value(next.Metrics))
	d.thing(Change{Kind: KindTraces}, root().byKey["traces"].obj, value(old.Traces), value(next.Traces))
	listeners := root().byKey["listeners"].obj
	each(old.Listeners, next.Listeners, func(l *Listener) string { return l.Name }, func(name string, a, b *Listener) {
		d.thing(Change{Kind: KindListener, Name: name}, listeners, value(a), value(b))
	})
	each(old.Upstreams, next.Upstreams, func(u *Upstream) string { return u.Name }, d.upstream)
	return d.changes
}

// Initial returns the changes with which a process begins: from the defaults to a configuration, without those
// words of [Diff] that are about a process that runs.
func Initial(next *Config) []Change {
	none := &Config{}
	none.Limits, _ = root().byKey["limits"].obj.template.Interface().(ProcessLimits)
	none.Lane, _ = root().byKey["lane"].obj.template.Interface().(Lane)
	if next.Admin != nil && next.Admin.Bind.Auto() {
		none.Admin = next.Admin
	}
	changes := Diff(none, next)
	for i := range changes {
		for j := range changes[i].Keys {
			changes[i].Keys[j].Restart = false
		}
	}
	return changes
}

func value[T any](p *T) reflect.Value {
	if p == nil {
		return reflect.Value{}
	}
	return reflect.ValueOf(p).Elem()
}

// each calls f for elements that are only in old, and then for all of next. A missing element
// is nil.
func each[T any, K comparable](old, next []*T, key func(*T) K, f func(key K, a, b *T)) {
	before, after := make(map[K]*T, len(old)), make(map[K]bool, len(next))
	for _, t := range next {
		after[key(t)] = true
	}
	for _, t := range old {
		before[key(t)] = t
		if !after[key(t)] {
			f(key(t), t, nil)
		}
	}
	for _, t := range next {
		f(key(t), before[key(t)], t)
	}
}

// A differ collects changes.
type differ struct {
	changes []Change
	found   []KeyChange // of the current thing
}

func (d *differ) changed(c Change, keys []KeyChange) {
	if c.Keys = keys; len(keys) > 0 {
		c.Action = Changed
		d.changes = append(d.changes, c)
	}
}

// keys compares two sections, which a and b point to.
func (d *differ) keys(f *field, a, b any) []KeyChange {
	d.found = nil
	d.object(f.obj, "", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), "")
	return d.found
}

// thing compares two structs, either of which may be missing. Keys in skip are ignored.
func (d *differ) thing(c Change, o *object, a, b reflect.Value, skip ...string) {
	switch {
	case !a.IsValid() && !b.IsValid():
	case !a.IsValid():
		c.Action = Added
		d.changes = append(d.changes, c)
	case !b.IsValid():
		c.Action = Removed
		d.changes = append(d.changes, c)
	default:
		d.found = nil
		d.object(o, "", a, b, strings.Join(skip, ""))
		d.changed(c, d.found)
	}
}

func (d *differ) upstream(name string, a, b *Upstream) {
	o := root().byKey["upstreams"].obj
	before := len(d.changes)
	d.thing(Change{Kind: KindUpstream, Name: name}, o, value(a), value(b), "endpoints")
	switch {
	case b == nil:
		d.endpoints(name, a.Endpoints, nil)
		return
	case a == nil:
		d.endpoints(name, nil, b.Endpoints)
		return
	}
	if was, is, differ := order(a.Endpoints, b.Endpoints); differ {
		if len(d.changes) == before {
			d.changes = append(d.changes, Change{Kind: KindUpstream, Name: name, Action: Changed})
		}
		c := &d.changes[len(d.changes)-1]
		c.Keys = append(c.Keys, KeyChange{Key: "endpoints", Old: was + " first", New: is + " first"})
	}
	d.endpoints(name, a.Endpoints, b.Endpoints)
}

// An identity identifies an endpoint in both configurations.
type identity struct {
	name    string
	address Address
}

func (e *Endpoint) identity() identity { return identity{e.Name, e.Address} }

func (d *differ) endpoints(upstream string, a, b []Endpoint) {
	each(pointers(a), pointers(b), (*Endpoint).identity, func(_ identity, a, b *Endpoint) {
		e := b
		if b == nil {
			e = a
		}
		c := Change{Kind: KindEndpoint, Upstream: upstream, Name: e.Name, Address: e.Address.String()}
		d.thing(c, root().byKey["upstreams"].obj.byKey["endpoints"].obj, value(a), value(b))
	})
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// order compares the order of the endpoints that a and b share. It returns the first pair that
// differs.
func order(a, b []Endpoint) (was, is string, differ bool) {
	if slices.EqualFunc(a, b, func(a, b Endpoint) bool { return a.identity() == b.identity() }) {
		return "", "", false
	}
	before, after := common(a, b), common(b, a)
	for i := range min(len(before), len(after)) {
		if before[i].identity() != after[i].identity() {
			return before[i].Name, after[i].Name, true
		}
	}
	return "", "", false
}

// common returns those of a that b has too.
func common(a, b []Endpoint) (both []*Endpoint) {
	in := make(map[identity]bool, len(b))
	for i := range b {
		in[b[i].identity()] = true
	}
	for i := range a {
		if in[a[i].identity()] {
			both = append(both, &a[i])
		}
	}
	return both
}

// object compares two structs of one type.
func (d *differ) object(o *object, path string, a, b reflect.Value, skip string) {
	for _, f := range o.fields {
		if f.once || f.key == skip {
			continue
		}
		d.field(f, path, a.Field(f.index), b.Field(f.index))
	}
}

// field compares the values of a key below a path. The key's own path is built only if the
// values differ, or if they have keys themselves.
func (d *differ) field(f *field, path string, a, b reflect.Value) {
	if f.obj == nil && !f.list {
		if !same(a, b) {
			d.note(f, join(path, f.key), shown(f, a), shown(f, b))
		}
		return
	}
	key := join(path, f.key)
	switch {
	case f.list && (f.obj == nil || a.Len() != b.Len()):
		if !sameList(a, b) {
			d.note(f, key, listText(f, a), listText(f, b))
		}
	case f.list:
		for i := range a.Len() {
			d.object(f.obj, fmt.Sprintf("%s[%d]", key, i), a.Index(i), b.Index(i), "")
		}
	case f.optional && (a.IsNil() || b.IsNil()):
		if a.IsNil() != b.IsNil() {
			d.note(f, key, f.presence(a), f.presence(b))
		}
	default:
		d.object(f.obj, key, reflect.Indirect(a), reflect.Indirect(b), "")
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *differ) note(f *field, key, old, next string) {
	d.found = append(d.found, KeyChange{key, old, next, f.restart})
}

func sameList(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

// same compares two values by their meaning.
func same(a, b reflect.Value) bool {
	switch a.Kind() { // most values are of these kinds, which need no boxing
	case reflect.String:
		return a.String() == b.String()
	case reflect.Int, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Float64:
		return a.Float() == b.Float()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	}
	switch a := a.Interface().(type) {
	case Secret:
		return a.Value == b.Interface().(Secret).Value
	case Content:
		b := b.Interface().(Content)
		return a.Path == b.Path && bytes.Equal(a.Bytes, b.Bytes)
	case Bind:
		b := b.Interface().(Bind)
		return a.Address == b.Address && a.Systemd == b.Systemd
	default:
		return a == b.Interface()
	}
}

// shown returns the text of a value in a KeyChange.
func shown(f *field, v reflect.Value) string {
	switch v := v.Interface().(type) {
	case Secret:
		if v.Value == "" {
			return `""`
		}
		return "(secret)"
	case Content:
		return fmt.Sprintf("%s (%d bytes)", v.Path, len(v.Bytes))
	}
	if text := f.form.show(v); text != "" {
		return text
	}
	return `""`
}

func listText(f *field, v reflect.Value) string {
	if f.obj != nil {
		return fmt.Sprintf("%d of them", v.Len())
	}
	const most = 8
	var words []string
	for i := range min(v.Len(), most) {
		words = append(words, f.form.show(v.Index(i)))
	}
	if v.Len() > most {
		words = append(words, fmt.Sprintf("… %d in all", v.Len()))
	}
	return "[" + strings.Join(slices.Clip(words), ", ") + "]"
}

func (f *field) presence(v reflect.Value) string {
	switch {
	case !v.IsNil():
		return "present"
	case f.on:
		return Off
	}
	return "absent"
}
