package compare

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

const (
	// windowBytes is how much of a unit a pattern sees at once. A unit that is longer is masked window by window.
	windowBytes = 4 << 10
	// matchBytes is the longest match that is found wherever it lies in a unit, however long that is.
	matchBytes = 1 << 10
	// patternBytes is the longest pattern.
	patternBytes = 1 << 10
)

// masked is what a match is compared as, and shown as in examples.
var masked = []byte("*")

// answerField is the field of a whole answer, in each framing.
const answerField = ".answer"

// defaults are the fields that are masked without being named.
var defaults = map[string][]string{
	HTTP1:    {"date"},
	HTTP2:    {"date"},
	GRPC:     {"date"},
	Postgres: {"server_version", "key_data", "authentication", "oid"},
}

// fields are those of each framing beside the answer. A * is any word.
var fields = map[string][]string{
	HTTP1: {"*"}, // a field of the head
	HTTP2: {"*"},
	GRPC:  {"*"}, // of the trailers too
	Postgres: {
		"server_version", "parameter_status", "parameter_*", "key_data", "authentication", "oid",
		"notice", "error_location", "error_text", "command_tag",
	},
}

// Fields returns the fields that a mask may name with a framing. A * in one is any word.
func Fields(framing string) (list []string) {
	for _, f := range append([]string{"answer"}, fields[framing]...) {
		list = append(list, framing+"."+f)
	}
	return list
}

// add checks a mask.
func (m *masks) add(mask Mask) error {
	framing := m.framing
	if framing == Resp || framing == Postgres {
		mask.Name = commandName(mask.Name)
	}
	switch {
	case (mask.Pattern == "") == (mask.Field == ""):
		return fmt.Errorf("write either pattern or field")
	case mask.Pattern != "":
		if err := checkPattern(mask.Pattern); err != nil {
			return err
		}
		m.patterns = append(m.patterns, mask)
		return nil
	}
	if !slices.ContainsFunc(Fields(framing), func(f string) bool { return isField(f, mask.Field) }) {
		return fmt.Errorf("field %q: with framing %s write one of %s", mask.Field, framing, strings.Join(Fields(framing), ", "))
	}
	if mask.Field == framing+answerField && mask.Name == "" {
		return fmt.Errorf("field %s: write the name of the requests whose answers are not compared as well", mask.Field)
	}
	m.setField(mask)
	return nil
}

// commandName returns the name as reports have it: commands are in upper case, names that stand for
// others as they are here.
func commandName(name string) string {
	for _, special := range []string{"startup", "push", "other", "unknown", "SSLRequest", "GSSENCRequest"} {
		if strings.EqualFold(name, special) {
			return special
		}
	}
	return strings.ToUpper(name)
}

func (m *masks) setField(mask Mask) {
	if m.fields == nil {
		m.fields = make(map[Mask]bool)
	}
	m.fields[mask] = true
}

// isField reports whether a field is of the form f.
func isField(f, field string) bool {
	if begin, any := strings.CutSuffix(f, "*"); any {
		word, ok := strings.CutPrefix(field, begin)
		return ok && word != "" && word == strings.ToLower(word) && !strings.ContainsAny(word, ". *")
	}
	return f == field
}

// checkPattern refuses a pattern that is wrong, or that would not be found in long frames.
func checkPattern(pattern string) error {
	if len(pattern) > patternBytes {
		return fmt.Errorf("pattern of %d bytes: write at most %d", len(pattern), patternBytes)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("pattern %q: %w: write a regular expression of RE2", pattern, err)
	}
	if shortest := matchLength(re); shortest > matchBytes {
		return fmt.Errorf("pattern %q: its matches have %d bytes or more: write one of at most %d bytes", pattern, shortest, matchBytes)
	}
	prog, err := instructions(pattern)
	if err != nil {
		return fmt.Errorf("pattern %q: %w: write a regular expression of RE2", pattern, err)
	}
	if n := len(prog.Inst); n > maxInstructions {
		return fmt.Errorf("pattern %q: it has %d instructions, of which each may take its time for each byte: write at most %d, such as + for {2,900}", pattern, n, maxInstructions)
	}
	if regexp.MustCompile(pattern).MatchString("") {
		return fmt.Errorf("pattern %q: it matches nothing at all: write one that needs a byte", pattern)
	}
	return nil
}

