package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/internal/nearest"
	"go.yaml.in/yaml/v4"
)

// A decoder turns the nodes of all files into structs, and records the place of each value.
type decoder struct {
	env      Env
	src      *source // current file
	here     place   // current value
	read     func(path string, most int) ([]byte, error)
	mode     func(path string) (fs.FileMode, error)
	isLocal  func(addr netip.Addr) bool                      // reports whether this machine has an address
	reaches  func(addr netip.Addr) bool                      // reports whether a connection to it ends on this machine
	cpus     func() (topology.Set, error)                    // of this machine
	nodes    func() (topology.Set, error)                    // NUMA nodes of this machine
	cpusOf   func(node int) (topology.Set, error)            // CPUs of a node
	controls func() (available, allowed []string, err error) // congestion controls of the kernel
	control  func(name string) (used string, err error)      // tries a congestion control on a socket
	modules  map[string]moduleFile                           // modules that were read, by file
	inAll    int                                             // bytes of modules
	named    []string                                        // files that values name, and that were read
	files    []namedFile                                     // all files that values name
	problems []Problem
	warnings []Problem
	dropped  int
	memory   int           // bytes taken by values so far
	places   map[any]place // by the address of a field
	bad      map[any]bool  // fields that were written, but cannot be read
	strange  map[any]bool  // structs with an unknown key that could not be guessed
	partial  bool          // some content is unknown, because a file or section could not be read
	trying   bool          // reading the value of a misspelled key: complaints are only counted

	literal   bool // $ is not special
	known     bool // load no modules, see LoadKnown
	unloaded  []*Unknown
	adminOnly bool // read only admin and include
	bindOnly  bool // read only bind of admin
}

// complainAt records a problem. After maxFound problems it only counts them.
func (d *decoder) complainAt(p place, fix, format string, args ...any) {
	if d.full() {
		d.dropped++
		return
	}
	d.problems = append(d.problems, *p.problem(fix, format, args...))
}

// warnAt records a suspicious but valid setting. Warnings are returned only if there are no
// problems.
func (d *decoder) warnAt(p place, fix, format string, args ...any) {
	if len(d.warnings) >= maxFound {
		return
	}
	w := p.problem(fix, format, args...)
	w.Warning = true
	d.warnings = append(d.warnings, *w)
}

// full reports whether another problem would be dropped. Then there is no need for a suggestion.
func (d *decoder) full() bool { return d.trying || len(d.problems) >= maxFound }

// at returns the place of a field. If the field was not written, it returns the place of its
// struct.
func (d *decoder) at(field, section any) place {
	if p, ok := d.places[field]; ok {
		return p
	}
	return d.places[section]
}

// given reports whether a field was written.
func (d *decoder) given(field any) bool {
	_, ok := d.places[field]
	return ok
}

// spend limits the memory of values and long texts, even if aliases, files and variables repeat them. It reports whether the value fits.
func (d *decoder) spend(bytes int, at place) bool {
	if d.memory > maxMemory {
		return false
	}
	d.memory += bytes
	if d.memory > maxMemory {
		d.complainAt(at, "leave out what aliases, files and variables repeat", "the configuration is too large with its aliases expanded and its files read")
		return false
	}
	return true
}

// spendTexts spends the long texts in a list or mapping. It is called each time an alias leads there.
func (d *decoder) spendTexts(n *yaml.Node) {
	for _, c := range n.Content {
		if t := target(c); len(t.Value) > perValue {
			d.spend(len(t.Value), d.src.at(c))
		}
	}
}

