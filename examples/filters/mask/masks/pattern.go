package masks

import (
	"errors"
	"fmt"
	"math"
	"regexp/syntax"
)

// Bounds of a pattern.
const (
	maxPattern   = 256  // bytes of a match
	maxPositions = 1024 // characters of a pattern, each as often as its counts repeat it
)

// Errors of patterns. A pattern is a regular expression of RE2, with matches of at most 256 bytes. It works on
// bytes: a dot, or a class with ^, matches a byte above \x7f, too. All bytes of a match are masked,
// wherever it begins, so greedy and other repetitions make no difference.
var (
	// ErrPattern: it is not a regular expression of RE2.
	ErrPattern = errors.New("not a regular expression of RE2 (https://golang.org/s/re2syntax)")
	// ErrUnbounded: its matches have no bound, or may be longer than 256 bytes.
	ErrUnbounded = errors.New("its matches may be longer than 256 bytes: use counts such as {1,64} instead of * and +")
	// ErrEmpty: it matches the empty text.
	ErrEmpty = errors.New("it matches the empty text: make it match at least one character")
	// ErrAssertion: it depends on bytes outside of the match.
	ErrAssertion = errors.New("^, $ and \\b depend on bytes outside of the match: do without them")
	// ErrNotASCII: it has characters outside of ASCII.
	ErrNotASCII = errors.New(`it has characters outside of ASCII: write their UTF-8 bytes, such as \xc3\xa4`)
	// ErrLarge: it is too large.
	ErrLarge = errors.New("it is too large: use smaller counts, or fewer patterns")
)

// A pattern is an operator's pattern as an automaton without empty transitions. Its positions are the
// characters of the expression.
type pattern struct {
	longest   int        // bytes of the longest match
	positions []position // the first is the beginning, which matches nothing
	begins    [256]bool  // bytes with which a match begins
	first     byte       // the only byte with which a match begins
	onlyFirst bool       // there is only one such byte
}

type position struct {
	bytes  [256]bool // bytes that the position matches
	next   []uint16  // positions that may follow
	accept bool      // a match may end here
}

func compile(text string) (*pattern, error) {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return nil, ErrNotASCII
		}
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrPattern, err)
	}
	shortest, longest, err := lengths(re)
	switch {
	case err != nil:
		return nil, err
	case longest > maxPattern:
		return nil, ErrUnbounded
	case shortest == 0:
		return nil, ErrEmpty
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrPattern, err)
	}
	p := &pattern{longest: longest}
	if err := p.build(prog); err != nil {
		return nil, err
	}
	return p, nil
}

// lengths returns the least and the greatest length of a match in bytes.
func lengths(re *syntax.Regexp) (least, most int, err error) {
	switch re.Op {
	case syntax.OpNoMatch, syntax.OpEmptyMatch:
		return 0, 0, nil
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune), nil
	case syntax.OpCharClass, syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		return 1, 1, nil
	case syntax.OpCapture:
		return lengths(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return 0, 0, ErrUnbounded
	case syntax.OpQuest:
		_, most, err = lengths(re.Sub[0])
		return 0, most, err
	case syntax.OpRepeat:
		if re.Max < 0 {
			return 0, 0, ErrUnbounded
		}
		least, most, err = lengths(re.Sub[0])
		return least * re.Min, bounded(most * re.Max), err
	case syntax.OpConcat, syntax.OpAlternate:
		return lengthsOf(re)
	}
	return 0, 0, ErrAssertion
}

// lengthsOf does what lengths does, for a sequence of expressions, or for alternatives.
func lengthsOf(re *syntax.Regexp) (least, most int, err error) {
	if re.Op == syntax.OpAlternate {
		least = math.MaxInt
	}
	for _, sub := range re.Sub {
		l, m, err := lengths(sub)
		if err != nil {
			return 0, 0, err
		}
		if re.Op == syntax.OpConcat {
			least, most = least+l, bounded(most+m)
		} else {
			least, most = min(least, l), max(most, m)
		}
	}
	return least, most, nil
}

// bounded keeps products of lengths small.
func bounded(n int) int { return min(n, maxPattern+1) }

