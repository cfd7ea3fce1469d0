package config

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/display"
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
		if k.Old == secretShown && k.New == secretShown {
			fmt.Fprintf(&b, "%s%s changed (not shown)", sep, k.Key)
		} else {
			fmt.Fprintf(&b, "%s%s: %s → %s", sep, k.Key, k.Old, k.New)
		}
		if k.Restart {
			b.WriteString(" (after a restart)")
		}
		if c.Kind == KindListener {
			b.WriteString(k.since())
		}
		if c.Kind == KindUpstream && k.Key == "on_unhealthy" && k.New != "keep" {
			fmt.Fprintf(&b, " (from the next time an endpoint becomes unhealthy: penstock sessions end --now --upstream %s --endpoint NAME ends sessions now)", c.Name)
		}
	}
	return b.String()
}

// since returns which sessions have a listener's new rate, if not all.
func (k *KeyChange) since() string {
	switch {
	case strings.HasPrefix(k.Key, "limits.bandwidth_per_connection."):
		return " (for new sessions)"
	case strings.HasPrefix(k.Key, "limits.bandwidth.") && k.Key != "limits.bandwidth.burst" && k.Old == "0":
		return " (not for sessions that began without this limit)"
	}
	return ""
}

// Diff returns the changes from old to next, in the order of next. Removed things come first. Positions, the order of
// listeners and upstreams, and the form of values do not matter.
func Diff(old, next *Config) []Change {
	d := &differ{}
	d.changed(Change{Kind: KindLimits}, d.keys(&old.Limits, &next.Limits))
	if old.StateFile != next.StateFile {
		d.found = nil
		d.field(root().byKey["state_file"], "", reflect.ValueOf(old.StateFile), reflect.ValueOf(next.StateFile))
		d.changed(Change{Kind: KindStateFile}, d.found)
	}
	d.changed(Change{Kind: KindLane}, d.keys(&old.Lane, &next.Lane))
	thing(d, Change{Kind: KindAdmin}, old.Admin, next.Admin)
	thing(d, Change{Kind: KindSessionLog}, old.SessionLog, next.SessionLog)
	thing(d, Change{Kind: KindMetrics}, old.Metrics, next.Metrics)
	thing(d, Change{Kind: KindTraces}, old.Traces, next.Traces)
	each(old.Listeners, next.Listeners, func(l *Listener) string { return l.Name }, func(name string, a, b *Listener) {
		thing(d, Change{Kind: KindListener, Name: name}, a, b)
	})
	each(old.Upstreams, next.Upstreams, func(u *Upstream) string { return u.Name }, d.upstream)
	return d.changes
}

