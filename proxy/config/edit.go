package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// An EndpointEdit is a change of an endpoint in a file. Exactly one of Add, Remove, Weight and State is set.
type EndpointEdit struct {
	Upstream string
	Endpoint string    // its name, or its address; not for Add
	Add      *Endpoint // an endpoint that NewEndpoint has made
	Remove   bool
	Weight   *int
	State    string
}

// An Edited is a file of a configuration, before and after an edit.
type Edited struct {
	Path          string  // of the file that has the endpoint's line
	Before, After []byte  // equal if nothing has to change
	Next          *Config // after the edit, with the other files as they were read; nil if nothing has to change
}

// ErrNotPlain is wrapped by the error about a line that cannot be edited because it depends on other lines, or other
// lines depend on it: it has an alias, an anchor or a variable.
var ErrNotPlain = errors.New("this line cannot be edited automatically")

// EditEndpoint edits the file with an endpoint's line: the file at path, or a file that it includes. It writes nothing
// to disk, and keeps comments and format. The edited configuration was checked as by [Load], and differs from the
// configuration before only by this edit. The error is one line.
func EditEndpoint(path string, env Env, e *EndpointEdit) (*Edited, error) {
	before, problems := Load(path, env)
	if len(problems) > 0 {
		return nil, problemError(problems)
	}
	wanted, u, i, err := e.wanted(before)
	if err != nil {
		return nil, err
	}
	text := before.reading.Files[u.Pos.File]
	done := &Edited{Path: u.Pos.File, Before: text, After: text}
	if len(Diff(before, wanted)) == 0 {
		return done, nil
	}
	ed := editor{source: newSource(u.Pos.File, text)}
	after := ed.edit(u, i, e)
	if err := ed.failed; err != nil {
		return nil, fmt.Errorf("%v: %w: edit it by hand", positionOf(u, err), err)
	}
	done.After = []byte(after)
	next, problems := before.reading.loadWith(done, env)
	if len(problems) > 0 {
		return nil, problemError(problems)
	}
	if len(Diff(wanted, next)) > 0 {
		return nil, fmt.Errorf("%v: %w: the edit would change other lines too: edit the file by hand", u.Pos, ErrNotPlain)
	}
	done.Next = next
	return done, nil
}

// positionOf returns the position in an error, or else the upstream's position.
func positionOf(u *Upstream, err error) Pos {
	at := u.Pos
	if e, ok := errors.AsType[*notPlain](err); ok {
		at.Line, at.Column = e.at.Line, e.at.Column
	}
	return at
}

func problemError(problems []Problem) error {
	p := &problems[0]
	return fmt.Errorf("%v: %s", p.Pos, p.Message)
}

// loadWith is Load with an edited file. It takes the other files as they were read before.
func (r *reading) loadWith(e *Edited, env Env) (*Config, []Problem) {
	l := newLoader(env)
	read := l.read
	l.read = func(path string, most int) ([]byte, error) {
		if path == e.Path {
			return e.After, nil
		}
		if text, ok := r.Files[path]; ok {
			return text, nil
		}
		return read(path, most) // a certificate
	}
	l.glob = func(pattern string) ([]string, error) { return r.Globs[pattern], nil }
	l.file(r.Path, place{})
	return l.finish()
}

// wanted returns the configuration after the edit, the upstream before it, and the index of the endpoint that the
// edit is about.
func (e *EndpointEdit) wanted(c *Config) (next *Config, u *Upstream, index int, err error) {
	at := slices.IndexFunc(c.Upstreams, func(u *Upstream) bool { return u.Name == e.Upstream })
	if at < 0 {
		return nil, nil, 0, fmt.Errorf("the file has no upstream %s", e.Upstream)
	}
	u = c.Upstreams[at]
	if u.Discover != nil {
		return nil, nil, 0, fmt.Errorf("the endpoints of %s are discovered: change them at their source", e.Upstream)
	}
	copied, with := *c, *u
	with.Endpoints = slices.Clone(u.Endpoints)
	copied.Upstreams = slices.Clone(c.Upstreams)
	copied.Upstreams[at] = &with
	name := e.Name()
	index = slices.IndexFunc(u.Endpoints, func(o Endpoint) bool { return o.Name == name })
	if index < 0 {
		at := func(o Endpoint) bool { return o.Address.String() == name }
		index = slices.IndexFunc(u.Endpoints, at)
		if index >= 0 && e.Add == nil && slices.ContainsFunc(u.Endpoints[index+1:], at) {
			return nil, nil, 0, fmt.Errorf("several endpoints of %s have the address %s in the file: write the name of one of them", e.Upstream, name)
		}
	}
	switch {
	case e.Add != nil && index < 0:
		with.Endpoints = append(with.Endpoints, *e.Add)
	case e.Remove && index >= 0 && len(u.Endpoints) == 1:
		return nil, nil, 0, fmt.Errorf("%s is the only endpoint of %s in the file, and an upstream needs an endpoint: add another endpoint first", name, e.Upstream)
	case e.Remove && index >= 0:
		with.Endpoints = slices.Delete(with.Endpoints, index, index+1)
	case e.Add != nil, e.Remove: // the file says so already
	case index < 0:
		return nil, nil, 0, fmt.Errorf("the file has no endpoint %s in the upstream %s. The upstream has %s", e.Endpoint, e.Upstream, endpointNames(u.Endpoints))
	case e.Weight != nil:
		with.Endpoints[index].Weight = *e.Weight
	default:
		with.Endpoints[index].State = e.State
	}
	return &copied, u, index, nil
}

