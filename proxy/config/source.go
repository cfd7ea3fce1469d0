package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Limits of a configuration. They are far above any real file, and low enough to limit the memory that a hostile file
// can take.
const (
	maxFile   = 16 << 20 // bytes of a file
	maxAll    = 64 << 20 // bytes of all files
	maxValues = 600_000  // in a file: everything that may precede a value; each takes 0.3 to 0.8 KB to parse
	maxMarks  = 400_000  // in a file that is not JSON: quotes, anchors, aliases and tags
	maxMemory = 64 << 20 // bytes taken by values that have been read, aliases followed
	perValue  = 64       // smallest number of bytes taken by a value
	maxDepth  = 32       // levels of nesting
	maxFiles  = 4096
	maxFound  = 1000 // problems
	maxText   = 400  // bytes in a message
	maxWords  = 1000 // candidates for a suggestion
	maxBytes  = 64 << 10

	// maxIncludes bounds the names in all include lists, with the files that they match. A pattern counts as perPattern
	// names, because its whole directory is read.
	maxIncludes = 16 * maxFiles
	perPattern  = 32
)

// A source is a file that is being read.
type source struct {
	name  string // as the user wrote it
	dir   string // absolute, base of relative paths
	data  string
	most  int   // limit of values; 0: maxValues
	lines []int // where each line begins; nil before first use

	// The last look-up: the byte offset of a column in a line. It is kept because a line may be long and have many
	// problems.
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

// excerpt returns the part of a line to show around a column, and the column within this part.
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

// discreet returns the place without its line, which contains a secret.
func (p place) discreet() place {
	p.secret = true
	return p
}

func (p place) rest() string {
	line := p.src.line(p.line)
	return line[p.src.offset(line, p.line, max(p.col, 1)):]
}

// within narrows a place to a part of its text, if the part is near it in the line.
func (p place) within(part string) place {
	rest := p.rest()
	if before, _, ok := strings.Cut(rest[:min(len(rest), 4096)], part); ok && part != "" {
		p.col += utf8.RuneCountInString(before)
		p.width = utf8.RuneCountInString(part)
	}
	return p
}

func (p place) problem(fix, format string, args ...any) *Problem {
	problem := &Problem{Pos: p.pos(), Message: shortened(fmt.Sprintf(format, args...)), Fix: shortened(fix), secret: p.secret}
	if p.src != nil && p.line > 0 && !p.secret {
		problem.line, problem.column = p.src.excerpt(p.line, p.col)
		problem.width = p.width
	}
	return problem
}

func shortened(text string) string {
	if len(text) <= maxText {
		return printable(text)
	}
	return printable(strings.ToValidUTF8(text[:maxText], "")) + "…"
}

// parse parses the YAML of a source. For an empty file it returns nil and no problem.
func (s *source) parse() (*yaml.Node, *Problem) {
	whole, fix := place{src: s}, "split it, and include the parts"
	if s.most != 0 { // a list of endpoints cannot include
		fix = "write fewer endpoints"
	}
	if len(s.data) > maxFile {
		return nil, whole.problem(fix, "the file is larger than %s", showSize(maxFile))
	}
	values, marks := s.count()
	if most := cmp.Or(s.most, maxValues); values > most {
		return nil, whole.problem(fix, "the file has too many values: %d, more than %d", values, most)
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
		return nil, whole.problem(fix+", or write JSON", "the file has too many quotes, anchors, aliases and tags: %d, more than %d", marks, maxMarks)
	}
	if line := s.keptFrom(); line != 0 {
		return nil, place{src: s, line: line, col: 1, width: 1}.problem("write JSON, or begin a line with - for each entry of a list", "these brackets have too much content")
	}
	var doc yaml.Node
	if err := loadYAML(s.data, &doc); err != nil {
		return nil, s.syntax(err)
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

func loadYAML(text string, doc *yaml.Node) error {
	return yaml.Load([]byte(text), doc, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth), loaderlimits.AliasNone())))
}

// count estimates how many values the file has, by the memory that they take, and counts its quotes, anchors, aliases
// and tags. The dash of a list item counts for half a value. The parser may take much memory for little text: 2.3 KB
// for an empty list in a list.
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

// keyEnds reports whether a colon between two texts may end a key. The colons of an IPv6 address do not.
func keyEnds(before, after string) bool {
	return wordEnds(after) || strings.HasSuffix(before, `"`) || strings.HasSuffix(before, "'")
}

// wordEnds reports whether a character in front of this text ends a word.
func wordEnds(after string) bool {
	return after == "" || strings.IndexByte(" \t\r\n,[]{}\"'", after[0]) >= 0
}

