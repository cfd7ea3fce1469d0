package compare

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
)

// A stream has no frames: the whole of it is one answer.
type stream struct {
	out  sink
	name *tally
}

func (p *stream) parse(b []byte) error {
	if !p.out.open {
		p.out.begin(p.name)
	}
	p.out.put(b)
	return nil
}

func (p *stream) eof() {
	if p.out.open {
		p.out.end()
	}
}

// lines makes an answer of each line, including its line end.
type lines struct{ stream }

func (p *lines) parse(b []byte) error {
	for len(b) > 0 && p.out.s.reason == Going {
		if !p.out.open {
			p.out.begin(p.name)
		}
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			p.out.put(b)
			return nil
		}
		p.out.put(b[:n])
		p.out.end()
		b = b[n:]
	}
	return nil
}

// MaxOffset is the largest offset of the length in a frame.
const MaxOffset = 64

// A Length says where and how a frame has its length.
type Length struct {
	Offset, Width int  // Offset is at most MaxOffset; Width is 1, 2, 4 or 8
	Little        bool // the byte order
	Whole         bool // the length includes the header
}

func (l *Length) of(header []byte) (n uint64, err error) {
	var b [8]byte
	field := header[l.Offset:]
	if l.Little {
		copy(b[:], field[:l.Width])
		n = binary.LittleEndian.Uint64(b[:])
	} else {
		copy(b[8-l.Width:], field[:l.Width])
		n = binary.BigEndian.Uint64(b[:])
	}
	if header := uint64(l.Offset + l.Width); l.Whole {
		if n < header {
			return 0, fmt.Errorf("a frame of %d bytes is shorter than its header of %d", n, header)
		}
		n -= header
	}
	if n > math.MaxInt64 {
		return 0, fmt.Errorf("a frame of %d bytes is too long", n)
	}
	return n, nil
}

// lengths reads frames with their length in front. Each frame is an answer, or a part of an answer.
type lengths struct {
	Length
	out    sink
	name   *tally // nil: the frames are parts of an answer that has begun
	header [MaxOffset + 8]byte
	n      int    // bytes of the header that have come
	rest   uint64 // bytes of the body that are still to come
}

func (p *lengths) parse(b []byte) (err error) {
	size := p.Offset + p.Width
	for len(b) > 0 && p.out.s.reason == Going {
		if p.n < size {
			if p.name != nil && !p.out.open {
				p.out.begin(p.name)
			}
			n := copy(p.header[p.n:size], b)
			p.n, b = p.n+n, b[n:]
			if p.n < size {
				return nil
			}
			if p.rest, err = p.of(p.header[:size]); err != nil {
				return err
			}
			if p.name == nil {
				p.out.mark(p.header[:p.Offset])
			} else {
				p.out.put(p.header[:p.Offset])
			}
		}
		n := min(uint64(len(b)), p.rest)
		p.out.put(b[:n])
		b = b[n:]
		if p.rest -= n; p.rest > 0 {
			return nil
		}
		if p.n = 0; p.name == nil {
			p.out.unit()
		} else {
			p.out.end()
		}
	}
	return nil
}

// eof leaves an incomplete frame open: the flow settles it.
func (p *lengths) eof() {}

const (
	// windowBytes is how much of a unit a pattern sees at once. A longer unit is masked window by window.
	windowBytes = 4 << 10
	// A match of at most matchBytes is found anywhere in a unit, however long the unit is.
	matchBytes = 1 << 10
	// maxInstructions is the largest program for the patterns of one name, in instructions of package regexp. In
	// the worst case, each byte takes the time of all instructions.
	maxInstructions = 256
	// instructionCost is the longest time that an instruction takes for a byte, in nanoseconds.
	instructionCost = 20
)

// masked replaces a match in the comparison and in examples.
var masked = []byte("*")

// masks are the masks of a plan.
type masks struct {
	framing  string
	patterns []Mask
	programs map[string]*regexp.Regexp // by name, each with the patterns for all names; "" for other names
	fields   map[Mask]bool
}