func endpointNames(list []Endpoint) string {
	const most = 10
	names := make([]string, min(len(list), most))
	for i := range names {
		names[i] = list[i].Name
	}
	if len(list) > most {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

// Name returns the endpoint's name, or its address, as the user gave it.
func (e *EndpointEdit) Name() string {
	if e.Add != nil {
		return e.Add.Name
	}
	return e.Endpoint
}

// An editor edits the text of a source, at the positions of its nodes.
type editor struct {
	*source
	json   bool
	failed error // the first error; it wraps [ErrNotPlain]. text made after it is not used
}

// fail notes why the text is not edited.
func (ed *editor) fail(err error) string {
	if ed.failed == nil {
		ed.failed = err
	}
	return ""
}

// edit returns the text of the file after an edit of endpoint i of an upstream.
func (ed *editor) edit(u *Upstream, i int, e *EndpointEdit) string {
	root, problem := ed.parse()
	if problem != nil || root == nil {
		return ed.fail(ErrNotPlain)
	}
	ed.json = ed.source.json() != nil
	list, err := ed.endpoints(root, u)
	if err != nil {
		return ed.fail(err)
	}
	text, at := "", list
	if e.Add != nil {
		text = ed.add(list, e.Add)
	} else {
		at = list.Content[i]
		if err := plainNode(at); err != nil {
			return ed.fail(err)
		}
		text = ed.change(list, at, e)
	}
	if ed.failed != nil && !errors.As(ed.failed, new(*notPlain)) {
		ed.failed = &notPlain{at, "its end was not found"}
	}
	return text
}

func (ed *editor) change(list, item *yaml.Node, e *EndpointEdit) string {
	switch {
	case e.Remove:
		return ed.remove(list, item)
	case e.Weight != nil:
		return ed.set(item, "weight", strconv.Itoa(*e.Weight))
	case e.State == Ready: // the same as without the key
		return ed.unset(item, "state")
	}
	return ed.set(item, "state", ed.word(e.State))
}

// keyIndex returns the index of a key among the nodes of a mapping, or a negative number.
func keyIndex(n *yaml.Node, key string) int {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// valueOf returns the value of a key of a mapping, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if at := keyIndex(n, key); at >= 0 {
		return n.Content[at+1]
	}
	return nil
}

func (ed *editor) replace(from, to int, by string) string { return ed.data[:from] + by + ed.data[to:] }

func (ed *editor) key(name string) string {
	if ed.json {
		return strconv.Quote(name) + ": "
	}
	return name + ": "
}

func (ed *editor) word(text string) string {
	if ed.json {
		return strconv.Quote(text)
	}
	return text
}

func (ed *editor) set(item *yaml.Node, key, value string) string {
	if item.Kind == yaml.ScalarNode {
		from, to := ed.extent(item)
		return ed.replace(from, to, "{"+ed.key("address")+ed.data[from:to]+", "+ed.key(key)+value+"}")
	}
	if v := valueOf(item, key); v != nil {
		from, to := ed.extent(v)
		return ed.replace(from, to, value)
	}
	address, name := valueOf(item, "address"), valueOf(item, "name")
	if address == nil {
		return ed.fail(ErrNotPlain)
	}
	before := address
	if name != nil && (name.Line > address.Line || name.Line == address.Line && name.Column > address.Column) {
		before = name
	}
	_, to := ed.extent(before)
	if item.Style&yaml.FlowStyle != 0 || ed.json {
		return ed.replace(to, to, ", "+ed.key(key)+value)
	}
	return ed.insertLine(to, item.Content[keyIndex(item, "address")].Column, key+": "+value)
}

func (ed *editor) add(list *yaml.Node, e *Endpoint) string {
	last := list.Content[len(list.Content)-1]
	_, to := ed.extent(last)
	if list.Style&yaml.FlowStyle == 0 && !ed.json {
		return ed.insertLine(to, list.Column, "- "+ed.item(e))
	}
	before := list.Line
	if n := len(list.Content); n > 1 {
		before = list.Content[n-2].Line
	}
	if last.Line > before { // each item has its own line
		return ed.insert(to, ",", last.Column, ed.item(e))
	}
	return ed.replace(to, to, ", "+ed.item(e))
}

// item writes the keys of an endpoint that differ from their defaults.
func (ed *editor) item(e *Endpoint) string {
	o, v := described(reflect.TypeFor[Endpoint]()), reflect.ValueOf(e).Elem()
	var parts []string
	for _, f := range o.fields {
		value := v.Field(f.index)
		if same(value, o.template.Field(f.index)) || f.key == "name" && e.Name == e.Address.String() {
			continue
		}
		w := &writer{json: ed.json}
		w.scalar(f, value)
		parts = append(parts, ed.key(f.key)+w.String())
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], ed.key("address"))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (ed *editor) remove(list, item *yaml.Node) string {
	from, to := ed.extent(item)
	if list.Style&yaml.FlowStyle == 0 && !ed.json {
		return ed.removeLines(from, to)
	}
	const blank = " \t\r\n"
	rest := strings.TrimLeft(ed.data[to:], blank)
	if after, ok := strings.CutPrefix(rest, ","); ok && item != list.Content[len(list.Content)-1] {
		return ed.data[:from] + strings.TrimLeft(after, blank)
	}
	before, ok := strings.CutSuffix(strings.TrimRight(ed.data[:from], blank), ",")
	if !ok {
		return ed.fail(ErrNotPlain)
	}
	return before + ed.data[to:]
}

func (ed *editor) removeLines(from, to int) string {
	from = strings.LastIndexByte(ed.data[:from], '\n') + 1
	return ed.replace(from, min(ed.lineEnd(to)+1, len(ed.data)), "")
}

// insertLine inserts a line below the line of byte at. Columns begin with 1.
func (ed *editor) insertLine(at, column int, line string) string {
	at = ed.lineEnd(at)
	if at > 0 && ed.data[at-1] == '\r' {
		at--
	}
	return ed.insert(at, "", column, line)
}

// insert ends a line at byte at and begins another one. It ends lines as the file does.
func (ed *editor) insert(at int, end string, column int, line string) string {
	eol := "\n"
	if strings.Contains(ed.data, "\r\n") {
		eol = "\r\n"
	}
	return ed.replace(at, at, end+eol+strings.Repeat(" ", column-1)+line)
}

func (ed *editor) lineEnd(at int) int {
	if i := strings.IndexByte(ed.data[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(ed.data)
}

func (ed *editor) extent(n *yaml.Node) (from, to int) {
	from = ed.start(n)
	var err error
	switch {
	case n.Kind == yaml.ScalarNode:
		to, err = ed.scalarEnd(n, from)
	case from < len(ed.data) && (ed.data[from] == '[' || ed.data[from] == '{'):
		to, err = flowEnd(ed.data, from)
	case len(n.Content) == 0:
		err = ErrNotPlain
	default:
		_, to = ed.extent(n.Content[len(n.Content)-1])
	}
	if err != nil {
		ed.fail(err)
		return 0, 0
	}
	return from, to
}

func (ed *editor) start(n *yaml.Node) int {
	line := ed.line(n.Line)
	return ed.lines[n.Line-1] + ed.offset(line, n.Line, n.Column)
}

func (ed *editor) scalarEnd(n *yaml.Node, from int) (int, error) {
	rest := ed.data[from:]
	if rest == "" {
		return 0, ErrNotPlain
	}
	switch rest[0] {
	case '"', '\'':
		end := quoteEnd(rest)
		if end < 0 || strings.Contains(rest[:end], "\n") {
			return 0, ErrNotPlain
		}
		return from + end, nil
	}
	if n.Value == "" || !strings.HasPrefix(rest, n.Value) {
		return 0, ErrNotPlain
	}
	return from + len(n.Value), nil
}

// quoteEnd returns the length of a quoted text, or -1 if it has no end.
func quoteEnd(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case quote == '"' && text[i] == '\\':
			i++
		case text[i] != quote:
		case quote == '\'' && strings.HasPrefix(text[i+1:], "'"):
			i++
		default:
			return i + 1
		}
	}
	return -1
}

// flowEnd returns where a list or mapping in brackets ends.
func flowEnd(text string, from int) (int, error) {
	depth := 0
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case '"', '\'':
			n := quoteEnd(text[i:])
			if n < 0 {
				return 0, ErrNotPlain
			}
			i += n - 1
		case '#':
			if strings.ContainsRune(" \t\n", rune(text[i-1])) {
				n := strings.IndexByte(text[i:], '\n')
				if n < 0 {
					return 0, ErrNotPlain
				}
				i += n
			}
		}
	}
	return 0, ErrNotPlain
}