// target follows aliases. The YAML parser accepts an alias that contains itself. Decoding still ends, because no struct
// contains a struct of its own type.
func target(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// markUndecoded records that v was written but cannot be read. Errors that follow from this are not reported.
func (d *decoder) markUndecoded(v reflect.Value) { d.bad[v.Addr().Interface()] = true }

// object fills v, a struct, with the values of a mapping. what names the section in messages.
func (d *decoder) object(what string, o *object, v reflect.Value, n *yaml.Node) {
	here := d.src.at(n)
	n = target(n)
	at := d.src.at(n)
	if !d.spend(o.size+2*perValue, here) {
		return
	}
	if o.pos >= 0 {
		v.Field(o.pos).Set(reflect.ValueOf(at.pos()))
	}
	d.places[v.Addr().Interface()] = at
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" && o.shorthand != nil {
		d.value(o.shorthand, v.Field(o.shorthand.index), n)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.complainAt(here, "write "+o.outline(), "%s must be a group of keys, not %s", what, kindOf(n))
		d.markUndecoded(v)
		return
	}
	var seen written
	d.pairs(o, v, n, &seen, 0)
	for _, f := range o.fields {
		if seen[f.order] == 0 && f.required && !d.bad[v.Field(f.index).Addr().Interface()] {
			sample := f.sample()
			if m, ok := v.Addr().Interface().(*Metrics); ok && f.key == "allow" {
				sample = m.allowSample()
			}
			d.complainAt(at, "write "+sample, "%s is missing", f.key)
		}
	}
}

// written is the line of each key in a mapping, 0 for keys that were not written.
type written [maxKeys]int32

// pairs reads the keys of a mapping, then the merged keys (<<) that the mapping itself does not have.
func (d *decoder) pairs(o *object, v reflect.Value, n *yaml.Node, seen *written, depth int) {
	var merged []*yaml.Node
	var guesses []guess
	var own written
	d.spendTexts(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := target(n.Content[i]), n.Content[i+1]
		at := d.src.at(n.Content[i])
		f := o.byKey[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.complainAt(at, "write one of "+enumeration(o.keys(), "or"), "a key must be a word, not %s", kindOf(key))
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case f == nil && o == root() && strings.HasPrefix(key.Value, "x-"):
		case d.adminOnly && o == root() && key.Value != "admin" && key.Value != "include":
		case d.bindOnly && o != root() && key.Value != "bind":
		case f == nil:
			if meant := d.unknown(o, key.Value, value, at); meant != nil {
				guesses = append(guesses, guess{meant, value})
			} else {
				d.strange[v.Addr().Interface()] = true
			}
		case own[f.order] != 0:
			d.complainAt(at, fmt.Sprintf("leave it out here or in line %d", own[f.order]), "%s is written twice", key.Value)
		default:
			own[f.order] = int32(at.line)
			if seen[f.order] == 0 { // a key wins over a merged one
				seen[f.order] = int32(at.line)
				d.field(f, v.Field(f.index), value)
			}
		}
	}
	for _, g := range guesses {
		if seen[g.field.order] == 0 && d.try(g.field, v.Field(g.field.index), g.value) {
			seen[g.field.order] = int32(g.value.Line)
		}
	}
	for _, m := range merged {
		d.merge(o, v, m, seen, depth)
	}
}

func (d *decoder) merge(o *object, v reflect.Value, m *yaml.Node, seen *written, depth int) {
	sources := []*yaml.Node{m}
	if t := target(m); t.Kind == yaml.SequenceNode {
		d.spendTexts(t)
		sources = t.Content
	}
	for _, s := range sources {
		if depth >= maxDepth || !d.spend(4*perValue, d.src.at(m)) {
			return
		}
		if t := target(s); t.Kind == yaml.MappingNode {
			d.pairs(o, v, t, seen, depth+1)
		} else {
			d.complainAt(d.src.at(s), "write an alias of a group of keys", "<< can merge only a group of keys, not %s", kindOf(t))
		}
	}
}

