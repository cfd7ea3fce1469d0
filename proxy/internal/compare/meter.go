package compare

import "time"

// What comparing may cost on a loop, in nanoseconds of CPU time.
const (
	// share is the part of a loop's time that comparing may take: one of so many.
	share = 5
	// burst is what comparing may take at once.
	burst = 20e6
	// fair is the part of burst from which on a session is one of those that take much.
	fair = burst / 16
)

// The costs of steps, in nanoseconds: those that BenchmarkCost measures, rounded up. Bytes of framings are in byteCosts.
const (
	pieceCost  = 60  // a piece of bytes
	answerCost = 120 // an answer of one side, with its part of settling it
	dataCost   = 25  // bytes that are compared at once, beside each of them
	unitCost   = 30  // a part of an answer
	lineCost   = 120 // a line of a head, or of a chunk
	fieldCost  = 80  // a field of a head of HTTP/2, beside the bytes of it that are decoded
	diffCost   = 300 // a difference
)

// byteCosts are those of a byte in sixteenths of a nanosecond, by framing: reading it. Comparing it is in byteCost.
var byteCosts = map[string]int{
	Bytes: 1, Lines: 2, LengthPrefixed: 2, Resp: 40, Postgres: 40, HTTP1: 4, HTTP2: 8, GRPC: 8,
}

// byteCost is that of comparing a byte, or of decoding one of a head, in sixteenths.
const byteCost = 5

// huffmanCost is that of a byte of Huffman's code, in sixteenths.
const huffmanCost = 160

// searchCost is that of a byte in which a match may begin, or not, in sixteenths.
const searchCost = 16

// pieceBytes is how much is read before the meter is looked at again.
const pieceBytes = 4 << 10

// A Meter bounds the CPU time that comparing takes on a loop: a fifth of it, and 20 ms at once. Time is
// that of the costs of steps, which do not depend on the machine's load, and of patterns the time that they took. It is for
// one goroutine, and shared by the sessions of its loop.
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

// spendTime is how long it is remembered that a session has taken much.
const spendTime = 1e9

// begin is the begin of a call.
func (c *spending) begin(now int64) {
	if c.meter == nil {
		return
	}
	c.meter.refill(now)
	if now-c.since > spendTime || now < c.since {
		c.taken, c.since = c.taken/2, now
	}
}

// spend takes nanoseconds. Comparing the session ends if there are none left and it has taken much, or if as
// much as the burst is missing, which others have taken then.
func (s *Session) spend(cost int) {
	c := &s.cost
	if c.meter == nil {
		return
	}
	c.taken += int64(cost)
	c.meter.left -= int64(cost)
	if left := c.meter.left; left < 0 && (c.taken > fair || left < -burst) {
		s.stop(Cost)
	}
}

// spendBytes is spend for bytes at so many sixteenths each.
func (s *Session) spendBytes(fixed, n, each int) {
	if s.cost.meter != nil {
		s.spend(fixed + n*each>>4)
	}
}

// pieces hands bytes on in pieces, until comparing has ended.
func (s *Session) pieces(b []byte, parse func(b []byte) error) error {
	for len(b) > 0 && s.reason == Going {
		n := min(len(b), pieceBytes)
		s.spendBytes(pieceCost, n, s.plan.byteCost)
		if s.reason != Going {
			break
		}
		if err := parse(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
