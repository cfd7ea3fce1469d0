package mask

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// A Kind is a kind of bytes that are masked.
type Kind uint8

// The kinds, in the order in which they are masked: each sees the bytes as those before it leave them.
const (
	// Token is credentials: all but the prefix is masked, see tokens.
	Token Kind = iota
	// Card is card numbers (ISO/IEC 7812): 13 to 19 digits with a valid check digit, of which the first is not 0
	// or 1, in groups that single spaces or dashes separate, and with no digit next to them. A letter may be: in a
	// binary protocol it can be a byte of the next message. All digits but the last four are masked.
	Card
	// Email is addresses of e-mail: the local part, of which at most the last 64 characters, and the letters and
	// digits of the domain.
	Email
	// Pattern is the matches of own patterns.
	Pattern

	// Kinds is how many there are.
	Kinds = iota
)

var kindNames = [Kinds]string{"token", "card", "email", "pattern"}

// String returns the kind in one word.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ErrKind is wrapped by [ParseKind]'s error.
var ErrKind = errors.New("unknown kind of mask")

// ParseKind returns the built-in kind of that name.
func ParseKind(name string) (Kind, error) {
	for k, n := range kindNames[:Pattern] {
		if n == name {
			return Kind(k), nil
		}
	}
	return 0, fmt.Errorf("%w %q: write %s", ErrKind, name, strings.Join(kindNames[:Pattern], ", "))
}

// by takes the place of a masked byte.
const by = '*'

// Counts are those of all Maskers that share them. They are safe for concurrent use.
type Counts struct {
	bytes, late         atomic.Int64
	encrypted, unframed atomic.Int64
	matches             [Kinds]atomic.Int64
}

// Totals are the values of [Counts].
type Totals struct {
	// Bytes is how many went through.
	Bytes int64
	// Matches counts them by kind.
	Matches [Kinds]int64
	// Late is how many bytes were let go, as they were, because nothing that followed them came in time, and would
	// have been masked for the bytes that followed then.
	Late int64
	// Encrypted and Unframed are how many streams have ended by ErrEncrypted and ErrUnframed.
	Encrypted, Unframed int64
}

// Totals returns the values now.
func (c *Counts) Totals() (t Totals) {
	t.Bytes, t.Late = c.bytes.Load(), c.late.Load()
	t.Encrypted, t.Unframed = c.encrypted.Load(), c.unframed.Load()
	for k := range t.Matches {
		t.Matches[k] = c.matches[k].Load()
	}
	return t
}

// cut counts a stream that has ended by an error.
func (c *Counts) cut(err error) {
	if errors.Is(err, ErrEncrypted) {
		c.encrypted.Add(1)
		return
	}
	c.unframed.Add(1)
}

// A Set is the masks of a stream. It is not changed, and safe for concurrent use.
type Set struct {
	kinds      [Pattern]bool
	patterns   []*pattern
	framing    Framing
	fromClient bool
}

// Framed returns the same masks of a stream of a protocol, that of its client or that of its server.
func (s *Set) Framed(by Framing, fromClient bool) *Set {
	framed := *s
	framed.framing, framed.fromClient = by, fromClient
	return &framed
}

// New returns the set of some built-in kinds and of own patterns. An error is that of a pattern, see [CheckPattern], or
// ErrLarge if they are too large together.
func New(kinds []Kind, patterns []string) (*Set, error) {
	s, positions := new(Set), 0
	for _, k := range kinds {
		s.kinds[k] = true
	}
	for _, text := range patterns {
		p, err := compile(text)
		if err != nil {
			return nil, err
		}
		s.patterns = append(s.patterns, p)
		if positions += len(p.positions); positions > maxPositions {
			return nil, ErrLarge
		}
	}
	return s, nil
}

// Room is how many bytes of a stream are held back at most.
func (s *Set) Room() (n int) {
	for k, most := range [Pattern]int{Token: maxToken, Card: maxCard, Email: maxEmail} {
		if s.kinds[k] {
			n += most
		}
	}
	for _, p := range s.patterns {
		n += p.longest
	}
	return n
}

