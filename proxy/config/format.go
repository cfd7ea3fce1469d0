package config

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/internal/file"
	"go.yaml.in/yaml/v4"
)

// Format returns the text of a file, and the same file in canonical form: two spaces for each
// level, lists below their key indented, one blank line where there were several. Comments
// stay where they are, and in their columns if they follow text on the line. The order of
// keys, quotes, and {flow} on one line or on several stay too. Included files are not changed.
func Format(path string) (text, formatted []byte, problems []Problem) {
	text, err := file.Read(path, maxFile)
	if err != nil {
		return nil, nil, []Problem{place{src: &source{name: path}}.problem(mend(err, maxFile), "cannot be read: %v", pathless(err))}
	}
	formatted, problem := format(newSource(path, text))
	if problem != nil {
		return text, nil, []Problem{*problem}
	}
	return text, formatted, nil
}

func format(s *source) ([]byte, *Problem) {
	s.data = strings.ReplaceAll(strings.TrimPrefix(s.data, "\ufeff"), "\r\n", "\n")
	n, problem := s.parse()
	if problem != nil {
		return nil, problem
	}
	t := s.trivia(n)
	f := &formatter{commentIndex: t}
	if n != nil {
		f.document(n)
	}
	f.flush(len(t.lines)+1, 1, 0)
	formatted := append(bytes.Trim(f.Bytes(), "\n"), '\n')
	if string(formatted) == "\n" {
		formatted = nil
	}
	if !sameMeaning(s, n, t, formatted) {
		p := place{src: s}.problem("write it in a plainer way", "it cannot be formatted without changing its meaning")
		return nil, &p
	}
	return formatted, nil
}

// sameMeaning reports whether the formatted text has the same values and comments.
func sameMeaning(s *source, n *yaml.Node, t *commentIndex, formatted []byte) bool {
	again := &source{name: s.name, dir: s.dir, data: string(formatted)}
	m, problem := again.parse()
	return problem == nil && equalNodes(n, m) && slices.Equal(t.texts(), again.trivia(m).texts())
}

func equalNodes(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.Value == b.Value && a.Tag == b.Tag && a.Anchor == b.Anchor &&
		slices.EqualFunc(a.Content, b.Content, equalNodes)
}

// A formatter writes nodes in source order, and the comments and blank lines between them.
type formatter struct {
	bytes.Buffer
	*commentIndex
	done   int     // comments are written for source lines up to this one
	source int     // last source line written on the current line; 0: the line is empty
	levels []level // of the current and earlier blocks, outermost first
}

// A level is the column of a block in the source and its indent in the output.
type level struct{ column, indent int }

func (f *formatter) document(n *yaml.Node) {
	switch {
	case n.Style&yaml.FlowStyle == 0 && n.Kind == yaml.MappingNode:
		if props(n) != "" {
			f.begin(n, 0)
			f.WriteString(props(n))
		}
		f.mapping(n, 0, false)
	case n.Style&yaml.FlowStyle == 0 && n.Kind == yaml.SequenceNode:
		f.sequence(n, 0, false)
	default:
		f.begin(n, 0)
		f.inline(n, 0)
	}
}

// begin ends the current line, writes the comments before n, and begins n's line.
func (f *formatter) begin(n *yaml.Node, indent int) {
	f.flush(n.Line, n.Column, indent)
	for len(f.levels) > 0 && f.levels[len(f.levels)-1].column >= n.Column {
		f.levels = f.levels[:len(f.levels)-1]
	}
	f.levels = append(f.levels, level{n.Column, indent})
	f.indent(indent)
	f.source = n.Line
}

// flush ends the current line and writes the comments and blank lines before a source line.
func (f *formatter) flush(line, column, indent int) {
	if f.source > 0 {
		if c, ok := f.comments[f.source]; ok && line > f.source {
			f.comment(c)
			f.done = max(f.done, f.source)
		}
		f.WriteByte('\n')
		f.source = 0
	}
	for f.done+1 < line {
		f.done++
		c, ok := f.comments[f.done]
		switch {
		case ok:
			f.indent(f.indentOf(c, column, indent))
			f.WriteString(c.text)
			f.WriteByte('\n')
		case f.blank(f.done) && f.Len() > 0 && !bytes.HasSuffix(f.Bytes(), []byte("\n\n")):
			f.WriteByte('\n')
		}
	}
}

// comment writes a comment after the text of the current line. If there is room it keeps its
// column, so that comments below each other stay aligned.
func (f *formatter) comment(c comment) {
	line := f.Bytes()[bytes.LastIndexByte(f.Bytes(), '\n')+1:]
	f.indent(max(c.column-1-utf8.RuneCount(line), 1))
	f.WriteString(c.text)
}