func (d *decoder) field(f *field, v reflect.Value, n *yaml.Node) {
	t := target(n)
	at := d.src.at(n)
	if f.list || f.optional { // object and value record the places of other fields
		d.places[v.Addr().Interface()] = at
	}
	switch {
	case t.Kind == yaml.ScalarNode && t.Tag == "!!null":
		fix := "write " + f.sample()
		if f.on {
			fix = "write " + f.key + ": " + Off
		}
		d.complainAt(at, fix+", or leave the key out", "%s has no value", f.key)
		d.markUndecoded(v)
	case f.off && t.Kind == yaml.ScalarNode && t.Value == Off:
		v.SetZero()
	case f.list:
		d.list(f, v, t, at)
	case f.on && t.Kind == yaml.ScalarNode && (t.Value == Off || t.Value == "false"):
		v.SetZero()
	case f.obj != nil && f.obj.shorthand != nil && t.Kind == yaml.ScalarNode:
		one := *f.obj.shorthand
		one.key = f.key
		if f.optional {
			v.Set(reflect.New(f.typ))
			v = v.Elem()
		}
		f.obj.fill(v)
		v.Field(f.obj.pos).Set(reflect.ValueOf(at.pos()))
		d.places[v.Addr().Interface()] = at
		d.value(&one, v.Field(one.index), n)
	case f.obj != nil && t.Kind != yaml.MappingNode:
		d.complainAt(at, f.sectionFix(t), "%s must be a group of keys, not %s", f.key, kindOf(t))
		d.markUndecoded(v)
	case f.optional:
		section := reflect.New(f.typ)
		f.obj.fill(section.Elem())
		d.object(f.key, f.obj, section.Elem(), n)
		v.Set(section)
	case f.obj != nil:
		d.object(f.key, f.obj, v, n)
	default:
		d.value(f, v, n)
	}
}

func (d *decoder) list(f *field, v reflect.Value, t *yaml.Node, at place) {
	items := t.Content
	d.spendTexts(t)
	switch {
	case t.Kind == yaml.SequenceNode:
	case f.single && t.Kind == yaml.ScalarNode:
		items = []*yaml.Node{t}
	default:
		d.complainAt(at, "write "+f.listOf(t), "%s must be a list, not %s", f.key, kindOf(t))
		d.markUndecoded(v)
		return
	}
	if f.fixed > 0 && len(items) != f.fixed {
		d.markUndecoded(v)
		d.complainAt(at, "write "+f.sample(), "%s has %d values, not %d", f.key, f.fixed, len(items))
		return
	}
	if !d.spend(len(items)*int(v.Type().Elem().Size()), at) {
		return
	}
	if f.fixed == 0 {
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	}
	for i, item := range items {
		d.element(f, v.Index(i), item, i)
	}
}

func (d *decoder) element(f *field, v reflect.Value, n *yaml.Node, i int) {
	if f.obj == nil {
		if len(f.bounds) > 1 {
			one := *f
			one.bounds = f.bounds[i : i+1]
			f = &one
		}
		d.value(f, v, n)
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(f.typ))
		v = v.Elem()
	}
	f.obj.fill(v)
	d.object("each of "+f.key, f.obj, v, n)
}

func (d *decoder) value(f *field, v reflect.Value, n *yaml.Node) {
	d.here = d.src.at(n)
	n = target(n)
	if !d.spend(perValue, d.here) {
		return
	}
	d.places[v.Addr().Interface()] = d.here
	if n.Kind != yaml.ScalarNode {
		d.complainAt(d.here, cmp.Or(bracketedFix(d.here), "write "+f.sample()), "%s must be %s, not %s", f.key, article(f.form.name), kindOf(n))
		d.markUndecoded(v)
		return
	}
	text, variable, ok := d.expand(n.Value)
	if !ok || !d.styled(f, n, text, variable) {
		d.markUndecoded(v)
		return
	}
	if _, secret := v.Interface().(Secret); secret { // a secret with an empty variable is not a missing secret
		text = n.Value
	}
	if text == "" && f.dflt == "" && f.hasDflt {
		v.SetZero()
		return
	}
	if c := f.form.set(d, f, v, text); c != nil {
		at := d.here
		at.secret = c.secret
		d.complainAt(at, cmp.Or(f.zeroFix(text), c.fix), "%s", c.message)
		d.markUndecoded(v)
		return
	}
	if c := f.within(v); c != nil {
		d.complainAt(d.here, c.fix, "%s", c.message)
		d.markUndecoded(v)
	}
}

