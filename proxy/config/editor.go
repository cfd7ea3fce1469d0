package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// An editor edits the text of a source, at the positions of its nodes.
type editor struct {
	*source
	json bool
}

// edit returns the text of the file with an edit of endpoint i of an upstream. The error wraps [ErrNotPlain].
func (ed *editor) edit(u *Upstream, i int, e *EndpointEdit) (string, error) {
	root, problem := ed.parse()
	if problem != nil || root == nil {
		return "", ErrNotPlain
	}
	ed.json = ed.source.json() != nil
	list, err := ed.endpoints(root, u)
	switch {
	case err != nil:
		return "", err
	case e.Add != nil:
		text, err := ed.add(list, e.Add)
		return text, placed(list, err)
	}
	item := list.Content[i]
	if err := plainNode(item); err != nil {
		return "", err
	}
	text, err := ed.change(list, item, e)
	return text, placed(item, err)
}

// change returns the text with an edit of an item of the list.
func (ed *editor) change(list, item *yaml.Node, e *EndpointEdit) (string, error) {
	switch {
	case e.Remove:
		return ed.remove(list, item)
	case e.Weight != nil:
		return ed.set(item, "weight", strconv.Itoa(*e.Weight))
	case e.State == Ready: // as without the key
		return ed.unset(item, "state")
	}
	return ed.set(item, "state", ed.word(e.State))
}

// pairOf returns a key of a mapping and its value; nil: the mapping does not have it.
func pairOf(n *yaml.Node, key string) (k, v *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// replace replaces a part of the text.
func (ed *editor) replace(from, to int, by string) string { return ed.data[:from] + by + ed.data[to:] }

func (ed *editor) key(name string) string {
	if ed.json {
		return strconv.Quote(name) + ": "
	}
	return name + ": "
}

// word writes a word that needs no quotes in YAML.
func (ed *editor) word(text string) string {
	if ed.json {
		return strconv.Quote(text)
	}
	return text
}

// set has a key of an endpoint have a value.
func (ed *editor) set(item *yaml.Node, key, value string) (string, error) {
	if item.Kind == yaml.ScalarNode {
		from, to, err := ed.extent(item)
		if err != nil {
			return "", err
		}
		return ed.replace(from, to, "{"+ed.key("address")+ed.data[from:to]+", "+ed.key(key)+value+"}"), nil
	}
	if _, v := pairOf(item, key); v != nil {
		from, to, err := ed.extent(v)
		if err != nil {
			return "", err
		}
		return ed.replace(from, to, value), nil
	}
	first, address := pairOf(item, "address")
	if address == nil {
		return "", ErrNotPlain
	}
	before := address
	if _, name := pairOf(item, "name"); name != nil && (name.Line > address.Line || name.Line == address.Line && name.Column > address.Column) {
		before = name
	}
	_, to, err := ed.extent(before)
	if err != nil {
		return "", err
	}
	if item.Style&yaml.FlowStyle != 0 || ed.json {
		return ed.replace(to, to, ", "+ed.key(key)+value), nil
	}
	to = ed.lineEnd(to)
	return ed.replace(to, to, "\n"+strings.Repeat(" ", first.Column-1)+key+": "+value), nil
}

// add appends an endpoint to a list.
func (ed *editor) add(list *yaml.Node, e *Endpoint) (string, error) {
	last := list.Content[len(list.Content)-1]
	_, to, err := ed.extent(last)
	if err != nil {
		return "", err
	}
	if list.Style&yaml.FlowStyle == 0 && !ed.json {
		to = ed.lineEnd(to)
		return ed.replace(to, to, "\n"+strings.Repeat(" ", list.Column-1)+"- "+ed.item(e)), nil
	}
	before := list.Line
	if n := len(list.Content); n > 1 {
		before = list.Content[n-2].Line
	}
	if last.Line > before { // each has a line of its own
		return ed.replace(to, to, ",\n"+strings.Repeat(" ", last.Column-1)+ed.item(e)), nil
	}
	return ed.replace(to, to, ", "+ed.item(e)), nil
}

// item writes an endpoint.
func (ed *editor) item(e *Endpoint) string {
	address := strconv.Quote(e.Address.String())
	parts := []string{ed.key("address") + address}
	if e.Name != e.Address.String() {
		parts = append(parts, ed.key("name")+strconv.Quote(e.Name))
	}
	if e.Weight != 1 {
		parts = append(parts, ed.key("weight")+strconv.Itoa(e.Weight))
	}
	if e.Backup {
		parts = append(parts, ed.key("backup")+"true")
	}
	if e.Connections != 0 {
		parts = append(parts, ed.key("connections")+strconv.FormatInt(e.Connections, 10))
	}
	if e.Zone != "" {
		parts = append(parts, ed.key("zone")+strconv.Quote(e.Zone))
	}
	if e.State != Ready {
		parts = append(parts, ed.key("state")+ed.word(e.State))
	}
	if len(parts) == 1 {
		return address
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// remove takes an item out of a list.
func (ed *editor) remove(list, item *yaml.Node) (string, error) {
	from, to, err := ed.extent(item)
	if err != nil {
		return "", err
	}
	if list.Style&yaml.FlowStyle == 0 && !ed.json {
		from = strings.LastIndexByte(ed.data[:from], '\n') + 1
		return ed.replace(from, min(ed.lineEnd(to)+1, len(ed.data)), ""), nil
	}
	const blank = " \t\r\n"
	rest := strings.TrimLeft(ed.data[to:], blank)
	if after, ok := strings.CutPrefix(rest, ","); ok && item != list.Content[len(list.Content)-1] {
		return ed.data[:from] + strings.TrimLeft(after, blank), nil
	}
	before, ok := strings.CutSuffix(strings.TrimRight(ed.data[:from], blank), ",")
	if !ok {
		return "", ErrNotPlain
	}
	return before + ed.data[to:], nil
}

// lineEnd returns where the line of an offset ends, before its line feed.
func (ed *editor) lineEnd(at int) int {
	if i := strings.IndexByte(ed.data[at:], '\n'); i >= 0 {
		return at + len(strings.TrimSuffix(ed.data[at:at+i], "\r"))
	}
	return len(ed.data)
}

// extent returns where the text of a node begins and ends.
func (ed *editor) extent(n *yaml.Node) (from, to int, err error) {
	from = ed.start(n)
	switch {
	case n.Kind == yaml.ScalarNode:
		to, err = ed.scalarEnd(n, from)
	case from < len(ed.data) && (ed.data[from] == '[' || ed.data[from] == '{'):
		to, err = flowEnd(ed.data, from)
	case len(n.Content) == 0:
		err = ErrNotPlain
	default:
		_, to, err = ed.extent(n.Content[len(n.Content)-1])
	}
	return from, to, err
}

func (ed *editor) start(n *yaml.Node) int {
	line := ed.line(n.Line)
	return ed.lines[n.Line-1] + ed.offset(line, n.Line, n.Column)
}

// scalarEnd returns where a scalar of one line ends.
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

// quoteEnd returns the length of a text in quotes; -1: it has no end.
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

// flowEnd returns where a list or a mapping in brackets ends that begins at an offset.
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