// A notPlain says which node cannot be edited, and why. It wraps [ErrNotPlain].
type notPlain struct {
	at  *yaml.Node
	why string
}

func (e *notPlain) Error() string { return fmt.Sprintf("%v: %s", ErrNotPlain, e.why) }
func (e *notPlain) Unwrap() error { return ErrNotPlain }

// plainNode returns why a node cannot be edited: it is not written where it stands, or other places share it. It
// returns nil for a plain node.
func plainNode(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return &notPlain{n, "it is written as an alias: *" + n.Value}
	case n.Anchor != "":
		return &notPlain{n, "other places may use its anchor: &" + n.Anchor}
	case n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${"):
		return &notPlain{n, "it has a variable: " + n.Value}
	}
	for _, child := range n.Content {
		if child.Tag == "!!merge" {
			return &notPlain{child, "it has keys of another mapping: <<"}
		}
		if err := plainNode(child); err != nil {
			return err
		}
	}
	return nil
}

// endpoints returns the list of an upstream's endpoints, or why it cannot be edited.
func (ed *editor) endpoints(root *yaml.Node, u *Upstream) (*yaml.Node, error) {
	upstreams := valueOf(root, "upstreams")
	switch {
	case upstreams == nil:
		return nil, ErrNotPlain
	case upstreams.Kind != yaml.SequenceNode, upstreams.Anchor != "":
		return nil, noList(upstreams)
	}
	for _, n := range upstreams.Content {
		if n.Line == u.Pos.Line && n.Column == u.Pos.Column {
			return endpointList(n)
		}
	}
	return nil, ErrNotPlain
}