// styled requires a scalar to have the style of its form, so that programs that use the schema read the same meaning.
func (d *decoder) styled(f *field, n *yaml.Node, text string, variable bool) bool {
	if variable {
		return true
	}
	ok := false
	switch f.form.style {
	case styleInteger:
		ok = n.Tag == "!!int"
	case styleNumber:
		ok = n.Tag == "!!int" || n.Tag == "!!float"
	case styleBoolean:
		ok = n.Tag == "!!bool"
	case styleDuration:
		ok = n.Tag == "!!str" || n.Tag == "!!int"
	case styleSize, styleWordOrInteger:
		ok = n.Tag == "!!str" || n.Tag == "!!int"
	default:
		ok = n.Tag == "!!str"
	}
	if ok {
		return true
	}
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	c := f.form.set(nil, f, reflect.New(f.typ).Elem(), text)
	switch zero := f.zeroFix(text); {
	case f.typ == reflect.TypeFor[Secret]():
		d.complainAt(d.here.discreet(), "write it in quotes", "%s must be text, not %s", f.key, kindOf(n))
	case f.form.style == styleInteger && !f.list && meansOn(text) && c != nil: // a list is not switched on
		d.complainAt(d.here, f.nonzero(), "%s must be %s, not %q", f.key, article(f.form.name), text)
	case zero != "":
		d.complainAt(d.here, zero, "%s must be %s, not %q", f.key, article(f.form.name), text)
	case f.form.style == styleInteger && n.Tag == "!!float":
		c = f.whole(text)
		d.complainAt(d.here, c.fix, "%s", c.message)
	case f.form.style == styleText && !quoted && c != nil && f.key == f.form.name: // an endpoint's address
		d.complainAt(d.here, c.fix, "%s", c.message)
	case f.form.style == styleText && !quoted && c != nil:
		d.complainAt(d.here, c.fix, "%s must be %s, not %s", f.key, article(f.form.name), kindOf(n))
	case f.form.style == styleText && !quoted:
		d.complainAt(d.here, fmt.Sprintf("write it in quotes: %q", text), "%s must be text, not %s", f.key, kindOf(n))
	case quoted && c == nil:
		d.complainAt(d.here, "write it without quotes: "+text, "%s must be %s, not text", f.key, article(f.form.name))
	case c != nil && n.Tag == "!!str":
		is := ": " + c.message
		if bad, ok := strings.CutSuffix(c.message, " is not a whole number"); ok {
			is = ", not " + bad
		}
		d.complainAt(d.here, c.fix, "%s must be %s%s", f.key, article(f.form.name), is)
	default:
		d.complainAt(d.here, "write "+f.sample(), "%s must be %s, not %s", f.key, article(f.form.name), kindOf(n))
	}
	return false
}

func (o *object) keys() []string {
	keys := make([]string, 0, len(o.fields))
	for _, f := range o.fields {
		keys = append(keys, f.key)
	}
	return slices.Clip(keys)
}

// groupsWith appends the names of the groups within o that have this key, each name once.
func (o *object) groupsWith(key string, groups []string) []string {
	for _, f := range o.fields {
		if f.obj == nil {
			continue
		}
		if f.obj.byKey[key] != nil && !slices.Contains(groups, f.key) {
			groups = append(groups, f.key)
		}
		groups = f.obj.groupsWith(key, groups)
	}
	return groups
}

// A guess is the value of a misspelled key and the key that was probably meant.
type guess struct {
	field *field
	value *yaml.Node
}