// garbage finds the first byte that is not UTF-8, or the first character that is not text.
func (s *source) garbage() *Problem {
	i, what, fix := 0, "", ""
	for i < len(s.data) {
		r, n := utf8.DecodeRuneInString(s.data[i:])
		if r == utf8.RuneError && n == 1 {
			what, fix = fmt.Sprintf("the byte %#x is not UTF-8", s.data[i]), "write the file in UTF-8"
			break
		}
		if control(r) && (r != '\r' || !strings.HasPrefix(s.data[i:], "\r\n")) {
			what, fix = fmt.Sprintf("the character %U is not allowed in text", r), fmt.Sprintf(`write "\u%04x" in quotes`, r)
			break
		}
		i += n
	}
	if what == "" {
		return nil
	}
	before := s.data[:i]
	start := strings.LastIndexByte(before, '\n') + 1
	at := place{src: s, line: 1 + strings.Count(before, "\n"), col: 1 + utf8.RuneCountInString(before[start:]), width: 1}
	return at.problem(fix, "%s", what)
}

// documents finds the --- that begins a second document, or a %TAG. A --- before the first document is allowed.
func (s *source) documents() *Problem {
	begun, number := false, 0
	for line := range strings.Lines(s.data) {
		number++
		text := strings.TrimRight(line, " \t\r\n")
		switch {
		case !begun && strings.HasPrefix(line, "%TAG"): // the parser repeats its prefix in each tag
			return place{src: s, line: number, col: 1, width: 4}.problem("leave this line out", "%%TAG is not allowed: tags have no meaning here")
		case text == "---" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "---\t"):
			if begun {
				return place{src: s, line: number, col: 1, width: 3}.problem("leave this line out, or include the rest as another file", "a file is one document: a second one begins here")
			}
			begun = true
		case text != "" && !strings.HasPrefix(strings.TrimLeft(text, " \t"), "#") && !strings.HasPrefix(text, "%"):
			begun = true
		}
	}
	return nil
}

// control reports whether r is not text in YAML, or ends a line in YAML alone.
func control(r rune) bool {
	switch r {
	case '\t', '\n':
		return false
	case '\u2028', '\u2029', 0xfffe, 0xffff:
		return true
	}
	return r < ' ' || r >= 0x7f && r < 0xa0
}

// syntax turns an error of the YAML parser into a problem. It returns nil if there was no document at all.
func (s *source) syntax(err error) *Problem {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return place{src: s}.problem("", "%v", err)
	}
	if strings.Contains(load.Message, "no documents") {
		return nil
	}
	at := place{src: s, line: load.Mark.Line, col: load.Mark.Column, width: 1}
	if p := s.star(load.Message, at); p != nil {
		return p
	}
	if p := s.unclosed(load); p != nil {
		return p
	}
	if before, _, _ := strings.Cut(s.line(at.line), at.rest()); strings.Contains(load.Message, "'-'") && strings.HasPrefix(strings.TrimLeft(before, " "), "- ") {
		return at.problem("leave it out, or write a group in braces: {address: …, weight: …}", "there is text after the value")
	}
	message := load.Message
	if load.ContextMsg != "" {
		message = load.ContextMsg + ": " + message
	}
	fix, noToken := syntaxFix(message, at), "no value begins with this character"
	if strings.HasPrefix(at.rest(), "\t") {
		noToken = "a tab cannot indent"
	}
	for _, known := range []struct{ message, words string }{
		{"did not find expected ',' or ']'", "a , or ] is missing before this"},
		{"did not find expected ',' or '}'", "a , or } is missing before this"},
		{"did not find expected node content", "a value is missing before this"},
		{"did not find expected key", "a key is expected here"},
		{"found character that cannot start any token", noToken},
	} {
		if load.Message == known.message {
			message = known.words
			if from := load.ContextMark.Line; strings.Contains(load.ContextMsg, "flow") && from < at.line {
				message += fmt.Sprintf(": the bracket is in line %d", from)
			}
		}
	}
	return at.problem(fix, "%s", printable(strings.TrimPrefix(message, "yaml: ")))
}

// unclosed returns the problem of a bracket that is still open at the end of the text, or nil.
func (s *source) unclosed(load *yaml.LoadError) *Problem {
	if !strings.HasPrefix(load.ContextMsg, "while parsing a flow") || s.line(load.Mark.Line) != "" {
		return nil
	}
	if strings.Contains(load.Message, "node content") { // with a value the parser names the bracket
		if err := loadYAML(s.data+"\n 0", new(yaml.Node)); !errors.As(err, &load) {
			return nil
		}
	}
	at := place{src: s, line: load.ContextMark.Line, col: load.ContextMark.Column, width: 1}
	switch rest := at.rest(); {
	case strings.HasPrefix(rest, "["):
		return at.problem("write ] at its end", "this [ is not closed")
	case strings.HasPrefix(rest, "{"):
		return at.problem("write } at its end", "this { is not closed")
	}
	return nil
}

// starWord matches text that begins with *. To YAML it is an alias, but no anchor has such a
// name.
var starWord = regexp.MustCompile(`^\*(?:[^A-Za-z0-9_ ,\[\]{}][^ ,\[\]{}]*)?`)

// star turns the error about text that begins with *, such as *.example.com, into a problem. It returns nil for any
// other error.
func (s *source) star(message string, at place) *Problem {
	if strings.Contains(message, "alphabetic or numeric") {
		at.col-- // the place is behind the *
	} else if !strings.Contains(message, "unknown anchor") {
		return nil
	}
	word := starWord.FindString(at.rest())
	if word == "" || word == "*" && !strings.Contains(message, "alphabetic") {
		return nil
	}
	at.width = utf8.RuneCountInString(word)
	return at.problem(fmt.Sprintf("write it in quotes: %q", word), "without quotes a word that begins with * is an alias")
}

