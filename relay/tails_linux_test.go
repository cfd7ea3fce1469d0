package relay_test

import (
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/race"
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
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
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
				if s.kept < len(sizes) { // of twice as many each way, but for the largest
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
	t.Parallel()
	eachDriver(t, testTailEnds)
}

func testTailEnds(t *testing.T, d *driving) {
	for _, n := range []int{0, 1, 77, 100_000, raisedMark - 1, raisedMark, raisedMark + 1, 1 << 20} {
		s := newTailing(t, d, time.Second)
		for _, w := range s.ways {
			s.prime(w)
		}
		for _, w := range s.ways {
			s.send(w, n)
			if err := w.from.CloseWrite(); err != nil {
				t.Fatal(err)
			}
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
}

// TestTailReset: a reset below the mark. The guard is never let look, and what had come
// before the reset is delivered or accounted for.
func TestTailReset(t *testing.T) {
	t.Parallel()
	eachDriver(t, testTailReset)
}

func testTailReset(t *testing.T, d *driving) {
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
}

// TestTailsInTime is [TestTails] by the system's clock, ten times the bound being allowed
// and a scheduler that is busy elsewhere: of some tries, each way, one has to be in
// time.
func TestTailsInTime(t *testing.T) {
	full.Only(t, "it measures by the system's clock")
	if race.Enabled {
		t.Skip("the detector is slower than the bound")
	}
	const bound, tries = 10 * time.Millisecond, 8
	eachDriver(t, func(t *testing.T, d *driving) {
		d.proven = true
		r := newRelay(t, nil)
		g := d.newRig(t, r, tcp, tcp)
		raised := 0
		for _, n := range []int{1, 4096, 100_000, raisedMark + 1, 1 << 20} {
			for i, way := range [][2]halfConn{{g.A, g.B}, {g.B, g.A}} {
				best := time.Hour
				for try := 0; try < tries && best > bound; try++ {
					best = min(best, timeTail(t, way[0], way[1], n))
					raised += d.raised(t, r)
				}
				if best > bound {
					t.Errorf("%d bytes, way %d: the last came %v late at best", n, i, best)
				}
			}
		}
		if raised == 0 {
			t.Error("no mark was raised meanwhile")
		}
	})
}

// timeTail sends n bytes and returns how long after the last was sent all had come.
func timeTail(t *testing.T, from, to halfConn, n int) time.Duration {
	t.Helper()
	sent := make(chan time.Time, 1)
	go func() {
		_, _ = from.Write(filler()[:n])
		sent <- time.Now()
	}()
	got := make([]byte, n)
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	took := time.Since(<-sent)
	if !isFiller(got, 0) {
		t.Fatalf("%d bytes: other ones came", n)
	}
	return took
}