// unknown reports an unknown key with a suggestion. If it suggests a key of the same group, it returns this key.
// Otherwise it may suggest a key of an inner group.
func (d *decoder) unknown(o *object, key string, value *yaml.Node, at place) *field {
	if d.full() {
		d.dropped++
		return nil
	}
	if o.typ == reflect.TypeFor[Rewrite]() && slices.Contains(formerRewriteKeys, key) {
		d.complainAt(at, formerRewriteFix, "%s of rewrite was removed", key)
		return nil
	}
	if wait := queueTimeout(o, key, target(value)); wait != "" {
		d.complainAt(at, "write queue: {timeout: "+wait+"}, a key of upstreams", "unknown key %q", key)
		return nil
	}
	written, meant := key, closest(key, o.keys())
	if meant == "" {
		var list []string
		if key, list = o.translate(key); len(list) > 1 {
			d.complainAt(at, "use "+enumeration(list, "or"), "unknown key %q", written)
			return nil
		}
		meant = strings.Join(list, "")
	}
	fix := "leave it out, or use " + enumeration(o.keys(), "or")
	if meant != "" {
		fix = didYouMean(meant)
	} else if groups := root().groupsWith(key, nil); 0 < len(groups) && len(groups) < 3 {
		fix = "it is a key of " + enumeration(groups, "or")
		if key != written {
			fix = fmt.Sprintf("write %s, a key of %s", key, enumeration(groups, "or"))
		}
	}
	for _, f := range o.fields {
		if f.obj == nil || f.obj.byKey[key] == nil || meant != "" && nearest.Distance(key, meant) <= 1 {
			continue
		}
		fix, meant = fmt.Sprintf("write %s: {%s: …}", f.key, key), ""
		if f.list {
			fix = fmt.Sprintf("write %s: [{%s: …}]", f.key, key)
		}
		break
	}
	d.complainAt(at, fix, "unknown key %q", written)
	return o.byKey[meant]
}

// queueTimeout returns the time of HAProxy's "timeout queue" if an unknown key of a group stands for it, or "".
func queueTimeout(o *object, key string, value *yaml.Node) string {
	within := o.typ == reflect.TypeFor[Timeouts]()
	for i := 0; (key == "timeout" || key == "timeouts") && value.Kind == yaml.MappingNode && i < len(value.Content); i += 2 {
		if value.Content[i].Value == "queue" {
			key, value, within = "queue", target(value.Content[i+1]), true
		}
	}
	if !within || key != "queue" || value.Kind != yaml.ScalarNode {
		return ""
	}
	return value.Value
}

// ofHAProxy maps words of HAProxy that resemble none of our keys to the keys that they may mean. If there are several
// keys, the group or the user decides.
var ofHAProxy = map[string]string{
	"maxconn": "connections", "maxqueue": "size", "frontend": "listeners", "backend": "upstreams upstream", "server": "endpoints idle", "default_backend": "upstream", "use_backend": "routes upstream", "src": "source allow deny", "uri": "path", "ssl": "tls", "crt": "certificates",
	"acl": "routes deny allow", "option": "health_check", "httpchk": "health_check", "redis_check": "health_check", "pgsql_check": "health_check", "tcp_check": "health_check", "on_marked_down": "on_unhealthy", "send_proxy_v2": "send_proxy", "timeout": "timeouts", "client": "idle", "tunnel": "idle", "client_fin": "half_close", "inspect_delay": "preread_silence preread", "reject": "deny", "retries": "attempts", "check": "health_check", "inter": "interval", "fastinter": "fast_interval", "stats": "admin", "log": "session_log",
	"log_format": "template", "nbthread": "count", "stick": "balance", "source": "source_address", "rate_limit": "per_second", "server_template": "discover",
	"listen": "listeners bind", "proxy_pass": "upstream", // as nginx has it
}

// translate returns the key that a word stands for: a word of HAProxy, or a key with more before it, such as
// default_upstream. meant has the keys of the group that it may stand for.
func (o *object) translate(word string) (key string, meant []string) {
	fold := strings.ToLower(strings.ReplaceAll(word, "-", "_"))
	keys := strings.Fields(cmp.Or(ofHAProxy[fold], ofHAProxy[strings.TrimSuffix(fold, "s")]))
	for _, to := range keys {
		if o.byKey[to] != nil {
			meant = append(meant, to)
		}
	}
	if len(meant) > 0 {
		return meant[0], meant
	}
	if len(keys) > 0 {
		return keys[0], nil
	}
	if _, after, _ := strings.Cut(fold, "_"); o.byKey[after] != nil {
		return after, []string{after}
	}
	return word, nil
}

