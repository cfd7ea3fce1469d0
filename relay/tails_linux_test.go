package relay_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

// tailSizes are the powers of two from 1 to 1 MiB, and one less and one more.
func tailSizes() []int {
	var sizes []int
	for n := 1; n <= 1<<20; n *= 2 {
		sizes = append(sizes, n-1, n, n+1)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)[1:] // without 0
}

// tailDelays: the default has every size, the others those that may differ.
func tailDelays() map[time.Duration][]int {
	some := []int{1, 2, 4095, 65537, raisedMark - 1, raisedMark, raisedMark + 1, 1 << 20}
	every := tailSizes()
	if !full.Everything() || testing.Short() {
		every = some
	}
	return map[time.Duration][]int{
		100 * time.Microsecond: some,
		time.Millisecond:       every,
		10 * time.Millisecond:  some,
		time.Second:            some,
	}
}

// TestTails: a tail that stops short of the raised mark for ever is through when the time
// of the test has moved by [relay.Config.TailDelay], whatever its size, each way, without
// a pause in it, with one that is shorter than the guard's, and with one that is longer. What
// comes before has just moved the direction, so that the guard's next look leaves it alone.
func TestTails(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for delay, sizes := range tailDelays() {
			t.Run(delay.String(), func(t *testing.T) {
				s := newTailing(t, d, delay)
				defer s.end()
				for i, n := range sizes {
					for _, w := range s.ways {
						s.align(delay * time.Duration(i%8) / 16)
						s.tail(w, n, 0)
						s.align(delay * time.Duration((i+3)%8) / 16)
						s.tail(w, n, delay/8)
						s.tail(w, n, 2*s.bound())
					}
				}
				if s.kept < len(sizes) { // of twice as many each way, except for the largest
					t.Errorf("of all tails a mark held back %d", s.kept)
				}
			})
		}
	})
}

// tail sends n bytes after bulk, with a pause in the middle, and fails if a half is
// late.
func (s *tailing) tail(w *way, n int, pause time.Duration) {
	s.t.Helper()
	s.prime(w)
	s.send(w, raisedMark)
	_, before := w.queue() // a wake-up may have come early, and not all of the bulk have passed
	first := 0
	if pause > 0 {
		first = n / 2
	}
	s.send(w, first)
	since := s.clock.now()
	if pause > s.bound() {
		s.passes(w, since)
		s.walk(pause-s.bound(), never)
		s.prime(w)
	} else if s.walk(pause, never); !s.raised(w) {
		s.t.Fatalf("%d bytes: the mark is lowered in a pause of %v; %v", n, pause, w)
	}
	since = s.clock.now()
	s.send(w, n-first)
	if before == 0 && n < raisedMark && pause <= s.bound() && s.held(w, n) {
		s.kept++
	}
	s.passes(w, since)
}

// TestTailEnds: an end of file below the mark. The guard is never let look.
func TestTailEnds(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, n := range []int{0, 1, 77, 100_000, raisedMark - 1, raisedMark, raisedMark + 1, 1 << 20} {
			s := newTailing(t, d, time.Second)
			for _, w := range s.ways {
				s.prime(w)
			}
			for _, w := range s.ways {
				s.send(w, n)
				must.Do(t, w.from.CloseWrite())
				s.wait(w, "the tail and the end", func() bool { return w.atEOF() && w.through() && !w.wrong.Load() })
			}
			if res, err := s.rig.wait(); err != nil || res.Reason != relay.ReasonEOF || res.AToB.Lost+res.BToA.Lost != 0 {
				t.Fatalf("%d bytes: %+v, %v", n, res, err)
			}
			s.end()
			s.walk(2*s.bound(), never)
			if n := d.raised(t, s.r); n != 0 {
				t.Errorf("the guard looks at %d directions after the end", n)
			}
		}
	})
}

// TestTailReset: a reset below the mark. The guard is never let look, and what had come
// before the reset is delivered or accounted for.
func TestTailReset(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, n := range []int{0, 1, 77, 100_000, raisedMark - 1, raisedMark, raisedMark + 1, 1 << 20} {
			for i := range 2 {
				s := newTailing(t, d, time.Second)
				w := s.ways[i]
				s.prime(w)
				s.send(w, n)
				abort(t, w.from)
				res, err := s.ended()
				if err == nil || res.Reason != relay.ReasonReset {
					t.Fatalf("%d bytes %v: %+v, %v", n, w.name, res, err)
				}
				s.end()
				// What goes out between the count of what is lost and the close is in both. What was
				// under way when the reset overtook it, and met a full receive buffer, is in neither.
				got, underWay := w.received.Load(), int64(2*64<<10)
				if lost := w.flow(res).Lost; got > w.sent || got+lost < w.sent-underWay || w.wrong.Load() {
					t.Fatalf("%d bytes: %d lost; %v: %d sent, %d received", n, lost, w.name, w.sent, got)
				}
				if err := w.err.Load().(error); !errors.Is(err, syscall.ECONNRESET) {
					t.Fatalf("%d bytes %v: the other side sees %v", n, w.name, err)
				}
			}
		}
	})
}

