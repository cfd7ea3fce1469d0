package relay

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
)

// A Bucket is a bandwidth limit that any number of sessions, loops and goroutines share. In any period they
// move at most the bytes of the rate and the burst, with two exceptions: bytes that were reserved before the
// period may move in it, and a direction that has just found its source empty may move 2 KiB more, which it
// pays back afterwards. A Bucket takes no lock, and is safe for concurrent use. The zero value limits nothing.
//
// Bytes are reserved before they are read: each reservation takes the next piece of the supply, so waiting
// directions get one piece each, in the order in which they came. The longer the queue, the smaller the pieces.
type Bucket struct {
	spent atomic.Int64 // the position up to which the supply is reserved
	clock atomic.Pointer[rateClock]
	waits atomic.Int64

	setting sync.Mutex // one Set at a time
}

// A rateClock maps times to positions in the stream of bytes that the rate allows.
// Positions wrap around, so only their differences have a meaning.
type rateClock struct {
	rate  int64 // bytes a second; 0: there is no limit
	burst int64
	base  int64 // position at the time at
	at    int64
}

const (
	burstShare = 10                   // the default burst is the bytes of a tenth of a second,
	leastBurst = 16 << 10             // the default burst is at least this
	lateness   = 2 * time.Millisecond // how late timers are; the burst makes up for it
	leastPiece = 2 << 10              // the smallest reservation, unless the rate gives less in an eighth of a second
	mostPiece  = 1 << 20              // the largest reservation: the largest pipe
	pieceTime  = 10 * time.Millisecond
	// longestNap bounds how long a direction waits before it looks at the rate again,
	// which may have been changed.
	longestNap = 250 * time.Millisecond
	// Rates of mostRate or more are no limit: memory is not that fast. At lower rates, positions of an idle
	// bucket wrap only after four years.
	mostRate = 1 << 36
)

// NewBucket returns a full bucket with a rate of bytesPerSecond. burst is how many bytes may move at once after
// a pause; 0 means the bytes of a tenth of a second, at least 16 KiB. A burst below the bytes of two
// milliseconds is raised to that, so that late timers do not lower the rate. A rate of 0 or less, or of 64 GiB
// a second or more, means no limit.
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

// Set changes the rate and the burst while the bucket is in use; see [NewBucket] for their
// meaning. Waiting directions use the new values within a quarter of a second.
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

// Rate returns the rate in bytes a second, or 0 if there is no limit.
func (b *Bucket) Rate() int64 {
	if s := b.clock.Load(); s != nil {
		return s.rate
	}
	return 0
}

// Waits returns how often a direction has had to wait for this bucket.
func (b *Bucket) Waits() int64 { return b.waits.Load() }

// inForce returns the rate clock, or nil if there is no limit.
func (b *Bucket) inForce() *rateClock {
	if b == nil {
		return nil
	}
	if s := b.clock.Load(); s != nil && s.rate > 0 {
		return s
	}
	return nil
}

// by returns the position that the supply has reached at the time now.
func (s *rateClock) by(now int64) int64 {
	t := max(now-s.at, 0)
	hi, lo := bits.Mul64(uint64(s.rate), uint64(t%int64(time.Second)))
	part, _ := bits.Div64(hi, lo, uint64(time.Second)) // cannot panic: both factors have few bits, so hi is small
	return s.base + s.rate*(t/int64(time.Second)) + int64(part)
}

// after returns the time until the supply reaches a position, at most longestNap.
func (s *rateClock) after(pos, now int64) time.Duration {
	short := pos - s.by(now)
	if short <= 0 {
		return 0
	}
	if short >= s.rate {
		return longestNap
	}
	hi, lo := bits.Mul64(uint64(short), uint64(time.Second))
	t, _ := bits.Div64(hi, lo, uint64(s.rate)) // cannot panic: short is less than the rate, so hi is small
	return min(time.Duration(t)+1, longestNap)
}

// reserve takes n bytes of the supply, and returns the position that the supply must reach before they may be
// read.
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

