// Package compare holds the answers of a mirror's shadow against those of the primary: as a stream of bytes, or by the
// frames of a protocol. It has no sockets and no goroutines: bytes come by calls, in pieces of any size, and what it
// finds goes to a [Report].
package compare

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// The framings.
const (
	Bytes          = "bytes"
	Lines          = "lines"
	LengthPrefixed = "length_prefixed"
	GRPC           = "grpc"
)

// Framings are the names of all framings.
var Framings = []string{Bytes, Lines, LengthPrefixed, GRPC}

// A Config says how answers are compared.
type Config struct {
	Framing string // one of Framings
	Length  Length // of length_prefixed

	Mask     []Mask
	Examples int  // most examples of differences, by name
	Redact   bool // whether examples hide letters and digits
}

// A Mask is bytes that may differ. Either Pattern or Field is set.
type Mask struct {
	Pattern string // a regular expression (RE2); the bytes that it matches in a frame are not compared
	Field   string // a field of the framing, such as grpc.x-request-id
	Name    string // the name of the answers that it is for; empty is all
}

// A Plan is a Config that was checked. It is immutable, and safe for concurrent use.
type Plan struct {
	Config
	masks masks
	worst int64           // longest time of a byte, in nanoseconds
	names map[string]bool // that masks have
}

// NewPlan checks a configuration but for the numbers in it. Its errors say what to write.
func NewPlan(c Config) (*Plan, error) {
	if framings[c.Framing] == nil {
		return nil, fmt.Errorf("framing %q: write one of %s", c.Framing, strings.Join(Framings, ", "))
	}
	p := &Plan{Config: c, names: make(map[string]bool)}
	p.masks = masks{framing: c.Framing, fields: map[Mask]bool{{Field: GRPC + ".date"}: true}}
	for i, m := range c.Mask {
		p.names[m.Name] = true
		if err := p.masks.add(m); err != nil {
			return nil, fmt.Errorf("mask[%d]: %w", i, err)
		}
	}
	instructions, err := p.masks.compile()
	p.worst = worstByte + int64(instructions)*instructionCost
	return p, err
}

// framings make the parsers of a session.
var framings = map[string]func(s *Session){
	Bytes: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &stream{sink{s: s, f: &s.main, side: i}, s.report.name("stream")}
		}
	},
	Lines: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lines{stream{sink{s: s, f: &s.main, side: i}, s.report.name("line")}}
		}
	},
	LengthPrefixed: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lengths{Length: s.plan.Length, out: sink{s: s, f: &s.main, side: i}, name: s.report.name("frame")}
		}
	},
	GRPC: newCalls,
}

// SessionBytes is the most memory that one session takes, whatever either side sends. A session of gRPC has its tables
// beside it: see tableBytes.
const SessionBytes = 64 << 10

// TotalBytes is the usual budget of a process, for [NewBudget].
const TotalBytes = 64 << 20

// keepBytes is the most that a session keeps of the lead of one side. The rest of its memory is for the records of
// answers, and for an example.
const keepBytes = 24 << 10

// A Budget is the memory of all sessions that are compared. It is safe for concurrent use.
type Budget struct {
	total int64
	used  atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes} }

// Used returns the bytes that sessions hold.
func (b *Budget) Used() int64 { return b.used.Load() }

// A purse is the memory of one session: its part of the budget.
type purse struct {
	budget *Budget
	most   int // bytes that the session may hold
	held   int // bytes taken and not given back
	lead   int // those of them that the bytes of a side ahead have
}

// take takes n bytes if the session may hold as many more, and the budget has them.
func (p *purse) take(n int) bool {
	switch {
	case p.held+n > p.most:
		return false
	case p.budget.used.Add(int64(n)) > p.budget.total:
		p.budget.used.Add(int64(-n))
		return false
	}
	p.held += n
	return true
}

func (p *purse) give(n int) {
	p.held -= n
	p.budget.used.Add(int64(-n))
}

// What comparing may take of a loop, in nanoseconds.
const (
	// share is the part of a loop's time that comparing may take: one of so many.
	share = 5
	// burst is what comparing may take at once.
	burst = 20e6
	// fair is the part of burst from which on a session is one of those that take much.
	fair = burst / 16
	// spendTime is how long it is remembered that a session has taken much.
	spendTime = 1e9
	// worstByte is the longest time of a byte without patterns: an answer of one byte, or a field of a head.
	worstByte = 1000
	// pieceBytes is how much is read before the meter is looked at again.
	pieceBytes = 4 << 10
)

// A Meter bounds the time that comparing takes on a loop: a fifth of it, and 20 ms at once. It is for one goroutine,
// and shared by the sessions of its loop.
type Meter struct {
	left int64 // nanoseconds
	at   int64 // when that was

	clock func() int64
}

// NewMeter returns a meter that has all of the burst.
func NewMeter() *Meter {
	began := time.Now()
	return &Meter{left: burst, clock: func() int64 { return int64(time.Since(began)) }}
}

// refill adds the share of the time since the last call.
func (m *Meter) refill(now int64) {
	if d := now - m.at; d > 0 {
		m.left = min(m.left+min(d, share*2*burst)/share, max(burst, m.left))
	}
	m.at = now
}

// A spending is what a session takes of a meter.
type spending struct {
	meter *Meter // nil: it is not bounded
	taken int64  // in the time since
	since int64
}

// Metered has a meter bound the time of comparing the session. It is called before bytes come.
func (s *Session) Metered(m *Meter) { s.cost.meter = m }

// begin is the begin of a call at a time.
func (c *spending) begin(now int64) {
	if c.meter == nil {
		return
	}
	c.meter.refill(now)
	if now-c.since > spendTime || now < c.since {
		c.taken, c.since = c.taken/2, now
	}
}

// pieces hands bytes on in pieces, until comparing has ended, and takes their time from the meter. No piece takes more
// than its bytes can at worst, so a thread that had to wait for a CPU loses little.
func (s *Session) pieces(b []byte, parse func(b []byte) error) error {
	m := s.cost.meter
	if m == nil {
		return parse(b)
	}
	for len(b) > 0 && s.reason == Going {
		n := min(len(b), pieceBytes)
		began := m.clock()
		if err := parse(b[:n]); err != nil {
			return err
		}
		s.spend(min(m.clock()-began, int64(n)*s.plan.worst))
		b = b[n:]
	}
	return nil
}

// spend takes nanoseconds. Comparing the session ends if there are none left and it has taken much, or if as much as the
// burst is missing, which others have taken then.
func (s *Session) spend(ns int64) {
	c := &s.cost
	c.taken += ns
	c.meter.left -= ns
	if left := c.meter.left; left < 0 && (c.taken > fair || left < -burst) {
		s.stop(Cost)
	}
}
