package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Limits of a configuration. They are far above any real file, and low enough to bound the
// memory that a hostile file can allocate.
const (
	maxFile   = 16 << 20 // bytes of a file
	maxAll    = 64 << 20 // bytes of all files
	maxValues = 600_000  // of a file: what may precede a value; each takes 0.3 to 0.8 KB to parse
	maxMarks  = 400_000  // of a file that is not JSON: quotes, anchors, aliases and tags
	maxMemory = 64 << 20 // bytes taken by values that have been read, aliases followed
	perValue  = 64       // smallest number of bytes taken by a value
	maxDepth  = 32       // of nesting
	maxFiles  = 4096
	maxFound  = 1000 // problems
	maxText   = 400  // bytes of a message
	maxWords  = 1000 // candidates for a suggestion
	maxBytes  = 64 << 10
)

// A source is a file that is being read.
type source struct {
	name  string // as the user wrote it
	dir   string // absolute, base of relative paths
	data  string
	lines []int // where each line begins; nil before first use

	// The result of the last look-up: the byte offset of a column in a line. A line may be
	// long, and have many problems.
	seen struct{ line, col, offset int }
}

func newSource(name string, data []byte) *source {
	dir := filepath.Dir(name)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &source{name: name, dir: dir, data: string(data)}
}

// line returns a line, counted from 1. The data need not be valid YAML.
func (s *source) line(n int) string {
	if s.lines == nil {
		s.lines = []int{0}
		for i := range len(s.data) {
			if s.data[i] == '\n' {
				s.lines = append(s.lines, i+1)
			}
		}
	}
	if n < 1 || n > len(s.lines) {
		return ""
	}
	end := len(s.data)
	if n < len(s.lines) {
		end = s.lines[n] - 1
	}
	return strings.TrimSuffix(s.data[s.lines[n-1]:end], "\r")
}

// offset returns the number of bytes of a line before a column.
func (s *source) offset(line string, n, col int) int {
	if s.seen.line != n || s.seen.col > col {
		s.seen.line, s.seen.col, s.seen.offset = n, 1, 0
	}
	at := &s.seen
	for at.col < col && at.offset < len(line) {
		_, size := utf8.DecodeRuneInString(line[at.offset:])
		at.offset += size
		at.col++
	}
	return at.offset
}

// excerpt returns the part of a line that is shown around a column, and the column within that
// part.
func (s *source) excerpt(n, col int) (text string, at int) {
	const before, after = 90, 70
	line := s.line(n)
	offset := s.offset(line, n, max(col, 1))
	from, to, cut := offset, offset, ""
	for at = 1; from > 0 && at <= before; at++ {
		_, size := utf8.DecodeLastRuneInString(line[:from])
		from -= size
	}
	for i := 0; to < len(line) && i < after; i++ {
		_, size := utf8.DecodeRuneInString(line[to:])
		to += size
	}
	if from > 0 {
		cut, at = "…", at+1
	}
	text = cut + printable(line[from:to])
	if to < len(line) {
		text += "…"
	}
	return text, at
}

// A place is the part of a file that a problem is about.
type place struct {
	src              *source
	line, col, width int
	secret           bool // its line is not shown
}

func (s *source) at(n *yaml.Node) place {
	p := place{src: s, line: n.Line, col: n.Column, width: 1}
	switch {
	case n.Kind == yaml.AliasNode:
		p.width = 1 + utf8.RuneCountInString(n.Value)
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && !strings.Contains(n.Value, "\n"):
		p.width = max(utf8.RuneCountInString(n.Value), 1)
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			p.width += 2
		}
	}
	return p
}

func (p place) pos() Pos {
	if p.src == nil {
		return Pos{}
	}
	return Pos{p.src.name, p.line, p.col}
}

// discreet returns the place without its line, which has a secret.
func (p place) discreet() place {
	p.secret = true
	return p
}

// within narrows a place to a part of its text, if that is near in its line.
func (p place) within(part string) place {
	line := p.src.line(p.line)
	rest := line[p.src.offset(line, p.line, max(p.col, 1)):]
	if before, _, ok := strings.Cut(rest[:min(len(rest), 4096)], part); ok && part != "" {
		p.col += utf8.RuneCountInString(before)
		p.width = utf8.RuneCountInString(part)
	}
	return p
}

func (p place) problem(fix, format string, args ...any) Problem {
	problem := Problem{Pos: p.pos(), Message: shortened(fmt.Sprintf(format, args...)), Fix: shortened(fix), secret: p.secret}
	if p.src != nil && p.line > 0 && !p.secret {
		problem.line, problem.column = p.src.excerpt(p.line, p.col)
		problem.width = p.width
	}
	return problem
}

// shortened shortens a text to fit in a line.
func shortened(text string) string {
	if len(text) <= maxText {
		return printable(text)
	}
	return printable(strings.ToValidUTF8(text[:maxText], "")) + "…"
}

// parse parses the YAML of a source. For an empty file it returns nil and no problem.
func (s *source) parse() (*yaml.Node, *Problem) {
	whole := place{src: s}
	tooMuch := func(fix, format string, args ...any) (*yaml.Node, *Problem) {
		p := whole.problem(fix, format, args...)
		return nil, &p
	}
	if len(s.data) > maxFile {
		return tooMuch("split it, and include the parts", "the file is larger than %s", showSize(maxFile))
	}
	values, marks := s.count()
	if values > maxValues {
		return tooMuch("split it, and include the parts", "the file has too many values: %d, and at most %d are read", values, maxValues)
	}
	if p := s.garbage(); p != nil {
		return nil, p
	}
	if p := s.documents(); p != nil {
		return nil, p
	}
	if n := s.json(); n != nil {
		return n, nil
	}
	if marks > maxMarks {
		return tooMuch("split it, and include the parts, or write JSON", "the file has %d quotes, anchors, aliases and tags, and at most %d are read", marks, maxMarks)
	}
	if line := s.keptFrom(); line != 0 {
		p := place{src: s, line: line, col: 1, width: 1}.problem("write JSON, or begin a line with - for each entry of a list", "there is too much in these brackets")
		return nil, &p
	}
	var doc yaml.Node
	err := yaml.Load([]byte(s.data), &doc, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth), loaderlimits.AliasNone())))
	if err != nil {
		p := s.syntax(err)
		return nil, p
	}
	n := &doc
	for n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	if n.Kind == 0 || n.Kind == yaml.DocumentNode || n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, nil
	}
	return n, nil
}

// count returns how many values the file has, by the memory that they take, and how many quotes, anchors, aliases and
// tags. A dash of a list counts for half a value. The parser takes much memory for little text: 2.3 KB for an empty list in a list.
func (s *source) count() (values, marks int) {
	halves := 0
	for i := range len(s.data) {
		switch s.data[i] {
		case ',', '\n', '[', '{':
			halves += 2
		case ':':
			if keyEnds(s.data[:i], s.data[i+1:]) {
				halves += 2
			}
		case '-':
			if wordEnds(s.data[i+1:]) {
				halves++
			}
		case '"', '\'', '&', '*', '!':
			marks++
		}
	}
	return halves / 2, marks
}

// keyEnds reports whether a colon between two texts may end a key: an IPv6 address has colons that do not.
func keyEnds(before, after string) bool {
	return wordEnds(after) || strings.HasSuffix(before, `"`) || strings.HasSuffix(before, "'")
}

// wordEnds reports whether a character that stands before this text is the last of a word.
func wordEnds(after string) bool {
	return after == "" || strings.IndexByte(" \t\r\n,[]{}\"'", after[0]) >= 0
}
