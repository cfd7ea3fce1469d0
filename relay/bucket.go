package relay

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A Bucket is a rate of bytes that any number of sessions, loops and goroutines spend from:
// over any time they move at most the rate's bytes of that time, the burst, bytes that some
// were late to move before, and 2 KiB for each direction whose source has just had nothing
// queued, which it pays back afterwards. It takes no lock, and is safe for concurrent use. The
// zero value limits nothing.
//
// Bytes are reserved before they are read, in a queue: each reservation is for the piece of
// the supply that follows the one before, so waiting directions are served in the order in
// which they came, a piece each, and the pieces become smaller the longer the queue is.
type Bucket struct {
	spent atomic.Int64 // the position up to which the supply is reserved
	clock atomic.Pointer[rateClock]
	waits atomic.Int64

	setting sync.Mutex // one Set at a time
}

// A rateClock is a line: the position that has been reached at a time. Positions are
// bytes and wrap around, so only their differences mean something.
type rateClock struct {
	rate  int64 // bytes a second; 0: there is no limit
	burst int64
	base  int64 // position at the time at
	at    int64
}

const (
	burstShare = 10                   // the burst, if none is given, is the bytes of a tenth of a second
	leastBurst = 16 << 10             // and at least this
	lateness   = 2 * time.Millisecond // of timers, made up for by the burst
	leastPiece = 2 << 10              // of one reservation, unless the rate gives less in an eighth of a second
	mostPiece  = 1 << 20              // the largest pipe
	pieceTime  = 10 * time.Millisecond
	// longestNap bounds how long a direction waits before it looks at the rate again,
	// which may have been changed.
	longestNap = 250 * time.Millisecond
	// mostRate is more than one machine's memory moves; from it on there is no limit.
	// Positions of a lower one do not wrap in less than four years without a byte.
	mostRate = 1 << 36
)

// NewBucket returns a bucket of so many bytes a second, full. burst is how many may
// be moved at once after a time in which nothing was; 0 means as many as a tenth of a
// second gives, and at least 16 KiB. It is never less than two milliseconds give, lest
// timers that are late cost a part of the rate. A rate of 0 or less, and one of 64 GiB a
// second or more, means that there is no limit.
func NewBucket(bytesPerSecond, burst int64) *Bucket {
	b := new(Bucket)
	b.fill(newSupply(bytesPerSecond, burst))
	return b
}

func newSupply(rate, burst int64) rateClock {
	s := rateClock{rate: max(rate, 0), burst: max(burst, 0)}
	if rate >= mostRate {
		s.rate = 0
	}
	if s.burst == 0 {
		s.burst = max(s.rate/burstShare, leastBurst)
	}
	s.burst = max(s.burst, s.least(), s.rate/int64(time.Second/lateness))
	return s
}

// fill makes b a full bucket.
func (b *Bucket) fill(s rateClock) {
	b.spent.Store(-s.burst)
	b.clock.Store(&s)
}

// Set changes the rate and the burst, as [NewBucket] takes them, while the bucket is in use.
// Waiting directions are served by the new ones within a quarter of a second.
func (b *Bucket) Set(bytesPerSecond, burst int64) {
	b.set(bytesPerSecond, burst, systemClock{}.now())
}

func (b *Bucket) set(rate, burst, now int64) {
	b.setting.Lock()
	defer b.setting.Unlock()
	old := b.clock.Load()
	if old == nil {
		old = new(rateClock)
	}
	s := newSupply(rate, burst)
	s.at = now
	if old.rate > 0 {
		s.base = old.by(now)
	} else {
		s.base = b.spent.Load() + s.burst
	}
	b.clock.Store(&s)
}

// Rate returns the rate in bytes a second, 0 if there is no limit.
func (b *Bucket) Rate() int64 {
	if s := b.clock.Load(); s != nil {
		return s.rate
	}
	return 0
}

// Waits returns how often a direction has had to wait for this bucket.
func (b *Bucket) Waits() int64 { return b.waits.Load() }

// inForce returns the supply, nil if there is no limit.
func (b *Bucket) inForce() *rateClock {
	if b == nil {
		return nil
	}
	if s := b.clock.Load(); s != nil && s.rate > 0 {
		return s
	}
	return nil
}

// by is the position that the supply has reached by a time.
func (s *rateClock) by(now int64) int64 {
	t := max(now-s.at, 0)
	hi, lo := bits.Mul64(uint64(s.rate), uint64(t%int64(time.Second)))
	part, _ := bits.Div64(hi, lo, uint64(time.Second)) // hi is less: both have few bits
	return s.base + s.rate*(t/int64(time.Second)) + int64(part)
}

// after is how long it takes until the supply has reached a position, at most a nap.
func (s *rateClock) after(pos, now int64) time.Duration {
	short := pos - s.by(now)
	if short <= 0 {
		return 0
	}
	if short >= s.rate {
		return longestNap
	}
	hi, lo := bits.Mul64(uint64(short), uint64(time.Second))
	t, _ := bits.Div64(hi, lo, uint64(s.rate)) // hi is less, as short is
	return min(time.Duration(t)+1, longestNap)
}

// reserve takes n bytes of the supply, and returns the position that it has to
// have reached before they may be read. now is read before.
func (b *Bucket) reserve(s *rateClock, n, now int64) (pos int64) {
	floor := s.by(now) - s.burst
	for {
		old := b.spent.Load()
		if pos = old; floor-pos > 0 {
			pos = floor
		}
		if pos += n; b.spent.CompareAndSwap(old, pos) {
			return pos
		}
	}
}

// refund gives back bytes that were reserved and not read.
func (b *Bucket) refund(n int64) { b.spent.Add(-n) }

// left is how many bytes may be read at once; if negative, how many are owed.
func (b *Bucket) left(s *rateClock, now int64) int64 {
	return min(s.by(now)-b.spent.Load(), s.burst)
}

// piece returns how much to reserve at a time, when so much is left: the bytes of pieceTime,
// less the longer the queue is, and no more than the burst.
func (s *rateClock) piece(left int64) int64 {
	n := s.rate / int64(time.Second/pieceTime)
	if left < 0 && n > 0 {
		n /= 1 - left/n
	}
	return max(min(n, mostPiece, s.burst), s.least())
}

// least is the smallest piece, which is no more than the burst.
func (s *rateClock) least() int64 { return max(min(leastPiece, s.rate/8), 1) }