// refund gives back reserved bytes that were not read.
func (b *Bucket) refund(n int64) { b.spent.Add(-n) }

// left returns how many bytes may be read at once; if negative, how many are owed.
func (b *Bucket) left(s *rateClock, now int64) int64 {
	return min(s.by(now)-b.spent.Load(), s.burst)
}

// piece returns how many of the left bytes to reserve now: the bytes of pieceTime, fewer if
// the queue is long, and at most the burst.
func (s *rateClock) piece(left int64) int64 {
	n := s.rate / int64(time.Second/pieceTime)
	if left < 0 && n > 0 {
		n /= 1 - left/n
	}
	return max(min(n, mostPiece, s.burst), s.least())
}

// least returns the smallest piece, which is never more than the burst.
func (s *rateClock) least() int64 { return max(min(leastPiece, s.rate/8), 1) }

// How a direction keeps to a rate. Bytes are reserved before they are read, so bytes that were
// read are passed on at once. A direction that has to wait has not read yet: it holds neither
// pipe nor buffer, and the TCP window slows its source down. It returns waitTokens, and its
// driver steps it again after the wait.
//
// It reserves no more than it can read. If it has to wait, it first asks how many bytes are queued at the
// source, so that no direction waits behind an unused reservation. The rest of a reservation is given
// back when the source runs dry or the sink is full. If no bytes are queued, a read shows why (an end of
// file, an urgent mark); bytes that it returns are paid afterwards.
//
// A source that is read by its own Read, or by a layer, cannot say how many bytes are queued, and holds a
// buffer anyway. Its bytes are reserved after the read, and wait in the buffer.

// A pacing says whether a direction has a rate, and whether it waits for it.
type pacing uint8

const (
	unpaced pacing = iota // no rate
	paced
	resting // waits for its turn
)

// reserved says from which buckets of a pacer bytes are reserved.
type reserved [4]bool

// A pacer is the state of a paced direction.
type pacer struct {
	of      *throttle
	dir     *direction
	buckets [4]*Bucket // own for both directions, own for this one, shared for both, shared for this one; nil: none
	clock   clock

	grant     int64    // bytes that may be read
	reserved  reserved // where the grant was reserved; none: bytes are owed once they are read
	pos       [4]int64 // the positions that the supplies of reserved have to reach
	afterward bool     // bytes are reserved after the read, because the source's own Read or a layer moves them
	whole     bool     // one read may be a message, which is read whole
	free      bool     // the session ends: nothing waits, bytes read are owed

	timer loop.Timer // on a loop

	// On goroutines:
	asleep atomic.Bool // resting; other goroutines read it
	sleep  timer       // nil until it is needed
	wake   chan struct{}
}

// A throttle is the state of a session with limits of bandwidth.
type throttle struct {
	own     [3]Bucket    // limits of this session alone: both directions, ab, ba
	lines   [3]rateClock // the clocks of own
	pacers  [2]pacer     // of ab and ba
	rare    [2]rareState
	stopped atomic.Bool // the session is cut: nothing waits any more
	waited  int64       // on a loop: nanoseconds of waiting for bandwidth
}

// start makes both directions of a session keep to its limits.
func (t *throttle) start(ab, ba *direction, l *Limits, c clock) {
	r := &l.PerConnection
	both := t.bucket(0, r.Both, r.Burst, c)
	own, shared := [2]*Bucket{t.bucket(1, r.AToB, r.Burst, c), t.bucket(2, r.BToA, r.Burst, c)}, [2]*Bucket{l.BandwidthAToB, l.BandwidthBToA}
	for i, d := range [2]*direction{ab, ba} {
		w := &t.pacers[i]
		w.of, w.dir, w.clock, w.buckets = t, d, c, [4]*Bucket{both, own[i], l.Bandwidth, shared[i]}
		o := d.rare.Load()
		if o == nil {
			o = &t.rare[i]
			d.rare.Store(o)
		}
		o.pacer, d.pace = w, paced
		w.owe(int64(d.readAhead()))
	}
}

