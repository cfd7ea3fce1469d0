package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// commentIndex holds the parts of a text that its nodes do not have: comments, blank lines,
// where nodes end.
type commentIndex struct {
	lines    []string
	comments map[int]comment       // by line; no line has two
	ends     map[*yaml.Node]int    // last line of nodes that may have several
	raw      map[*yaml.Node]string // scalars in quotes, of one line; headers of blocks

	starts map[[2]int]*yaml.Node // nodes that may have a # within, by line and column
	parent map[*yaml.Node]int    // indent of the parent of a block
	flows  []*yaml.Node          // open ones; nil for a bracket that is no node
	line   int
	text   []rune // of the line
}

// A comment is the text from # on.
type comment struct {
	column int
	text   string
}

// trivia finds the text between the nodes of s, the root of which is n.
func (s *source) trivia(n *yaml.Node) *commentIndex {
	t := &commentIndex{
		lines:    strings.Split(strings.TrimSuffix(s.data, "\n"), "\n"),
		comments: make(map[int]comment), ends: make(map[*yaml.Node]int), raw: make(map[*yaml.Node]string),
		starts: make(map[[2]int]*yaml.Node), parent: make(map[*yaml.Node]int),
	}
	if n != nil {
		t.note(n, -1)
	}
	for t.line = 1; t.line <= len(t.lines); t.line++ {
		t.scan()
	}
	return t
}

// note remembers where nodes start.
func (t *commentIndex) note(n *yaml.Node, indent int) {
	const special = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.FlowStyle
	if n.Style&special != 0 {
		t.starts[[2]int{n.Line, n.Column}] = n
		t.parent[n] = indent
	}
	for i, child := range n.Content {
		below := n.Column - 1
		if n.Kind == yaml.MappingNode {
			below = n.Content[i&^1].Column - 1
		}
		t.note(child, below)
	}
}

// texts returns the comments in their order.
func (t *commentIndex) texts() []string {
	var all []string
	for i := range t.lines {
		if c, ok := t.comments[i+1]; ok {
			all = append(all, c.text)
		}
	}
	return all
}

func (t *commentIndex) blank(line int) bool { return strings.TrimSpace(t.lines[line-1]) == "" }

// scan reads a line, and the further lines of nodes that begin in it.
func (t *commentIndex) scan() {
	t.text = []rune(t.lines[t.line-1])
	var block, flow *yaml.Node
	for i := 0; i < len(t.text); i++ {
		n := t.starts[[2]int{t.line, i + 1}]
		switch {
		case n == nil:
		case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
			i = t.quoted(n, i)
			continue
		case n.Style&yaml.FlowStyle != 0:
			flow = n
		default:
			block = n
		}
		switch r := t.text[i]; {
		case r == '#' && (i == 0 || t.text[i-1] == ' ' || t.text[i-1] == '\t'):
			t.noteComment(i)
			i = len(t.text)
		case (r == '[' || r == '{') && (flow != nil || len(t.flows) > 0):
			t.flows, flow = append(t.flows, flow), nil
		case (r == ']' || r == '}') && len(t.flows) > 0:
			t.ends[t.flows[len(t.flows)-1]] = t.line
			t.flows = t.flows[:len(t.flows)-1]
		}
	}
	if block != nil {
		t.block(block)
	}
}

// noteComment notes the comment that begins at i.
func (t *commentIndex) noteComment(i int) {
	t.comments[t.line] = comment{i + 1, strings.TrimRight(string(t.text[i:]), " \t")}
}

// quoted skips a scalar in quotes that begins at i, and returns where it ends.
func (t *commentIndex) quoted(n *yaml.Node, i int) int {
	quote := '"'
	if n.Style&yaml.SingleQuotedStyle != 0 {
		quote = '\''
	}
	for i = t.pastProps(i); i >= len(t.text) || t.text[i] == '#'; i = t.pastProps(0) { // it begins on a line behind
		if i < len(t.text) {
			t.noteComment(i)
		}
		if t.line == len(t.lines) {
			return len(t.text)
		}
		t.line++
		t.text = []rune(t.lines[t.line-1])
	}
	from, first := i, t.line
	for i++; ; i++ {
		for i >= len(t.text) {
			if t.line == len(t.lines) {
				return i
			}
			t.line++
			t.text, i = []rune(t.lines[t.line-1]), 0
		}
		switch {
		case t.text[i] == '\\' && quote == '"':
			i++
		case t.text[i] == quote && quote == '\'' && i+1 < len(t.text) && t.text[i+1] == quote:
			i++
		case t.text[i] == quote:
			t.ends[n] = t.line
			if t.line == first {
				t.raw[n] = string(t.text[from : i+1])
			}
			return i
		}
	}
}

// pastProps returns where the text of a scalar begins whose anchor or tag, or both, may be at i. Each
// may contain quotes, and ends at a space.
func (t *commentIndex) pastProps(i int) int {
	for i < len(t.text) && strings.ContainsRune("&! \t", t.text[i]) {
		if t.text[i] == '&' || t.text[i] == '!' {
			for i < len(t.text) && t.text[i] != ' ' && t.text[i] != '\t' {
				i++
			}
			continue
		}
		i++
	}
	return i
}

// blockHeader matches the header of a block scalar: its style, its indent, and how line ends
// at its end are treated.
var blockHeader = regexp.MustCompile(`^([|>])([0-9]?)([+-]?)([0-9]?)$`)

// block skips the lines of a scalar.
func (t *commentIndex) block(n *yaml.Node) {
	for word := range strings.FieldsSeq(string(t.text[n.Column-1:])) {
		if m := blockHeader.FindStringSubmatch(word); m != nil {
			if m[2]+m[4] != "" {
				m[2] = "2"
			}
			t.raw[n] = m[1] + m[2] + m[3]
			break
		}
	}
	last := t.line
	for i := t.line; i < len(t.lines); i++ {
		text := strings.TrimLeft(t.lines[i], " ")
		if text != "" && len(t.lines[i])-len(text) <= t.parent[n] {
			break
		}
		if text != "" || strings.HasSuffix(t.raw[n], "+") {
			last = i + 1
		}
	}
	t.line, t.ends[n] = last, last
}