// endpointList returns the list of the endpoints in the node of an upstream.
func endpointList(n *yaml.Node) (*yaml.Node, error) {
	list := valueOf(n, "endpoints")
	merged := keyIndex(n, "<<")
	switch {
	case n.Kind != yaml.MappingNode, n.Anchor != "":
		return nil, noList(n)
	case list == nil && merged >= 0:
		return nil, &notPlain{n.Content[merged], "its endpoints come from another mapping: <<"}
	case list == nil:
		return nil, ErrNotPlain
	case list.Kind != yaml.SequenceNode, list.Anchor != "", len(list.Content) == 0:
		return nil, noList(list)
	}
	return list, nil
}

// noList returns why a node that should be a list cannot be edited.
func noList(n *yaml.Node) error {
	if err := plainNode(n); err != nil {
		return err
	}
	return &notPlain{n, "it is not a list of items"}
}

// unset removes a key from an endpoint. If only the address of an endpoint in brackets is left, the endpoint becomes
// the address.
func (ed *editor) unset(item *yaml.Node, key string) string {
	at := keyIndex(item, key)
	if at < 0 {
		return ed.data
	}
	if item.Style&yaml.FlowStyle == 0 && !ed.json {
		return ed.unsetLine(item, at)
	}
	if address := valueOf(item, "address"); address != nil && len(item.Content) == 4 {
		from, to := ed.extent(item)
		first, last := ed.extent(address)
		return ed.replace(from, to, ed.data[first:last])
	}
	if at+2 < len(item.Content) {
		return ed.replace(ed.start(item.Content[at]), ed.start(item.Content[at+2]), "")
	}
	if at == 0 {
		return ed.fail(ErrNotPlain)
	}
	_, from := ed.extent(item.Content[at-1])
	_, to := ed.extent(item.Content[at+1])
	return ed.replace(from, to, "")
}

// unsetLine removes a key from an endpoint with one key per line.
func (ed *editor) unsetLine(item *yaml.Node, at int) string {
	from := ed.start(item.Content[at])
	if at == 0 { // behind the dash
		if len(item.Content) < 4 {
			return ed.fail(ErrNotPlain)
		}
		return ed.replace(from, ed.start(item.Content[2]), "")
	}
	_, to := ed.extent(item.Content[at+1])
	return ed.removeLines(from, to)
}