// bucket makes one of the session's own buckets, or returns nil if that rate is not limited.
func (t *throttle) bucket(i int, rate, burst int64, c clock) *Bucket {
	if rate <= 0 {
		return nil
	}
	b, s := &t.own[i], &t.lines[i]
	*s = newSupply(rate, burst)
	s.at = c.now()
	b.spent.Store(-s.burst)
	b.clock.Store(s)
	return b
}

// pacer returns the direction's pacer, or nil if it is not paced.
func (d *direction) pacer() *pacer {
	if o := d.rare.Load(); o != nil {
		return o.pacer
	}
	return nil
}

// granted reports whether a paced direction may read now. Otherwise the direction rests.
func (d *direction) granted() bool {
	w := d.pacer()
	if w.grant > 0 || w.free {
		return true
	}
	now := w.clock.now()
	left, piece := w.look(now)
	switch {
	case w.afterward, left == math.MaxInt64:
		w.grant = piece
		return true
	case left >= min(piece, leastPiece):
		w.reserve(min(piece, left), now)
	default:
		queued := int64(d.link.queued())
		if queued == 0 {
			w.grant = leastPiece
			return true
		}
		w.reserve(min(piece, queued), now)
	}
	if !w.reached(now) {
		d.rest()
		return false
	}
	return true
}

// look returns how many bytes may be read now (the largest number if there is no limit) and how
// many to reserve at a time.
func (w *pacer) look(now int64) (left, piece int64) {
	left, piece = math.MaxInt64, mostPiece
	for _, b := range &w.buckets {
		if s := b.inForce(); s != nil {
			have := b.left(s, now)
			left, piece = min(left, have), min(piece, s.piece(have))
		}
	}
	return left, piece
}

// reserve reserves n bytes in every bucket.
func (w *pacer) reserve(n, now int64) {
	w.grant = n
	for i, b := range &w.buckets {
		if s := b.inForce(); s != nil {
			w.pos[i], w.reserved[i] = b.reserve(s, n, now), true
		}
	}
}

// owe reserves n bytes that have been read already.
func (w *pacer) owe(n int64) {
	if n > 0 {
		w.reserve(n, w.clock.now())
		w.grant = 0
	}
}

// pay notes that n bytes have been read.
func (d *direction) pay(n int) {
	w := d.pacer()
	if w.reserved != (reserved{}) && int64(n) <= w.grant {
		if w.grant -= int64(n); w.grant == 0 {
			w.reserved = reserved{}
		}
		return
	}
	w.refund()
	w.owe(int64(n))
	if w.afterward && !w.free && !w.reached(w.clock.now()) {
		d.rest()
		return
	}
	w.reserved = reserved{}
}

// refund gives back the rest of a reservation.
func (w *pacer) refund() {
	for i, b := range &w.buckets {
		if w.reserved[i] && w.grant > 0 {
			b.refund(w.grant)
		}
	}
	w.grant, w.reserved = 0, reserved{}
}

// refund does what pacer.refund does, if the direction is paced.
func (d *direction) refund() {
	if d.pace != unpaced {
		d.pacer().refund()
	}
}

// clip bounds the size of a read.
func (w *pacer) clip(n int) int {
	if w.free || w.whole {
		return n
	}
	return int(min(int64(n), w.grant))
}

// reached reports whether the reserved bytes may be read.
func (w *pacer) reached(now int64) bool { return w.remaining(now) <= 0 }

// remaining returns the time until the reserved bytes may be read, at most longestNap.
func (w *pacer) remaining(now int64) (left time.Duration) {
	for i, b := range &w.buckets {
		if s := b.inForce(); s != nil && w.reserved[i] {
			left = max(left, s.after(w.pos[i], now))
		}
	}
	return left
}

