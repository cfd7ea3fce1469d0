// Package masks replaces card numbers, tokens, e-mail addresses and matches of patterns in a stream of bytes by asterisks, with as many
// bytes as there were. Its result does not depend on how the stream is cut into pieces. It is the part of the example that does not need a
// proxy, and is tested without.
package masks

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// A Kind is a kind of bytes that are masked.
type Kind uint8

// The kinds, in the order in which they are masked: each sees the bytes as those before it leave them.
const (
	// Token is credentials: all but the prefix is masked, see tokens.
	Token Kind = iota
	// Card is card numbers (ISO/IEC 7812): 13 to 19 digits with a valid check digit. The first is not 0
	// or 1, single spaces or dashes separate the groups, and no digit is next to them. A letter may be: in a
	// binary protocol it can be a byte of the next message. All digits but the last four are masked.
	Card
	// Email is addresses of e-mail: the local part, at most its last 64 characters, and the letters and
	// digits of the domain.
	Email
	// Pattern is the matches of own patterns.
	Pattern

	// Kinds is how many there are.
	Kinds = iota
)

var kindNames = [Kinds]string{"token", "card", "email", "pattern"}

// String returns the kind in one word.
func (k Kind) String() string { return kindNames[k] }

// by takes the place of a masked byte.
const by = '*'

// A Set is the masks of a stream.
type Set struct {
	kinds    [Pattern]bool
	patterns []*pattern
}

// ErrNone is the error of a configuration that says nothing.
var ErrNone = errors.New("write card, token, email, or pattern= and a regular expression, with spaces between them")

// Parse reads a configuration: words that are card, token, email, or pattern= and a regular expression, see [ErrPattern].
func Parse(config string) (*Set, error) {
	s, positions := new(Set), 0
	for word := range strings.FieldsSeq(config) {
		text, own := strings.CutPrefix(word, "pattern=")
		switch {
		case own:
			p, err := compile(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", text, err)
			}
			s.patterns = append(s.patterns, p)
			if positions += len(p.positions); positions > maxPositions {
				return nil, fmt.Errorf("all patterns together: %w", ErrLarge)
			}
		case !s.add(word):
			return nil, fmt.Errorf("%q: %w", word, ErrNone)
		}
	}
	if s.kinds == [Pattern]bool{} && s.patterns == nil {
		return nil, ErrNone
	}
	return s, nil
}

// add adds a built-in kind, and reports whether there is one of that name.
func (s *Set) add(name string) bool {
	for k, n := range kindNames[:Pattern] {
		if n == name {
			s.kinds[k] = true
			return true
		}
	}
	return false
}

// NewMasker returns the state of one stream.
func (s *Set) NewMasker() *Masker {
	m := new(Masker)
	for k, of := range []scanner{Token: new(tokenScanner), Card: new(cardScanner), Email: new(emailScanner)} {
		if s.kinds[k] {
			m.stages = append(m.stages, stage{scanner: of, kind: Kind(k)})
		}
	}
	for _, p := range s.patterns {
		m.stages = append(m.stages, stage{scanner: p.newScanner(), kind: Pattern})
	}
	return m
}

// A scanner finds the bytes of one kind in a stream. It reads each byte once, so it may mask bytes that it has read.
type scanner interface {
	// scan reads b[at:], which follows the bytes that it has read before: b[:at] are still held. It masks bytes of b.
	// It returns how many at the end of b may still have to be masked.
	scan(b []byte, at int, f *found) (undecided int)
	// settle is called when no more bytes are expected: it masks a match that is complete if b ends the
	// stream.
	settle(b []byte, f *found)
}

// found is what a scanner has found.
type found struct {
	matches, late int64
	masked        bool // some byte
}

// cover masks b[from:to]. Bytes before b have been passed on already.
func (f *found) cover(b []byte, from, to int) {
	f.late += int64(max(0, min(0, to)-from))
	for i := max(0, from); i < to; i++ {
		b[i] = by
		f.masked = true
	}
}

// A stage is a scanner of a Masker.
type stage struct {
	scanner
	kind      Kind
	undecided int // of the bytes that it has read, how many the next one has not got
}

// A Masker is the state of one stream. Nothing in it grows with the stream. One goroutine at a time calls its methods, which allocate nothing.
type Masker struct {
	stages []stage
	held   int
	found  found // by the present scan
	counts Counts
}

// Counts are what a Masker has found.
type Counts struct {
	// Matches counts them by kind.
	Matches [Kinds]int64
	// Late is how many bytes were let go, as they were, because nothing that followed them came in time, and would have been masked for the
	// bytes that followed then.
	Late int64
}

// Counts returns what it has found so far.
func (m *Masker) Counts() Counts { return m.counts }

// Held is how many bytes are held back, see [Masker.Mask].
func (m *Masker) Held() int { return m.held }

// Mask masks the next bytes of the stream in place. b begins with the bytes that were held back after the last call, as
// that has left them; those behind them are new. The last bytes of b, as many as it returns, may be the beginning of
// something to be masked: they are held back. With last, no more bytes are expected and none are held: the rest of a
// match that comes later is still masked. changed reports whether b was.
func (m *Masker) Mask(b []byte, last bool) (held int, changed bool) {
	at, all := m.held, len(b)
	for i := range m.stages {
		s := &m.stages[i]
		m.found = found{}
		before := s.undecided
		s.undecided = min(s.scan(b, at, &m.found), len(b)-at+before) // no byte that was let go is held
		if last {
			s.settle(b, &m.found)
			s.undecided = 0
		}
		m.counts.Matches[s.kind] += m.found.matches
		m.counts.Late += m.found.late
		changed = changed || m.found.masked
		at -= before
		b = b[:len(b)-s.undecided]
	}
	m.held = all - len(b)
	return m.held, changed
}

// Eight bytes are looked at as one word: for a module of WebAssembly that Go has made a branch takes as long as a dozen other instructions.
const (
	each = 0x0101010101010101 // times a byte is that byte in each place
	high = 0x80 * each
)

// zeros has the high bit of the first byte that is zero, and perhaps of some behind it.
func zeros(w uint64) uint64 { return (w - each) &^ w & high }

// first returns the place of the first byte with its high bit set.
func first(w uint64) int { return bits.TrailingZeros64(w) / 8 }
