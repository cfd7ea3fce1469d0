// Package compare compares the answers of a mirror's shadow with the answers of the primary, as a stream of bytes or
// by the frames of a protocol. It has no sockets and no goroutines: callers pass bytes in pieces of any size, and the
// results go to a [Report].
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
	Length  Length // for length_prefixed

	Mask     []Mask
	Examples int  // how many examples of differences are kept for each name
	Redact   bool // examples hide letters and digits
}

// A Mask describes bytes that may differ. Either Pattern or Field is set.
type Mask struct {
	Pattern string // a regular expression (RE2); the bytes that it matches in a frame are not compared
	Field   string // a field of the framing, such as grpc.x-request-id
	Name    string // the name of the answers that it applies to; empty means all
}

// A Plan is a checked Config. It never changes, and is safe for concurrent use.
type Plan struct {
	Config
	masks masks
	worst int64           // longest time for a byte, in nanoseconds
	names map[string]bool // names that masks have
}

// NewPlan checks a configuration, except for its numbers. Its errors say what to write.
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
			s.answers[i] = &stream{sink{s: s, f: &s.main, side: i}, s.report.name("stream", true)}
		}
	},
	Lines: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lines{stream{sink{s: s, f: &s.main, side: i}, s.report.name("line", true)}}
		}
	},
	LengthPrefixed: func(s *Session) {
		for i := range s.answers {
			s.answers[i] = &lengths{Length: s.plan.Length, out: sink{s: s, f: &s.main, side: i}, name: s.report.name("frame", true)}
		}
	},
	GRPC: newCalls,
}

// SessionBytes is the most memory that a session uses, whatever either side sends. A gRPC session also has its
// tables, see tableBytes.
const SessionBytes = 64 << 10

// TotalBytes is the default budget of a process, for [NewBudget].
const TotalBytes = 64 << 20

// keepBytes is how many bytes of the lead a session keeps. The rest of its memory is for records of answers and an
// example.
const keepBytes = 24 << 10

// A Budget limits the memory of all compared sessions. It is safe for concurrent use.
type Budget struct {
	total int64
	used  atomic.Int64
}

// NewBudget returns a budget of that many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{total: bytes} }

// Used returns how many bytes the sessions hold.
func (b *Budget) Used() int64 { return b.used.Load() }

// A purse counts the memory that one session has taken from the budget.
type purse struct {
	budget *Budget
	most   int // limit of the session, in bytes
	held   int // bytes taken and not given back
	lead   int // part of held that keeps bytes of the side ahead
}

// take takes n bytes if neither the session nor the budget exceeds its limit.
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

// Limits of the time that comparing takes on a loop, in nanoseconds.
const (
	// share says that comparing may take one fifth of a loop's time.
	share = 5
	// burst is how long comparing may take at once.
	burst = 20e6
	// fair is the time after which a session is stopped if the meter has nothing left.
	fair = burst / 16
	// spendTime is how long the meter remembers what a session has taken.
	spendTime = 1e9
	// worstByte is the longest time for a byte without patterns: for an answer of one byte, or a field of a head.
	worstByte = 1000
	// pieceBytes is how much is read before the meter is checked again.
	pieceBytes = 4 << 10
)

// A Meter limits the time that comparing takes on a loop: a fifth of it, and 20 ms at once. The sessions of a loop
// share it. Only one goroutine may use it.
type Meter struct {
	left int64 // nanoseconds
	at   int64 // when left was computed

	clock func() int64
}

// NewMeter returns a meter with the whole burst left.
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

// A spending is what a session takes from a meter.
type spending struct {
	meter *Meter // nil: no limit
	taken int64  // nanoseconds; half of it is forgotten after spendTime
	since int64
}

// Metered makes a meter limit the time of the session. Call it before any bytes come.
func (s *Session) Metered(m *Meter) { s.cost.meter = m }

func (c *spending) begin(now int64) {
	if c.meter == nil {
		return
	}
	c.meter.refill(now)
	if now-c.since > spendTime || now < c.since {
		c.taken, c.since = c.taken/2, now
	}
}

// pieces parses bytes piece by piece, until comparing has ended, and charges the meter. A piece costs at most the
// time that its bytes can take in the worst case. So a session pays little for the time in which the thread waits
// for a CPU.
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

// spend charges the meter. Comparing ends if nothing is left and this session has taken more than fair. It also
// ends if the meter is overdrawn by the whole burst, even if other sessions have taken the time.
func (s *Session) spend(ns int64) {
	c := &s.cost
	c.taken += ns
	c.meter.left -= ns
	if left := c.meter.left; left < 0 && (c.taken > fair || left < -burst) {
		s.stop(Cost)
	}
}
