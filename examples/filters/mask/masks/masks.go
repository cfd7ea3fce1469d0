// Package masks replaces card numbers, tokens, e-mail addresses and matches of patterns in a stream of bytes by
// as many asterisks. The result does not depend on how the stream is cut into pieces. It is the part of the
// example that needs no proxy, and is tested without one.
package masks

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// A Kind is a kind of bytes that are masked.
type Kind uint8

// The kinds, in the order of masking: each sees the bytes as the kinds before it leave them.
const (
	// Token means credentials: everything but the prefix is masked, see tokens.
	Token Kind = iota
	// Card means card numbers (ISO/IEC 7812): 13 to 19 digits with a valid check digit. The first is not 0 or
	// 1, single spaces or dashes separate the groups, and no digit is next to the number. A letter may be: in a
	// binary protocol it can be a byte of the next message. All digits but the last four are masked.
	Card
	// Email means e-mail addresses: the local part is masked, at most its last 64 characters, and the letters
	// and digits of the domain.
	Email
	// Pattern means matches of the patterns in the configuration.
	Pattern

	// Kinds is the number of kinds.
	Kinds = iota
)

var kindNames = [Kinds]string{"token", "card", "email", "pattern"}

// String returns the kind in one word.
func (k Kind) String() string { return kindNames[k] }

// by replaces a masked byte.
const by = '*'

// A Set has the masks for a stream.
type Set struct {
	kinds    [Pattern]bool
	patterns []*pattern
}

// ErrNone is the error of a configuration without a mask.
var ErrNone = errors.New("write card, token, email, or pattern= and a regular expression, with spaces between them")

// Parse reads a configuration: the words card, token, email, and pattern= with a regular expression, see
// [ErrPattern].
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

// add adds the built-in kind with that name, or returns false if there is none.
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

// A scanner finds matches of one kind in a stream. It reads each byte once, so it may mask bytes that it has
// read before.
type scanner interface {
	// scan reads b[at:], which follows the bytes that it has read before; of these, b[:at] are still held. It
	// masks bytes of b, and returns how many bytes at the end of b it may still have to mask.
	scan(b []byte, at int, f *found) (undecided int)
	// settle is called when no more bytes are expected. It masks a match that is complete if the stream ends
	// with b.
	settle(b []byte, f *found)
}

// found is what a scanner has found.
type found struct {
	matches, late int64
	masked        bool // at least one byte was masked
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
	undecided int // bytes that it has read and the next stage has not got
}

// A Masker is the state of one stream. It does not grow with the stream. Its methods allocate nothing; only one
// goroutine at a time may call them.
type Masker struct {
	stages []stage
	held   int
	found  found // of the present scan
	counts Counts
}

// Counts says what a Masker has found.
type Counts struct {
	// Matches counts the matches by kind.
	Matches [Kinds]int64
	// Late is how many bytes passed unmasked, because the bytes that showed them to be part of a match came too
	// late.
	Late int64
}

// Counts returns what the Masker has found so far.
func (m *Masker) Counts() Counts { return m.counts }

// Held returns how many bytes are held back, see [Masker.Mask].
func (m *Masker) Held() int { return m.held }

// Mask masks the next bytes of the stream in place. b begins with the bytes held back by the last call, as that
// call has left them, and continues with new bytes. The bytes at the end of b that may begin a match are held
// back; held is their number. If last is set, no more bytes are expected and none are held: the rest of a match
// that comes later is still masked. changed reports whether b was changed.
func (m *Masker) Mask(b []byte, last bool) (held int, changed bool) {
	at, all := m.held, len(b)
	for i := range m.stages {
		s := &m.stages[i]
		m.found = found{}
		before := s.undecided
		s.undecided = min(s.scan(b, at, &m.found), len(b)-at+before) // bytes that were let go are not held again
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

// Eight bytes are examined as one word: in a WebAssembly module made by Go, a branch takes as long as a dozen
// other instructions.
const (
	each = 0x0101010101010101 // times a byte: that byte in each place
	high = 0x80 * each
)

// zeros returns the high bit of the first zero byte, and perhaps of some bytes behind it.
func zeros(w uint64) uint64 { return (w - each) &^ w & high }

// first returns the index of the first byte with its high bit set.
func first(w uint64) int { return bits.TrailingZeros64(w) / 8 }