// matchLength returns the least bytes of a match.
func matchLength(re *syntax.Regexp) (n int) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture, syntax.OpPlus:
		return matchLength(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min * matchLength(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			n += matchLength(sub)
		}
	case syntax.OpAlternate:
		n = matchLength(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			n = min(n, matchLength(sub))
		}
	}
	return n
}

// compile makes one expression of the patterns for each name.
func (m *masks) compile() error {
	join := func(name string) (*program, error) {
		var parts []string
		for _, p := range m.patterns {
			if p.Name == "" || p.Name == name {
				parts = append(parts, "(?:"+p.Pattern+")")
			}
		}
		if len(parts) == 0 {
			return nil, nil
		}
		return newProgram(strings.Join(parts, "|"))
	}
	var err error
	if m.all, err = join(""); err != nil {
		return fmt.Errorf("mask: %w", err)
	}
	m.named = make(map[string]*program)
	for _, p := range m.patterns {
		if m.named[p.Name], err = join(p.Name); err != nil {
			return fmt.Errorf("mask: %w", err)
		}
	}
	return nil
}

// hidden reports whether answers to requests of a name are not compared.
func (m *masks) hidden(name string) bool {
	return len(m.fields) > 0 && m.fields[Mask{Field: m.framing + answerField, Name: name}]
}

// pattern returns the expression for answers to requests of a name; nil is none.
func (m *masks) pattern(name string) *program {
	if len(m.patterns) == 0 {
		return nil
	}
	if re, ok := m.named[name]; ok {
		return re
	}
	return m.all
}

// field reports whether a field is masked in answers to requests of a name.
func (m *masks) field(field []byte, name string) bool {
	return len(m.fields) > 0 && (m.fields[Mask{Field: string(field)}] || m.fields[Mask{Field: string(field), Name: name}])
}

// fieldText is field for a constant.
func (m *masks) fieldText(field, name string) bool {
	return len(m.fields) > 0 && (m.fields[Mask{Field: field}] || m.fields[Mask{Field: field, Name: name}])
}

// A window is the bytes of a unit in which a pattern is searched for.
type window struct {
	mask *program
	b    []byte
}

func (w *window) begin(mask *program) { w.mask, w.b = mask, w.b[:0] }

// put adds bytes of the unit, and hands on those in which no further match can begin.
func (w *window) put(o *sink, b []byte) {
	for len(b) > 0 && w.grow(o, len(b)) {
		n := min(len(b), windowBytes-len(w.b))
		w.b, b = append(w.b, b[:n]...), b[n:]
		if len(w.b) == windowBytes {
			w.slide(o)
		}
	}
}

// grow makes room for n more bytes, as far as the window goes.
func (w *window) grow(o *sink, n int) bool {
	need := min(len(w.b)+n, windowBytes)
	if need <= cap(w.b) {
		return true
	}
	size := 256
	for size < need {
		size *= 2
	}
	if !o.s.purse.take(size) {
		o.s.stop(Full)
		return false
	}
	o.s.purse.give(cap(w.b))
	w.b = append(make([]byte, 0, size), w.b...)
	return true
}

// slide hands on the bytes of a full window but for the last, in which a match may go on. Where
// they end depends on the unit's bytes alone, and not on the pieces in which they came.
func (w *window) slide(o *sink) {
	cut := windowBytes - matchBytes
	from := 0
	for _, m := range w.mask.find(o.s, w.b) {
		if m[0] >= cut {
			break
		}
		if m[1] == len(w.b) { // it may be longer than the window has bytes
			o.s.report.windowed.Add(1)
		}
		o.emit(w.b[from:m[0]])
		o.emit(masked)
		from = m[1]
	}
	if from < cut {
		o.emit(w.b[from:cut])
		from = cut
	}
	w.b = append(w.b[:0], w.b[from:]...)
}

// flush hands on the rest of the unit.
func (w *window) flush(o *sink) {
	if len(w.b) == 0 {
		return
	}
	from := 0
	for _, m := range w.mask.find(o.s, w.b) {
		o.emit(w.b[from:m[0]])
		o.emit(masked)
		from = m[1]
	}
	o.emit(w.b[from:])
	w.b = w.b[:0]
}