const (
	// raisedMark is half the pipe of a direction that has proved to be bulk.
	raisedMark = 512 << 10
	// loopTick is what a timer of a loop is exact to (loop.Arm): its guard can look no
	// more often than once in it.
	loopTick = 250 * time.Microsecond
)

// A tailing is a session whose time is the test's: nothing but a step of that lets the
// guard look.
type tailing struct {
	*rig
	d     *driving
	r     *relay.Relay
	clock *fakeClock
	delay time.Duration
	ways  [2]*way
	kept  int            // tails that the mark held back at first
	tails int            // that have passed
	again int            // of which it held some back once more; see passes
	heard sync.WaitGroup // the receivers
}

// A way is one of the two directions, with the peers at its ends.
type way struct {
	name     string
	i        int // of A to B 0
	from, to halfConn
	near     near // where the relay reads
	onward   near // where it writes
	flow     func(relay.Result) relay.Flow
	sent     int64 // the filler from 0 on, again and again
	received atomic.Int64
	wrong    atomic.Bool  // other bytes came
	err      atomic.Value // how reading ended; an error
}

// newTailing starts a session of which both directions have proved to be bulk, so that
// a mark is raised whenever a source runs dry.
func newTailing(t *testing.T, d *driving, delay time.Duration) *tailing {
	t.Helper()
	d.proven = true
	r, clock := d.clockedRelay(t, relay.Config{TailDelay: delay})
	g := d.newRig(t, r, tcp, tcp)
	for _, c := range []halfConn{g.A, g.B} {
		_ = c.SetDeadline(time.Time{}) // s.wait bounds each step
	}
	s := &tailing{rig: g, d: d, r: r, clock: clock, delay: delay}
	s.ways = [2]*way{
		{name: "A to B", i: 0, from: g.A, to: g.B, near: g.near[0], onward: g.near[1], flow: func(res relay.Result) relay.Flow { return res.AToB }},
		{name: "B to A", i: 1, from: g.B, to: g.A, near: g.near[1], onward: g.near[0], flow: func(res relay.Result) relay.Flow { return res.BToA }},
	}
	for _, w := range s.ways {
		s.heard.Go(w.receive)
	}
	return s
}

// end cuts the session unless it has ended, and waits for the receivers.
func (s *tailing) end() {
	s.cancel(errors.New("enough"))
	<-s.done
	s.heard.Wait()
}

// receive checks what comes until nothing comes any more.
func (w *way) receive() {
	buf := make([]byte, 256<<10)
	for {
		n, err := w.to.Read(buf)
		if !isFiller(buf[:n], w.received.Load()) {
			w.wrong.Store(true)
		}
		w.received.Add(int64(n))
		if err != nil {
			w.err.Store(err)
			return
		}
	}
}

func (w *way) atEOF() bool { return w.err.Load() == io.EOF }

func (w *way) through() bool { return w.received.Load() == w.sent }

func (w *way) String() string {
	mark, queued := w.queue()
	unacknowledged := 0
	w.onward(func(fd int) { unacknowledged, _ = sys.SIOCOUTQ(fd) })
	return fmt.Sprintf("%s: %d sent, %d received, %d queued at the relay with a mark of %d, %d on the way from it, other bytes %v",
		w.name, w.sent, w.received.Load(), queued, mark, unacknowledged, w.wrong.Load())
}

// queue reads the low-water mark of the relay's source, and how much it has not read.
func (w *way) queue() (mark, queued int) {
	w.near(func(fd int) {
		mark, _ = sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_RCVLOWAT)
		queued, _ = sys.FIONREAD(fd)
	})
	return mark, queued
}

// raised reports whether the mark is raised, and the guard looks after it.
func (s *tailing) raised(w *way) bool {
	mark, _ := w.queue()
	return mark == raisedMark && s.session.Guarded()[w.i]
}

// wait waits for a condition, while the clock stands still.
func (s *tailing) wait(w *way, what string, cond func() bool) {
	s.t.Helper()
	for end := time.Now().Add(condition.Patience); !cond(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in time: %s; %v", what, w)
		}
	}
}

// send sends n bytes, and waits until they have come to the relay and it has done
// what it does of its own accord.
func (s *tailing) send(w *way, n int) {
	s.t.Helper()
	block := filler()
	for n > 0 {
		from := int(w.sent % int64(len(block)))
		m := must.Get(w.from.Write(block[from:min(len(block), from+n)]))(s.t)
		w.sent += int64(m)
		n -= m
	}
	s.wait(w, "all to come to the relay", func() bool {
		moved := w.flow(s.session.Result()).Bytes() // before the queue: what goes on lacks in both
		_, queued := w.queue()
		return moved+int64(queued) == w.sent && queued < raisedMark
	})
	s.rest()
}

