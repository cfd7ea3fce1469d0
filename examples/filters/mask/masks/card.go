package masks

import "encoding/binary"

// Lengths of card numbers, in digits.
const (
	leastDigits = 13
	mostDigits  = 19
	clearDigits = 4 // left unmasked
)

// digitRing is how many digits are remembered, a power of 2: at least mostDigits and the digit before them.
const digitRing = 32

// A cardScanner finds card numbers. A chain is digits in a row, with at most single separators between them.
// Where a group of digits ends, the scanner looks whether the last 13 to 19 digits are a number that begins
// where a group does. To get Luhn's sum of any digits of the chain, it keeps two running sums: one doubles
// every even digit, the other every odd digit.
type cardScanner struct {
	seen   int64            // bytes before the present scan
	digits uint32           // digits read so far; it may wrap
	chain  uint32           // digits of the chain, at most digitRing
	starts uint32           // digits at which a number may begin: bit i is for digit i modulo digitRing
	at     [digitRing]int64 // where they are in the stream
	sums   [digitRing][2]int32
	from   uint32 // the digits masked last: from, from+1 and so on, before to
	to     uint32
	after  afterDigit
	ended  bool // the group was ended by settle, for lack of more bytes
}

type afterDigit uint8

const (
	afterOther     afterDigit = iota // not in a chain
	afterADigit                      // in a group
	afterSeparator                   // after one separator in a chain
)

func isDigit(c byte) bool  { return c-'0' < 10 }
func isLetter(c byte) bool { return c|0x20-'a' < 26 }

func (s *cardScanner) scan(b []byte, at int, f *found) (undecided int) {
	for i := at; i < len(b); i++ {
		if s.after == afterOther {
			if i += beforeChain(b[i:]); i == len(b) {
				break
			}
		}
		c := b[i]
		switch {
		case isDigit(c):
			s.digit(c-'0', s.seen+int64(i-at))
		case s.after == afterSeparator:
			s.after = afterOther
		default:
			if !s.ended {
				s.groupEnds(b, at, f)
			}
			if s.after = afterOther; c == ' ' || c == '-' {
				s.after = afterSeparator
			}
		}
	}
	s.seen += int64(len(b) - at)
	return s.undecided()
}

// beforeChain returns how many bytes come before the first chain that may have enough digits for a number. b
// begins outside of a chain.
func beforeChain(b []byte) (n int) {
	for n+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[n:])
		x := w ^ '0'*each // digits become numbers below 10
		digits := (x - 10*each) &^ x & high
		if digits == 0 {
			n += 8
			continue
		}
		n += first(digits)
		if n+8 > len(b) {
			break
		}
		w = binary.LittleEndian.Uint64(b[n:])
		others := notInChain(w)
		if others == 0 {
			if short := shortChain(b[n:]); short > 0 {
				n += short
				continue
			}
			return n
		}
		n += first(others) // so the chain has at most seven digits here
	}
	for n < len(b) {
		if !isDigit(b[n]) {
			n++
			continue
		}
		short := shortChain(b[n:])
		if short == 0 {
			break
		}
		n += short
	}
	return n
}

// notInChain returns the high bit of each byte that is neither a digit nor a space nor a dash.
func notInChain(w uint64) uint64 {
	t := w &^ high
	digits := (t + (0x80-'0')*each) &^ (t + (0x80-'9'-1)*each)
	others := (t ^ ' '*each) + 0x7f*each // the high bit of each byte except spaces
	others &= (t ^ '-'*each) + 0x7f*each
	return (others&^digits | w) & high
}

// shortChain returns the length of the chain at the beginning of b if it has too few digits for a number and
// ends within b, otherwise 0.
func shortChain(b []byte) int {
	digits := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case isDigit(c):
			if digits++; digits == leastDigits {
				return 0
			}
		case c != ' ' && c != '-' || !isDigit(b[i-1]):
			return i
		}
	}
	return 0
}

// digit adds a digit to the chain.
func (s *cardScanner) digit(v byte, at int64) {
	if s.after == afterOther {
		s.chain, s.starts = 0, 0
	}
	i := s.digits % digitRing
	bit := uint32(1) << i
	s.starts &^= bit
	if s.after != afterADigit && v >= 2 {
		s.starts |= bit
	}
	doubled := int32(2 * v)
	if v >= 5 {
		doubled -= 9
	}
	before := s.sums[(i-1)%digitRing]
	before[s.digits%2] += doubled
	before[1-s.digits%2] += int32(v)
	s.sums[i], s.at[i] = before, at
	s.digits++
	s.chain = min(s.chain+1, digitRing)
	s.after, s.ended = afterADigit, false
}

// groupEnds masks the numbers that end with the last digit.
func (s *cardScanner) groupEnds(b []byte, at int, f *found) {
	last := s.digits - 1
	double := 1 - last%2 // Luhn's sum doubles every second digit, but not the last one
	sum := s.sums[last%digitRing][double]
	for n := min(mostDigits, s.chain); n >= leastDigits; n-- {
		first := s.digits - n
		if s.starts&(1<<(first%digitRing)) == 0 {
			continue
		}
		if (sum-s.sums[(first-1)%digitRing][double])%10 != 0 {
			continue
		}
		f.matches++
		s.cover(b, at, first, f)
	}
}

// cover masks the digits from first on, except the last four read, and the digits already masked.
func (s *cardScanner) cover(b []byte, at int, first uint32, f *found) {
	d, end := first, s.digits-clearDigits
	if int32(first-s.from) >= 0 && int32(s.to-first) >= 0 {
		d = s.to
	} else {
		s.from, s.to = first, first
	}
	for ; int32(end-d) > 0; d++ {
		i := at + int(s.at[d%digitRing]-s.seen)
		f.cover(b, i, i+1)
	}
	if int32(end-s.to) > 0 {
		s.to = end
	}
}

// undecided returns how many bytes there are since the first digit of a number that the next bytes may
// complete.
func (s *cardScanner) undecided() int {
	if s.after == afterOther {
		return 0
	}
	n := min(mostDigits, s.chain)
	if s.after == afterSeparator {
		n = min(mostDigits-1, s.chain)
	}
	for ; n > 0; n-- {
		if d := (s.digits - n) % digitRing; s.starts&(1<<d) != 0 {
			return int(s.seen - s.at[d])
		}
	}
	return 0
}

func (s *cardScanner) settle(b []byte, f *found) {
	if s.after == afterADigit && !s.ended {
		s.groupEnds(b, len(b), f)
		s.ended = true
	}
}