// bracketed matches an IPv6 address with its port, which is a list to YAML.
var bracketed = regexp.MustCompile(`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[^\]]*)?\]:[0-9]+`)

// bracketedFix returns the fix for an unquoted IPv6 address at or behind a place. It is "" if
// there is none.
func bracketedFix(at place) string {
	if found := bracketed.FindString(at.rest()); found != "" {
		return fmt.Sprintf("write it in quotes: %q", found)
	}
	return ""
}

func syntaxFix(message string, at place) string {
	if fix := flowFix(message, at); fix != "" {
		return fix
	}
	if fix := bracketedFix(place{src: at.src, line: at.line, col: 1}); fix != "" && strings.Contains(message, "expected key") {
		return fix
	}
	text := at.src.line(at.line)
	for _, known := range []struct{ message, fix string }{
		{"mapping values are not allowed", "write text with a colon in quotes, or begin a new line"},
		{"single document", "leave out ... and the rest, or include the rest as another file"},
		{"incompatible YAML document", "leave this line out"},
		{"unknown anchor", "define the anchor above, with &, or write * and its name in quotes if it is text"},
		{"while scanning an anchor", "write it in quotes: & has a special meaning"},
		{"exceeded max depth", "write fewer levels"},
		{"did not find expected ','", "write it, or write the text in quotes"},
		{"unexpected end of stream", "close the quotes"},
		{"did not find expected", "indent it like the lines above"},
	} {
		if strings.Contains(message, known.message) {
			return known.fix
		}
	}
	if strings.HasPrefix(strings.TrimLeft(text, " "), "\t") {
		return "indent with spaces instead of tabs"
	}
	if strings.Contains(message, "cannot start any token") {
		return "write it in quotes"
	}
	return ""
}

// A list or a mapping in brackets may be the key of another mapping. The parser keeps all tokens of the brackets until
// it knows that they are no key. It knows this at once for the value of a key, but not for the outermost brackets, nor
// for brackets within a list. A token takes 600 bytes, and all tokens are copied when the buffer grows.

// maxKept limits the tokens that the parser keeps: 10,000 endpoints with four keys.
const maxKept = 240_000

// A bracketScanner counts the tokens that the parser keeps. It knows only as much YAML as it needs. If it is wrong, it
// counts too many.
type bracketScanner struct {
	depth   int    // of brackets
	keeps   int    // depth from which tokens are kept, at least 1
	half    int    // twice the number of kept tokens
	quote   byte   // quote character of the text being read, or 0
	line    string // the rest of the line
	last    byte   // the previous character in the line, or 0
	solid   byte   // the previous character other than a space
	between bool   // the line has an anchor or a tag, which may stand before brackets
}

// keptFrom returns the line, counted from 1, in which the parser would keep too many tokens, or 0.
func (s *source) keptFrom() (number int) {
	c := &bracketScanner{keeps: 1}
	for line := range strings.Lines(s.data) {
		number++
		c.line, c.last, c.solid, c.between = line, 0, 0, strings.ContainsAny(line, "&!")
		for c.line != "" {
			if c.next(); c.half > 2*maxKept {
				return number
			}
		}
	}
	return 0
}

func (c *bracketScanner) next() {
	at := c.line[0]
	c.line = c.line[1:]
	if c.depth >= c.keeps {
		c.half += c.weight(at)
	}
	switch {
	case c.quote != 0:
		if at == '\\' && c.quote == '"' && c.line != "" {
			c.line = c.line[1:]
		} else if at == c.quote {
			c.quote = 0
		}
	case at == '#' && (c.last == 0 || strings.IndexByte(" \t,:?[]{}\"'", c.last) >= 0):
		c.line = ""
	case c.depth > 0 && (at == '"' || at == '\''):
		c.quote = at
	case at == '[' || at == '{':
		c.open()
	case c.depth > 0 && (at == ']' || at == '}'):
		c.depth--
	}
	if c.depth < c.keeps {
		c.half = 0
	}
	if c.last = at; at != ' ' && at != '\t' {
		c.solid = at
	}
}

// open reads an opening bracket. Outside of other brackets it is a bracket only where a
// value begins.
func (c *bracketScanner) open() {
	if c.depth == 0 {
		if c.solid != 0 && strings.IndexByte("-:?", c.solid) < 0 && !c.between {
			return
		}
		if c.keeps = 1; c.solid == ':' {
			c.keeps = 2
		}
	}
	c.depth++
}

// weight returns twice the number of tokens that a character stands for, judging by the text after it.
func (c *bracketScanner) weight(at byte) int {
	ends := wordEnds(c.line)
	switch at {
	case ',', '[', '{': // includes the closing bracket
		return 4
	case ':':
		if ends || c.last == '"' || c.last == '\'' {
			return 6
		}
	case '-', '?':
		if ends {
			return 2
		}
	case '&', '*', '!':
		return 2
	case '"', '\'':
		return 1
	}
	return 0
}
