package masks

import "encoding/binary"

// Lengths of the parts of an address (RFC 5321, 4.5.3.1).
const (
	maxLocal  = 64
	maxDomain = 253
	leastTop  = 2 // letters with which a label after the first must begin
)

// An emailScanner finds addresses: characters of a local part, @, and a domain. A label of the domain after the
// first must begin with two letters. Domain characters that directly follow an address belong to it.
type emailScanner struct {
	state  emailState
	run    int // characters of a local part directly before the next byte, at most maxLocal
	local  int // length of the local part of a possible address
	domain int // bytes of its domain so far
	label  int // bytes of the last label
	top    int // letters at the beginning of that label
	dotted bool
}

type emailState uint8

const (
	noAddress emailState = iota
	inDomain             // after @, not yet known to be an address
	inTail               // in the domain of an address
)

func isDomain(c byte) bool { return isDigit(c) || isLetter(c) || c == '-' || c == '.' }

// localSet has the characters of local parts.
var localSet = func() (set [256]bool) {
	for c := range set {
		set[c] = isDomain(byte(c)) || c == '_' || c == '%' || c == '+'
	}
	return set
}()

func (s *emailScanner) scan(b []byte, at int, f *found) (undecided int) {
	for i := at; i < len(b); {
		switch s.state {
		case noAddress:
			n := indexByte(b[i:], '@')
			if n == len(b)-i {
				s.run = s.runOf(b[i:])
				i = len(b)
				break
			}
			run := s.runOf(b[i : i+n])
			i += n + 1
			if s.run = 0; run > 0 {
				*s = emailScanner{state: inDomain, local: run}
			}
		case inDomain:
			if !s.domainByte(b[i]) {
				*s = emailScanner{run: min(maxLocal, s.domain)}
				break
			}
			if i++; s.dotted && s.top == leastTop && s.label == leastTop {
				s.found(b, i, f)
			}
		default:
			i = s.tail(b, i, f)
		}
	}
	switch s.state {
	case noAddress:
		return s.run
	case inDomain:
		return s.local + 1 + s.domain
	}
	return 0
}

// indexByte returns how many bytes come before the first c, or len(b) if there is none.
func indexByte(b []byte, c byte) (n int) {
	for ; n+8 <= len(b); n += 8 {
		if z := zeros(binary.LittleEndian.Uint64(b[n:]) ^ uint64(c)*each); z != 0 {
			return n + first(z)
		}
	}
	for n < len(b) && b[n] != c {
		n++
	}
	return n
}

// runOf returns how many characters of a local part b ends with, including characters before b.
func (s *emailScanner) runOf(b []byte) int {
	n := 0
	for n < min(len(b), maxLocal) && localSet[b[len(b)-1-n]] {
		n++
	}
	if n == len(b) {
		n = min(maxLocal, n+s.run)
	}
	return n
}

// domainByte takes the next byte of a domain, or returns false if it is none.
func (s *emailScanner) domainByte(c byte) bool {
	switch {
	case s.domain == maxDomain || !isDomain(c) || c == '.' && s.label == 0:
		return false
	case c == '.':
		s.label, s.top, s.dotted = 0, 0, true
	default:
		if isLetter(c) && s.top == s.label {
			s.top++
		}
		s.label++
	}
	s.domain++
	return true
}

// found masks the address that ends before i so far.
func (s *emailScanner) found(b []byte, i int, f *found) {
	f.matches++
	at := i - s.domain
	f.cover(b, at-1-s.local, at-1)
	for ; at < i; at++ {
		if at < 0 { // a dash or a dot would not have been masked
			f.late++
		} else if isDigit(b[at]) || isLetter(b[at]) {
			b[at], f.masked = by, true
		}
	}
	*s = emailScanner{state: inTail}
}

// tail masks the rest of a domain from i on, and returns where it ends.
func (s *emailScanner) tail(b []byte, i int, f *found) int {
	for ; i < len(b) && isDomain(b[i]); i++ {
		if b[i] != '.' && b[i] != '-' {
			b[i], f.masked = by, true
		}
	}
	if i < len(b) {
		s.state = noAddress
	}
	return i
}

func (s *emailScanner) settle([]byte, *found) {}