// rest makes the direction wait for its turn.
func (d *direction) rest() {
	w := d.pacer()
	d.release()
	if active := d.env().active; active != nil {
		active(d, waitSource)
	}
	d.pace = resting
	w.asleep.Store(true)
	now := w.clock.now()
	for i, b := range &w.buckets {
		if s := b.inForce(); s != nil && w.reserved[i] && s.after(w.pos[i], now) > 0 {
			b.waits.Add(1)
		}
	}
	d.env().counts.note(rested)
}

// rested reports whether a resting direction may go on, and ends its rest if so.
func (d *direction) rested() bool {
	w := d.pacer()
	if !w.of.stopped.Load() && !w.reached(w.clock.now()) {
		return false
	}
	if w.grant == 0 { // bytes were owed, not granted
		w.reserved = reserved{}
	}
	d.pace = paced
	w.asleep.Store(false)
	if active := d.env().active; active != nil {
		active(d, waitTokens)
	}
	return true
}

// unbind lets a direction move without waiting at the end of its session.
func (d *direction) unbind() {
	if d.pace != unpaced {
		w := d.pacer()
		w.refund()
		w.free, d.pace = true, paced
		w.asleep.Store(false)
	}
}

// sparse reports whether the last read was short only because no more was granted.
func (d *direction) sparse() bool { return d.pace == paced && d.pacer().grant == 0 }

// With goroutines:

// pace makes a session that begins keep to its limits. The session may have been cut already.
func (s *Session) pace() {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	t := new(throttle)
	t.start(&s.ab, &s.ba, s.limits, s.r.clock)
	for i := range t.pacers {
		w := &t.pacers[i]
		w.wake = make(chan struct{}, 1)
	}
	s.ab.paceEnds()
	s.ba.paceEnds()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.stopped.Store(s.reason != ReasonNone)
}

// paceEnds tells the pacer, if any, how the source is read.
func (d *direction) paceEnds() {
	w := d.pacer()
	if w == nil {
		return
	}
	src, opaque := d.link.(*pair).source.(*opaqueSource)
	w.afterward = opaque
	w.whole = opaque && src.framing != streaming
}

// resting reports whether the direction waits for its rate. It may be called by any
// goroutine.
func (d *direction) resting() bool {
	w := d.pacer()
	return w != nil && w.asleep.Load()
}

// await waits until a direction that rests may go on, or its session is cut.
func (d *direction) await() {
	w := d.pacer()
	for !d.rested() {
		left := max(w.remaining(w.clock.now()), 1)
		if w.sleep == nil {
			w.sleep = w.clock.afterFunc(left, w.rouse)
		} else {
			w.sleep.Reset(left)
		}
		<-w.wake
		w.sleep.Stop()
	}
}

// rouse ends the current wait of await, or the next one.
func (w *pacer) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop ends all waiting. It may be called by any goroutine.
func (t *throttle) stop() {
	t.stopped.Store(true)
	t.pacers[0].rouse()
	t.pacers[1].rouse()
}

// On a loop:

// Expired implements [loop.Expirer].
func (w *pacer) Expired(*loop.Timer) {
	s := sessionOf(w.dir)
	if !w.dir.rested() {
		s.drv.await(w.dir)
		return
	}
	s.pass(forBandwidth, s.drv.loop.Now())
	s.advance()
}

// await makes the loop call a resting direction when it may go on.
func (d *Driver) await(dir *direction) {
	w := dir.pacer()
	d.loop.Arm(&w.timer, w, max(w.remaining(w.clock.now()), 1))
}

// pace makes a session that starts keep to its limits. spare is the throttle of the session that used s before;
// nil: there is none.
func (d *Driver) pace(s *Driven, spare *throttle) {
	if spare == nil {
		spare = new(throttle)
	} else {
		*spare = throttle{}
	}
	spare.start(&s.ab, &s.ba, s.limits, d.relay.clock)
	a, b := s.layers()
	spare.pacers[0].afterward, spare.pacers[1].afterward = a != nil, b != nil
}

// throttle returns the session's throttle, or nil.
func (s *Driven) throttle() *throttle {
	if w := s.ab.pacer(); w != nil {
		return w.of
	}
	return nil
}