// try reads the value of a misspelled key, so that errors that follow from it are found and
// the key is not reported as missing. The value must be valid: an invalid one may have been
// meant for something else.
func (d *decoder) try(f *field, v reflect.Value, n *yaml.Node) bool {
	before, dropped := reflect.New(v.Type()).Elem(), d.dropped
	before.Set(v)
	d.trying = true
	d.field(f, v, n)
	d.trying = false
	ok := d.dropped == dropped
	d.dropped = dropped
	if !ok {
		v.Set(before)
		delete(d.places, v.Addr().Interface())
		d.markUndecoded(v)
	}
	return ok
}

// Words for off and on that other programs accept and users therefore write.
var (
	wordsForOff = []string{"no", "none", "off", "false", "n", "never", "disable", "disabled", "null", "~", "unlimited"}
	wordsForOn  = []string{"yes", "on", "true", "y", "enable", "enabled", "default"}
)

func meansOff(text string) bool { return slices.Contains(wordsForOff, strings.ToLower(text)) }
func meansOn(text string) bool  { return slices.Contains(wordsForOn, strings.ToLower(text)) }

// sectionFix returns the fix for a value that should be a group of keys.
func (f *field) sectionFix(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
	case f.on && (meansOff(n.Value) || n.Tag == "!!null"):
		return "write " + f.key + ": " + Off
	case f.on && meansOn(n.Value):
		return "leave it out: it is on by default, unless you write " + Off
	case f.optional && !f.on && meansOff(n.Value):
		return "leave it out: then it is off"
	case f.without != "" && meansOff(n.Value):
		return "write " + f.key + ": " + f.without
	}
	if _, err := time.ParseDuration(n.Value); err == nil && f.typ == reflect.TypeFor[Queue]() && n.Tag == "!!str" {
		return "write queue: {timeout: " + n.Value + "}, a key of upstreams"
	}
	switch {
	case f.on:
		return "write " + f.obj.outline() + ", or " + Off
	case f.obj.shorthand != nil:
		return "write " + f.sample()
	}
	return "write " + f.obj.outline()
}

// zeroIsOff matches the description of a key for which 0 means no limit, rather than the smallest limit.
var zeroIsOff = regexp.MustCompile(`\b0: (no|never|any|as |the kernel|this rule is off)`)

// zeroFix returns the fix for a word that means off, if 0 means off, or "".
func (f *field) zeroFix(text string) string {
	if f.form.style == styleText || f.form.style == styleBoolean || !meansOff(text) || !zeroIsOff.MatchString(f.doc) {
		return ""
	}
	return "write 0"
}

func (f *field) within(v reflect.Value) *complaint {
	if len(f.bounds) == 0 {
		return nil
	}
	b := f.bounds[0]
	switch n := number(v); {
	case n < b.lo:
		return complain("write "+b.loText+" or more", "%s is %s, less than %s", f.key, f.form.show(v), b.loText)
	case n > b.hi && b.hi == 1 && n <= 100 && v.Kind() == reflect.Float64: // in percent
		return complain("write "+strconv.FormatFloat(n/100, 'g', 6, 64)+" for "+f.form.show(v)+" in 100", "%s is %s, more than %s", f.key, f.form.show(v), b.hiText)
	case n > b.hi:
		return complain("write "+b.hiText+" or less", "%s is %s, more than %s", f.key, f.form.show(v), b.hiText)
	}
	return nil
}

// whole returns the complaint about a number that should be an integer but has a point or an exponent, or is too large.
func (f *field) whole(text string) *complaint {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	lo, hi := math.Inf(-1), math.Inf(1)
	if len(f.bounds) > 0 {
		lo, hi = f.bounds[0].lo, f.bounds[0].hi
	}
	below, above := max(math.Floor(n), lo), min(math.Ceil(n), hi)
	switch {
	case err != nil:
		return complain(f.integers(), "%s must be a whole number, not %q", f.key, text)
	case n < lo:
		return complain("write "+f.bounds[0].loText+" or more", "%s is %s, less than %s", f.key, text, f.bounds[0].loText)
	case n > hi:
		return complain("write "+f.bounds[0].hiText+" or less", "%s is %s, more than %s", f.key, text, f.bounds[0].hiText)
	case below == above || math.Abs(n) > 1<<53:
		return complain(fmt.Sprintf("write %.0f", n), "%s must be written as an integer, not %q", f.key, text)
	}
	return complain(fmt.Sprintf("write %.0f or %.0f", below, above), "%s must be a whole number, not %q", f.key, text)
}