// Initial returns the changes from the defaults to a configuration, for a process that starts. It leaves out the
// words of [Diff] that are about a running process.
func Initial(next *Config) []Change {
	none := &Config{}
	described(reflect.TypeFor[ProcessLimits]()).fill(reflect.ValueOf(&none.Limits).Elem())
	described(reflect.TypeFor[Lane]()).fill(reflect.ValueOf(&none.Lane).Elem())
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

// each calls f first for elements that are only in old, and then for all elements of next. A missing element is nil.
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

// keys compares two structs of one type, which a and b point to. It ignores the keys in skip.
func (d *differ) keys(a, b any, skip ...string) []KeyChange {
	d.found = nil
	of, is := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	d.object(described(of.Type()), "", of, is, skip...)
	return d.found
}

// thing compares two structs, and ignores the keys in skip. Either struct may be missing.
func thing[T any](d *differ, c Change, a, b *T, skip ...string) {
	switch {
	case a == nil && b == nil:
	case a == nil:
		c.Action = Added
		d.changes = append(d.changes, c)
	case b == nil:
		c.Action = Removed
		d.changes = append(d.changes, c)
	default:
		d.changed(c, d.keys(a, b, skip...))
	}
}

func (d *differ) upstream(name string, a, b *Upstream) {
	before := len(d.changes)
	thing(d, Change{Kind: KindUpstream, Name: name}, a, b, "endpoints")
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
		thing(d, Change{Kind: KindEndpoint, Upstream: upstream, Name: e.Name, Address: e.Address.String()}, a, b)
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

// common returns the endpoints of a that are also in b.
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

// object compares two structs of one type. It ignores the keys in skip.
func (d *differ) object(o *object, path string, a, b reflect.Value, skip ...string) {
	for _, f := range o.fields {
		if !f.once && !slices.Contains(skip, f.key) {
			d.field(f, path, a.Field(f.index), b.Field(f.index))
		}
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
	case f.list && (a.Len() != b.Len() || f.obj == nil && !sameElements(a, b)):
		d.note(f, key, listText(f, a, b), listText(f, b, a))
	case f.list && f.obj == nil:
	case f.list:
		for i := range a.Len() {
			d.object(f.obj, fmt.Sprintf("%s[%d]", key, i), a.Index(i), b.Index(i))
		}
	case f.optional && (a.IsNil() || b.IsNil()):
		if a.IsNil() != b.IsNil() {
			d.note(f, key, f.presence(a), f.presence(b))
		}
	default:
		d.object(f.obj, key, reflect.Indirect(a), reflect.Indirect(b))
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

func sameElements(a, b reflect.Value) bool {
	for i := range a.Len() {
		if !same(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

// same compares two values by their meaning.
func same(a, b reflect.Value) bool {
	switch a.Kind() { // most values are of these kinds, and need no boxing
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

const secretShown = "(secret)"

// shown returns the text of a value in a KeyChange.
func shown(f *field, v reflect.Value) string {
	switch v := v.Interface().(type) {
	case Secret:
		if v.Value == "" {
			return `""`
		}
		return secretShown
	case Content:
		return fmt.Sprintf("%s (%s)", v.Path, display.Plural(int64(len(v.Bytes)), "byte", "bytes"))
	}
	if text := f.form.show(v); text != "" {
		return text
	}
	return `""`
}

// listText returns the text of a list in a KeyChange. If the lists have the same first elements, a long list is shown
// from the first different element on.
func listText(f *field, v, other reflect.Value) string {
	if f.obj != nil {
		return fmt.Sprintf("%d of them", v.Len())
	}
	const most = 8
	from := 0
	for from < min(v.Len(), other.Len()) && same(v.Index(from), other.Index(from)) {
		from++
	}
	var words []string
	if from < most {
		from = 0
	} else {
		words = append(words, "…")
	}
	to := min(v.Len(), from+most)
	for i := from; i < to; i++ {
		words = append(words, f.form.show(v.Index(i)))
	}
	if v.Len() > most {
		words = append(words, fmt.Sprintf("… %d in all", v.Len()))
	}
	return "[" + strings.Join(words, ", ") + "]"
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

// alike reports whether two things have equal keys, apart from the keys in skip. Where and in which form they were
// written does not matter. Either thing may be missing.
func alike[T any](a, b *T, skip ...string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(new(differ).keys(a, b, skip...)) == 0
}

// Same reports whether two listeners are equal in all of their keys.
func (ln *Listener) Same(o *Listener) bool { return alike(ln, o) }

// SameButEndpoints reports whether two upstreams are equal in all of their keys except endpoints.
func (u *Upstream) SameButEndpoints(o *Upstream) bool { return alike(u, o, "endpoints") }

// SameEndpoints reports whether two upstreams list the same endpoints in the same order.
func (u *Upstream) SameEndpoints(o *Upstream) bool {
	return slices.EqualFunc(u.Endpoints, o.Endpoints, func(a, b Endpoint) bool { a.Pos = b.Pos; return a == b })
}

// Same reports whether two session logs are equal in all of their keys.
func (l *SessionLog) Same(o *SessionLog) bool { return alike(l, o) }

// Same reports whether endpoints are discovered from the same source.
func (d *Discover) Same(o *Discover) bool { return alike(d, o) }

// SameOrigin reports whether two discoveries look for the same thing: one file, or one name, type and port, whichever
// servers they ask. Either may be nil.
func (d *Discover) SameOrigin(o *Discover) bool {
	return d != nil && o != nil && alike(d.DNS, o.DNS, "servers", "min_ttl", "max_ttl") && alike(d.File, o.File)
}

// Same reports whether two health checks are equal.
func (h *HealthCheck) Same(o *HealthCheck) bool { return alike(h, o) }

// A reading is everything that a Config was read from: the text of its files, and whatever its values took from other
// files, variables and patterns.
type reading struct {
	Path  string
	Files map[string][]byte
	Vars  map[string]string
	Globs map[string][]string

	origin *origin
}

// An origin identifies a Config, and every copy that [Kept.Load] returns of it.
type origin struct{ _ byte }

// Origin returns a value that is equal for two Configs only if they are the same, or if one is the kept copy of the
// other.
func (c *Config) Origin() any {
	if c.reading == nil {
		return c
	}
	return c.reading.origin
}

// record makes the loader note what it reads until it has the values. It does not note certificates, which are read
// later.
func (l *loader) record(path string) {
	r := &reading{origin: new(origin), Path: path, Files: make(map[string][]byte), Vars: make(map[string]string), Globs: make(map[string][]string)}
	env, read, glob := l.env, l.read, l.glob
	l.recorded = r
	if env != nil {
		l.env = func(name string) (string, bool) {
			value, ok := env(name)
			if ok {
				r.Vars[name] = value
			}
			return value, ok
		}
	}
	l.read = func(path string, most int) ([]byte, error) {
		data, err := read(path, most)
		if err == nil && l.recorded != nil {
			r.Files[path] = data
		}
		return data, err
	}
	l.glob = func(pattern string) ([]string, error) {
		paths, err := glob(pattern)
		r.Globs[pattern] = paths
		return paths, err
	}
}

// A Kept is a loaded Config in the form of its compressed files, which takes a fraction of the memory. It never
// changes.
type Kept struct {
	text   []byte
	origin *origin
}

// Keep returns c in compressed form, or nil if c was not loaded by [Load].
func (c *Config) Keep() *Kept {
	if c.reading == nil {
		return nil
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
	if gob.NewEncoder(z).Encode(c.reading) != nil || z.Close() != nil {
		return nil // writing to a buffer does not fail
	}
	return &Kept{bytes.Clone(b.Bytes()), c.reading.origin}
}

// Load returns the Config with its old values and positions, even if its files, the environment or the machine have
// changed. It has no warnings.
func (k *Kept) Load() (*Config, error) {
	r := reading{origin: k.origin}
	z, err := gzip.NewReader(bytes.NewReader(k.text))
	if err == nil {
		err = gob.NewDecoder(z).Decode(&r)
	}
	if err != nil {
		return nil, fmt.Errorf("the configuration as it was kept: %w", err)
	}
	l := newLoader(func(name string) (string, bool) {
		value, ok := r.Vars[name]
		return value, ok
	})
	l.read = func(path string, _ int) ([]byte, error) {
		if data, ok := r.Files[path]; ok {
			return data, nil
		}
		return nil, fs.ErrNotExist
	}
	l.glob = func(pattern string) ([]string, error) { return r.Globs[pattern], nil }
	l.file(r.Path, place{})
	if len(l.problems) > 0 {
		return nil, fmt.Errorf("the configuration as it was kept: %w", problemError(l.problems))
	}
	files := append(l.cfg.Files, l.named...)
	l.known = true
	l.finish() // sets defaults; its complaints are about the present machine
	cfg := l.cfg
	cfg.Files, cfg.Warnings, cfg.reading = files, nil, &r
	return &cfg, nil
}