// build makes the positions from a compiled expression.
func (p *pattern) build(prog *syntax.Prog) error {
	of := make(map[uint32]uint16) // position by instruction
	p.positions = append(p.positions, position{})
	for i := range prog.Inst {
		in := &prog.Inst[i]
		switch in.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			var at position
			for c := range at.bytes {
				at.bytes[c] = in.MatchRune(rune(c))
			}
			of[uint32(i)] = uint16(len(p.positions))
			p.positions = append(p.positions, at)
		}
	}
	if len(p.positions) > maxPositions {
		return ErrLarge
	}
	p.follow(prog, 0, uint32(prog.Start), of, make(map[uint32]bool))
	for i, at := range of {
		p.follow(prog, at, prog.Inst[i].Out, of, make(map[uint32]bool))
	}
	n := 0
	for _, q := range p.positions[0].next {
		for c, is := range p.positions[q].bytes {
			if is && !p.begins[c] {
				p.begins[c], p.first = true, byte(c)
				n++
			}
		}
	}
	p.onlyFirst = n == 1
	return nil
}

// follow adds the positions that may follow the position at.
func (p *pattern) follow(prog *syntax.Prog, at uint16, pc uint32, of map[uint32]uint16, seen map[uint32]bool) {
	if seen[pc] {
		return
	}
	seen[pc] = true
	switch in := &prog.Inst[pc]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		p.follow(prog, at, in.Out, of, seen)
		p.follow(prog, at, in.Arg, of, seen)
	case syntax.InstCapture, syntax.InstNop:
		p.follow(prog, at, in.Out, of, seen)
	case syntax.InstMatch:
		p.positions[at].accept = true
	case syntax.InstFail:
	default:
		if q, ok := of[pc]; ok {
			p.positions[at].next = append(p.positions[at].next, q)
		}
	}
}

// A patternScanner finds matches of a pattern. It is at several positions at once, and knows for each the first
// byte of the earliest match that has come there.
type patternScanner struct {
	*pattern
	seen      int64 // bytes before the present scan
	now, next []begun
	in        []uint32 // by position: its index in next, if turn says that it is of this turn
	turn      []uint32
	turns     uint32
	masked    int64 // the end of the last match
}

// A begun is a match that has begun.
type begun struct {
	at   uint16 // position of the last byte
	from int64
}

func (p *pattern) newScanner() *patternScanner {
	n := len(p.positions)
	return &patternScanner{pattern: p, now: make([]begun, 0, n), next: make([]begun, 0, n), in: make([]uint32, n), turn: make([]uint32, n)}
}

func (s *patternScanner) scan(b []byte, at int, f *found) (undecided int) {
	for i := at; i < len(b); i++ {
		if len(s.now) == 0 {
			if i = s.beginning(b, i); i == len(b) {
				break
			}
		}
		s.step(b, i, s.seen+int64(i-at), f)
	}
	s.seen += int64(len(b) - at)
	from := s.seen
	for _, m := range s.now {
		from = min(from, m.from)
	}
	return int(s.seen - from)
}

// beginning returns the next index at which a match may begin.
func (s *patternScanner) beginning(b []byte, i int) int {
	if s.onlyFirst {
		return i + indexByte(b[i:], s.first)
	}
	for i < len(b) && !s.begins[b[i]] {
		i++
	}
	return i
}

// step reads b[i], the byte with number at of the stream.
func (s *patternScanner) step(b []byte, i int, at int64, f *found) {
	c := b[i]
	if s.turns++; s.turns == 0 {
		clear(s.turn)
		s.turns = 1
	}
	s.next = s.next[:0]
	ends := int64(math.MaxInt64) // the beginning of the longest match that ends here
	for _, m := range s.now {
		ends = min(ends, s.from(&m, c))
	}
	if s.begins[c] {
		ends = min(ends, s.from(&begun{0, at}, c))
	}
	s.now, s.next = s.next, s.now
	if ends == math.MaxInt64 {
		return
	}
	if ends >= s.masked {
		f.matches++
	}
	from := i - int(at-ends)
	if again := int(min(s.masked, at) - ends); again > 0 { // some of these bytes are masked already
		var none found
		none.cover(b, from, from+again)
		from += again
	}
	f.cover(b, from, i+1)
	s.masked = at + 1
}

// from continues a match by the byte c, and returns its beginning if it is complete.
func (s *patternScanner) from(m *begun, c byte) (complete int64) {
	complete = math.MaxInt64
	for _, q := range s.positions[m.at].next {
		if !s.positions[q].bytes[c] {
			continue
		}
		if s.positions[q].accept {
			complete = m.from
		}
		if s.turn[q] != s.turns {
			s.turn[q] = s.turns
			s.in[q] = uint32(len(s.next))
			s.next = append(s.next, begun{q, m.from})
		} else if n := &s.next[s.in[q]]; m.from < n.from {
			n.from = m.from
		}
	}
	return complete
}

func (s *patternScanner) settle([]byte, *found) {}