// indentOf returns the indent of a comment before a node at a column. It is that of the node,
// or that of the block before if the comment is further to the right.
func (f *formatter) indentOf(c comment, column, indent int) int {
	if c.column <= column {
		return indent
	}
	for i := len(f.levels) - 1; i >= 0; i-- {
		if f.levels[i].column <= c.column {
			return max(f.levels[i].indent, indent)
		}
	}
	return indent
}

func (f *formatter) indent(n int) {
	for range n {
		f.WriteByte(' ')
	}
}

// mapping writes a block of keys; the first one on the current line if that was begun.
func (f *formatter) mapping(n *yaml.Node, indent int, begun bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if i > 0 || !begun {
			f.begin(key, indent)
		} else {
			f.source = key.Line
			f.levels = append(f.levels, level{key.Column, indent})
		}
		f.scalar(key, indent)
		f.WriteByte(':')
		f.value(value, indent)
	}
}

// value writes the text after a colon or a dash.
func (f *formatter) value(n *yaml.Node, indent int) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value == "" && props(n) == "" {
		return
	}
	block := n.Style&yaml.FlowStyle == 0
	switch {
	case n.Kind == yaml.MappingNode && block:
		f.WriteString(strings.TrimRight(" "+props(n), " "))
		f.mapping(n, indent+2, false)
	case n.Kind == yaml.SequenceNode && block:
		f.WriteString(strings.TrimRight(" "+props(n), " "))
		f.sequence(n, indent+2, false)
	default:
		f.WriteByte(' ')
		f.inline(n, indent)
	}
}

// sequence writes a block of items.
func (f *formatter) sequence(n *yaml.Node, indent int, begun bool) {
	for i, item := range n.Content {
		if i > 0 || !begun {
			f.begin(&yaml.Node{Line: item.Line, Column: n.Column}, indent)
		}
		f.WriteByte('-')
		block := item.Style&yaml.FlowStyle == 0 && props(item) == ""
		switch {
		case item.Kind == yaml.MappingNode && block:
			f.WriteByte(' ')
			f.mapping(item, indent+2, true)
		case item.Kind == yaml.SequenceNode && block:
			f.WriteByte(' ')
			f.sequence(item, indent+2, true)
		default:
			f.value(item, indent)
		}
	}
}

// inline writes a scalar, an alias or a flow.
func (f *formatter) inline(n *yaml.Node, indent int) {
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		f.scalar(n, indent)
		return
	}
	open, shut, step := "[", "]", 1
	if n.Kind == yaml.MappingNode {
		open, shut, step = "{", "}", 2
	}
	f.WriteString(props(n) + open)
	long := f.ends[n] > n.Line && len(n.Content) > 0
	for i := 0; i+step <= len(n.Content); i += step {
		if i > 0 {
			f.WriteByte(',')
		}
		if long {
			f.begin(n.Content[i], indent+2)
		} else if i > 0 {
			f.WriteByte(' ')
		}
		f.inline(n.Content[i], indent+2)
		if step == 2 {
			f.WriteByte(':')
			f.value(n.Content[i+1], indent+2)
		}
	}
	if long {
		f.begin(&yaml.Node{Line: f.ends[n], Column: 1}, indent)
	}
	f.WriteString(shut)
	f.source = max(f.source, f.ends[n])
}

// props returns the anchor and the tag of a node.
func props(n *yaml.Node) string {
	text := ""
	if n.Anchor != "" {
		text = "&" + n.Anchor + " "
	}
	if n.Style&yaml.TaggedStyle != 0 {
		text += n.ShortTag() + " "
	}
	return text
}

func (f *formatter) scalar(n *yaml.Node, indent int) {
	defer func() { f.source = max(f.source, n.Line, f.ends[n]) }()
	if n.Kind == yaml.AliasNode {
		f.WriteString("*" + n.Value)
		return
	}
	f.WriteString(props(n))
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		f.block(n, indent+2)
	case f.raw[n] != "":
		f.WriteString(f.raw[n])
	case strings.Contains(n.Value, "\n") || n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		w := &writer{}
		w.text(n.Value)
		f.Write(w.Bytes())
	default:
		f.WriteString(n.Value)
	}
}

// block writes the lines of a block scalar unchanged, except for their indent.
func (f *formatter) block(n *yaml.Node, indent int) {
	f.WriteString(f.raw[n])
	if c, ok := f.comments[n.Line]; ok {
		f.comment(c)
	}
	lines := f.lines[n.Line:f.ends[n]]
	strip := -1
	for _, line := range lines {
		if text := strings.TrimLeft(line, " "); text != "" && (strip < 0 || len(line)-len(text) < strip) {
			strip = len(line) - len(text)
		}
	}
	for _, line := range lines {
		f.WriteByte('\n')
		if strip >= 0 && len(line) > strip {
			f.indent(indent)
			f.WriteString(line[strip:])
		}
	}
	f.done = max(f.done, f.ends[n])
}
