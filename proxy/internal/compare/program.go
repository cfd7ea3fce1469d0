package compare

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// maxInstructions is the largest program of the patterns for one name, in instructions of package regexp. It bounds the time of a
// byte, which may be that of them all.
const maxInstructions = 256

// instructionCost is the longest time of a byte for each instruction, in nanoseconds.
const instructionCost = 12

// A program is the patterns for a name.
type program struct {
	*regexp.Regexp
	first [256]bool // bytes with which a match may begin
	cost  int       // the longest time of a byte, in nanoseconds
}

// newProgram compiles patterns that are joined.
func newProgram(pattern string) (*program, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	prog, err := instructions(pattern)
	if err != nil {
		return nil, err
	}
	if n := len(prog.Inst); n > maxInstructions {
		return nil, fmt.Errorf("the patterns for one name have %d instructions together: write at most %d, with fewer patterns or smaller numbers in {}", n, maxInstructions)
	}
	p := &program{Regexp: re, cost: len(prog.Inst) * instructionCost}
	if !p.begins(prog, make([]bool, len(prog.Inst)), prog.Start) {
		for i := range p.first {
			p.first[i] = true
		}
	}
	return p, nil
}

// instructions returns the program of a pattern as package regexp compiles it.
func instructions(pattern string) (*syntax.Prog, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return syntax.Compile(re.Simplify())
}

// begins notes the bytes with which a match may begin from an instruction on. It returns false if there may be one without a byte.
func (p *program) begins(prog *syntax.Prog, seen []bool, pc int) bool {
	if seen[pc] {
		return true
	}
	seen[pc] = true
	i := &prog.Inst[pc]
	switch i.Op {
	case syntax.InstMatch:
		return false
	case syntax.InstFail:
		return true
	case syntax.InstAlt, syntax.InstAltMatch:
		return p.begins(prog, seen, int(i.Out)) && p.begins(prog, seen, int(i.Arg))
	case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
		return p.begins(prog, seen, int(i.Out))
	}
	for b := range utf8.RuneSelf {
		p.first[b] = p.first[b] || matchRune(i, rune(b))
	}
	plain := i.Op != syntax.InstRuneAny && i.Op != syntax.InstRuneAnyNotNL && syntax.Flags(i.Arg)&syntax.FoldCase == 0
	for _, r := range i.Rune {
		plain = plain && r < utf8.RuneSelf
	}
	for b := utf8.RuneSelf; b < len(p.first); b++ {
		p.first[b] = p.first[b] || !plain
	}
	return true
}

// matchRune reports whether an instruction takes a rune.
func matchRune(i *syntax.Inst, r rune) bool {
	switch i.Op {
	case syntax.InstRuneAny:
		return true
	case syntax.InstRuneAnyNotNL:
		return r != '\n'
	}
	return i.MatchRune(r)
}

// find returns the matches in a window, and has the session spend the time. Where no byte may begin a match it does not
// search.
func (p *program) find(s *Session, b []byte) [][]int {
	s.spendBytes(0, len(b), searchCost)
	if s.reason != Going || !p.mayMatch(b) {
		return nil
	}
	if s.cost.meter == nil {
		return p.FindAllIndex(b, -1)
	}
	began := s.cost.meter.clock()
	found := p.FindAllIndex(b, -1)
	s.spend(int(min(s.cost.meter.clock()-began, int64(len(b)*p.cost))))
	return found
}

func (p *program) mayMatch(b []byte) bool {
	for _, c := range b {
		if p.first[c] {
			return true
		}
	}
	return false
}