// integers says which integers may be written.
func (f *field) integers() string { return f.integersFrom(math.Inf(-1)) }

// nonzero says which integers may be written for a word that means on, if 0 is off.
func (f *field) nonzero() string {
	if zeroIsOff.MatchString(f.doc) || strings.Contains(f.doc, " 0: none") {
		return f.integersFrom(1)
	}
	return f.integers()
}

// integersFrom says which integers from least on may be written.
func (f *field) integersFrom(least float64) string {
	if len(f.bounds) != 1 {
		return "write a number such as 5"
	}
	b := f.bounds[0]
	if least > b.lo {
		b.lo, b.loText = least, strconv.FormatFloat(least, 'f', -1, 64)
	}
	if b.hi-b.lo > 4 {
		return "write a whole number from " + b.loText + " to " + b.hiText
	}
	var all []string
	for n := b.lo; n <= b.hi; n++ {
		all = append(all, strconv.FormatFloat(n, 'f', -1, 64))
	}
	return "write " + enumeration(all, "or")
}

// listOf returns how to write a value as a list. It puts the value in brackets if it is text, or several texts with
// commas.
func (f *field) listOf(n *yaml.Node) string {
	one, sample := f, f.sample()
	if f.obj != nil {
		one = f.obj.shorthand
	}
	if one != nil && f.obj != nil {
		sample = f.key + ": [" + quoted(one.example) + "]"
	}
	if one == nil || one.form.style != styleText || f.fixed > 0 || n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "$") {
		return sample
	}
	if meant, _ := suggestEndpoint(n.Value); meant != "" && one.typ == reflect.TypeFor[Address]() {
		return f.key + ": [" + quoted(meant) + "]"
	}
	words := strings.FieldsFunc(n.Value, func(r rune) bool { return r == ',' || r == ' ' })
	for i, word := range words {
		if c := one.form.set(nil, one, reflect.New(one.typ).Elem(), word); c != nil {
			return sample
		}
		if words[i] = quoted(word); strings.ContainsAny(word, `"\`) {
			return sample
		}
	}
	if len(words) == 0 {
		return sample
	}
	return f.key + ": [" + strings.Join(words, ", ") + "]"
}

// flowFix returns the fix for text that cannot stand inside of [ ] or { }, or outside of them.
// It is "" for any other text.
func flowFix(message string, at place) string {
	line := at.src.line(at.line)
	offset := at.src.offset(line, at.line, max(at.col, 1))
	before, rest := line[:offset], line[offset:]
	if strings.HasSuffix(before, "$") && strings.HasPrefix(rest, "{") {
		return fmt.Sprintf("write it in quotes: %q", variableAt(before, rest))
	}
	switch bracket := rest[:min(len(rest), 1)]; {
	case bracket == "":
	case strings.Contains(message, "node content") && bracket == ",":
		return "write a value before the comma, or leave the comma out"
	case strings.ContainsAny(bracket, "]}") && (strings.Contains(message, "node content") || strings.Contains(message, "expected key")):
		return "leave the " + bracket + " out"
	}
	return ""
}

// variableWord matches a word of YAML with variables in it.
var variableWord = regexp.MustCompile(`^(\$\{[^}]*\}?|[^ ,\[\]{}"'])+`)

// variableAt returns the word around ${. The line is before and rest together.
func variableAt(before, rest string) string {
	start := strings.LastIndexAny(before, " ,[]{}\"'") + 1
	return variableWord.FindString(before[start:] + rest)
}