// NewMasker returns the state of one stream, which adds to counts.
func (s *Set) NewMasker(counts *Counts) *Masker {
	m := &Masker{counts: counts, held: make([]byte, s.Room()), framer: newFramer(s.framing, s.fromClient)}
	add := func(k Kind, of scanner) { m.stages = append(m.stages, stage{scanner: of, kind: k}) }
	if s.kinds[Token] {
		add(Token, new(tokenScanner))
	}
	if s.kinds[Card] {
		add(Card, new(cardScanner))
	}
	if s.kinds[Email] {
		add(Email, new(emailScanner))
	}
	positions := 0
	for _, p := range s.patterns {
		add(Pattern, p.newScanner())
		positions += len(p.positions)
	}
	m.most = min(1<<16, 1<<17/max(positions, 1))
	return m
}

// A scanner finds the bytes of one kind in a stream. It reads each byte once, so it may mask those that it has read.
type scanner interface {
	// scan reads b[at:], which follows the bytes that it has read before. It masks bytes of b[lo:], which are those of before
	// that have not been let go, and the new ones. It returns how many at the end of b may still have to be masked.
	scan(b []byte, lo, at int, f *found) (undecided int)
	// settle is called when no more bytes are waited for: it masks what is a match if b ends the stream.
	settle(b []byte, lo int, f *found)
	// reset has the next bytes be the first ones of a text. None is held back.
	reset()
}

// found counts the matches of a scanner.
type found struct{ matches, late int64 }

// cover masks b[from:to], but for bytes that have been let go.
func (f *found) cover(b []byte, lo, from, to int) {
	f.late += int64(max(0, min(lo, to)-from))
	for i := max(lo, from); i < to; i++ {
		b[i] = by
	}
}

// A stage is a scanner of a Masker.
type stage struct {
	scanner
	kind      Kind
	undecided int // of the bytes that it has read, how many the next one has not got
}

// A Masker is the state of one stream. It holds bytes back that may be the beginning of something to be masked, no more
// than [Set.Room], and nothing else grows with the stream. One goroutine at a time calls its methods; they allocate nothing.
type Masker struct {
	stages []stage
	framer framer // nil: none
	hello  Hello
	held   []byte // of the room
	n      int    // how many are held
	found  found  // by the present scan
	most   int    // see Most
	counts *Counts
}

// Room is how many bytes there have to be before those that are passed to Rewrite.
func (m *Masker) Room() int { return len(m.held) }

// Most is how many bytes Rewrite takes at once in a few milliseconds, at worst: a byte can concern all positions of all patterns.
func (m *Masker) Most() int { return m.most }

// Held is how many bytes are held back.
func (m *Masker) Held() int { return m.n }

// Rewrite takes the next bytes of the stream, which are b[at:], and returns those that go on: b[from:to]. The ones that
// were held back come first; they are put into b before at, where there have to be Room bytes. An error, which wraps ErrEncrypted or
// ErrUnframed, is counted, and ends the stream.
func (m *Masker) Rewrite(b []byte, at int) (from, to int, err error) {
	from = at - m.n
	copy(b[from:at], m.held[:m.n])
	m.counts.bytes.Add(int64(len(b) - at))
	switch {
	case m.hello.Begins(b[at:]):
		err = ErrEncrypted
	case m.framer == nil:
		to = m.pass(b, from, at, false)
	default:
		to, err = m.rewriteFramed(b, from, at)
	}
	if err != nil {
		m.counts.cut(err)
		return 0, 0, err
	}
	m.n = copy(m.held, b[to:])
	return from, to, nil
}

// Release returns all bytes that are held back, as b[from:to]. There have to be Room bytes in b. It is called at the end of
// the stream, and if no more bytes are waited for: then the rest of a match that comes later is still masked.
func (m *Masker) Release(b []byte) (from, to int, err error) {
	n := copy(b, m.held[:m.n])
	m.pass(b[:n], 0, n, true)
	m.n = 0
	return 0, n, nil
}

// pass has all stages scan b, each the bytes that the one before it lets go, and returns where the first byte is that is held back.
func (m *Masker) pass(b []byte, lo, at int, settle bool) (to int) {
	for i := range m.stages {
		s := &m.stages[i]
		m.found = found{}
		before := s.undecided
		s.undecided = min(s.scan(b, lo, at, &m.found), len(b)-at+before) // of those that were let go none is held
		if settle {
			s.settle(b, lo, &m.found)
			s.undecided = 0
		}
		if m.found != (found{}) {
			m.counts.matches[s.kind].Add(m.found.matches)
			m.counts.late.Add(m.found.late)
		}
		at -= before
		b = b[:len(b)-s.undecided]
	}
	return len(b)
}