// rest lets a loop see what it has been told. A goroutine that waits has seen it.
func (s *tailing) rest() {
	if s.d.onLoop() {
		s.d.looped(s.t, s.r).turn()
	}
}

// prime has the mark raised, and nothing in the way. A goroutine may raise it just when a
// byte has come that was to have it raised; then the guard lowers it.
func (s *tailing) prime(w *way) {
	s.t.Helper()
	s.rest()
	for end := time.Now().Add(condition.Patience); !s.raised(w); {
		if time.Now().After(end) {
			s.t.Fatalf("the mark is not raised; %v", w)
		}
		s.send(w, 1)
		s.wait(w, "a byte to pass", func() bool {
			if _, queued := w.queue(); queued > 0 && s.raised(w) {
				s.walk(s.bound(), w.through)
			}
			return w.through()
		})
	}
}

// bound is how long a tail may wait. A loop cannot look in less than two ticks of its timers.
func (s *tailing) bound() time.Duration {
	if s.d.onLoop() {
		return max(s.delay, 2*loopTick)
	}
	return s.delay
}

// walk moves the time. That of a loop stops wherever its timers may be due, but in a long
// delay, for which that would be too often.
func (s *tailing) walk(d time.Duration, done func() bool) {
	grid := s.delay
	if s.d.onLoop() {
		grid = max(s.delay/40, loopTick)
	}
	s.clock.walk(d, grid, done)
}

func never() bool { return false }

// ended waits for the end of a session of which one side was reset. The other side's acknowledgements are
// looked for by the clock, so the time moves, but by less than the delay: the guard is not let look.
func (s *tailing) ended() (relay.Result, error) {
	s.t.Helper()
	over := func() bool {
		select {
		case <-s.rig.done:
			return true
		default:
			return false
		}
	}
	const step = 5 * time.Millisecond
	for moved := step; moved < s.delay && !over(); moved += step {
		s.walk(step, over)
		time.Sleep(step / 5)
	}
	return s.rig.wait()
}

// align moves the time to where timers of a loop may be due, and by about d on from there.
func (s *tailing) align(d time.Duration) {
	now := s.clock.now()
	s.walk((now+d+loopTick-1).Truncate(loopTick)-now, never)
}

// held fails unless all of the last n bytes wait at the relay, below a raised mark, and
// still do after a small part of the delay: too often is no way to be in time. A goroutine
// may have been about to read when they came, and may come to it late; unless it was the guard
// that woke it, held reports false then.
func (s *tailing) held(w *way, n int) bool {
	s.t.Helper()
	lowered := s.lowered(w)
	for _, after := range []time.Duration{0, s.delay / 8} {
		s.walk(after, never)
		_, queued := w.queue()
		switch {
		case queued == n && s.raised(w):
		case !s.d.onLoop() && s.lowered(w) == lowered:
			return false
		default:
			s.t.Fatalf("%d bytes, after %v: not held by the mark; %v", n, after, w)
		}
	}
	return true
}

// lowered changes with every time that the guard lowers the way's mark, between which bytes move; a
// loop's is always 0. The count of the relay's statistics is not that of a way: the other one,
// quiet meanwhile, loses its mark too.
func (s *tailing) lowered(w *way) int64 {
	if s.d.onLoop() {
		return 0
	}
	return s.session.(*relay.Session).LoweredAt(w.i)
}

// passes fails unless everything is through within the bound from since on.
//
// A goroutine that has just found nothing raises a mark again which the guard has lowered
// at that moment. Only here, where there is nothing left to prove, can it do so before
// that much has been moved (mark.proof); then the bound counts from there. Nor may one have
// come to wait before the time was moved, on a busy machine. Both are the exception: of many
// tails no more than a quarter may need it.
func (s *tailing) passes(w *way, since time.Duration) {
	s.t.Helper()
	lowered := s.r.Stats().Drivers.MarksLowered
	s.walk(since+s.bound()-s.clock.now(), w.through)
	walked, again := time.Now(), 0
	s.wait(w, fmt.Sprintf("the tail within %v", s.bound()), func() bool {
		n := s.r.Stats().Drivers.MarksLowered
		late := n > lowered || time.Since(walked) > time.Second
		if _, queued := w.queue(); !s.d.onLoop() && late && again < 3 && s.raised(w) && queued > 0 {
			lowered, walked = n, time.Now()
			again++
			s.walk(s.bound(), w.through)
		}
		return w.through()
	})
	s.tails++
	if again > 0 {
		s.again++
	}
	if w.wrong.Load() || s.again > 5+s.tails/4 {
		s.t.Fatalf("%d of %d tails were held back once more; %v", s.again, s.tails, w)
	}
}