func (m *masks) add(mask Mask) error {
	word, of := strings.CutPrefix(mask.Field, m.framing+".")
	isField := of && m.framing == GRPC && word != "" && word == strings.ToLower(word) && !strings.ContainsAny(word, ". *")
	switch {
	case (mask.Pattern == "") == (mask.Field == ""):
		return fmt.Errorf("write either pattern or field")
	case mask.Pattern != "":
		m.patterns = append(m.patterns, mask)
		return checkPattern(mask.Pattern)
	case mask.Field == m.framing+".answer" && mask.Name == "":
		return fmt.Errorf("field %s: also write name, the method that the mask applies to", mask.Field)
	case mask.Field != m.framing+".answer" && !isField:
		return fmt.Errorf("field %q: with framing %s write %s", mask.Field, m.framing, map[bool]string{true: "grpc.answer or grpc.NAME", false: m.framing + ".answer"}[m.framing == GRPC])
	}
	m.fields[mask] = true
	return nil
}

// checkPattern rejects a pattern that is invalid, or would take too long.
func checkPattern(pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("pattern %q: %w: write a regular expression of RE2", pattern, err)
	}
	if n := instructions(re); n > maxInstructions {
		return fmt.Errorf("pattern %q: it has %d instructions, and each can take time for each byte: write at most %d, for example + in place of {2,900}", pattern, n, maxInstructions)
	}
	if re.MatchString("") {
		return fmt.Errorf("pattern %q: it matches the empty text: write a pattern that needs a byte", pattern)
	}
	return nil
}

// instructions returns how many instructions package regexp compiles a pattern to.
func instructions(re *regexp.Regexp) int {
	parsed, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		return 0 // re was compiled from it
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}

// compile makes one expression of the patterns for each name, and returns how many instructions the largest
// expression has.
func (m *masks) compile() (most int, err error) {
	m.programs = make(map[string]*regexp.Regexp)
	for _, of := range append([]Mask{{}}, m.patterns...) {
		var parts []string
		for _, p := range m.patterns {
			if p.Name == "" || p.Name == of.Name {
				parts = append(parts, "(?:"+p.Pattern+")")
			}
		}
		if len(parts) == 0 {
			continue
		}
		re, err := regexp.Compile(strings.Join(parts, "|"))
		if err != nil {
			return 0, fmt.Errorf("mask: %w", err)
		}
		n := instructions(re)
		if n > maxInstructions {
			return 0, fmt.Errorf("mask: the patterns for one name have %d instructions together: write at most %d, with fewer patterns or smaller numbers in {}", n, maxInstructions)
		}
		most = max(most, n)
		m.programs[of.Name] = re
	}
	return most, nil
}

// hidden reports whether answers with this name are not compared.
func (m *masks) hidden(name string) bool {
	return m.fields[Mask{Field: m.framing + ".answer", Name: name}]
}

// pattern returns the expression for answers with this name, or nil.
func (m *masks) pattern(name string) *regexp.Regexp {
	if re, ok := m.programs[name]; ok {
		return re
	}
	return m.programs[""]
}

// field reports whether a gRPC field is masked in answers with this name.
func (m *masks) field(field, name string) bool {
	field = GRPC + "." + field
	return m.fields[Mask{Field: field}] || m.fields[Mask{Field: field, Name: name}]
}

// A window holds the part of a unit that is searched for a pattern.
type window struct {
	mask *regexp.Regexp
	b    []byte
}

func (w *window) begin(mask *regexp.Regexp) { w.mask, w.b = mask, w.b[:0] }

// put adds bytes of the unit, and hands on the bytes in which no further match can begin.
func (w *window) put(o *sink, b []byte) {
	for len(b) > 0 && w.grow(o, len(b)) {
		n := min(len(b), windowBytes-len(w.b))
		w.b, b = append(w.b, b[:n]...), b[n:]
		if len(w.b) == windowBytes {
			w.slide(o, windowBytes-matchBytes)
		}
	}
}

// grow makes room for n more bytes, within the limit of the window.
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

// slide hands on the bytes before cut, and any match that crosses it. Where a full window is cut depends only on the
// bytes of the unit, not on the pieces in which they came.
func (w *window) slide(o *sink, cut int) {
	from := 0
	for _, m := range w.mask.FindAllIndex(w.b, -1) {
		if m[0] >= cut {
			break
		}
		if cut < len(w.b) && m[1] == len(w.b) { // the match may be longer than the window
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
	if len(w.b) > 0 {
		w.slide(o, len(w.b))
	}
}
