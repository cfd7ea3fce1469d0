package relay

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// throttled has a scripted direction keep to limits of bandwidth, as that from A to B.
func throttled(d *direction, l *Limits) *handClock {
	c := &handClock{t: 1}
	other := &direction{link: d.link, held: new(inFlight)}
	new(throttle).start(d, other, l, c)
	return c
}

// TestPacedModel leads a direction through random scripts twice, with a rate and
// without one: it does the same, later, and never faster than the rate.
func TestPacedModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, pacedModel)
}

func pacedModel(t *rapid.T) {
	draw := func(name string, kinds []eventKind) []event {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
			e := event{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
			if e.kind == evBytes {
				e.n = rapid.SampledFrom([]int{1, 3, 100, 4096, 65536, 200000}).Draw(t, "n")
			}
			return e
		}), 0, 20).Draw(t, name)
	}
	source := draw("source", []eventKind{evBytes, evBytes, evBytes, evBlock, evEINTR, evUrgent, evRefuse, evReset})
	sink := draw("sink", []eventKind{evBytes, evBytes, evBlock, evEINTR, evRefuse, evReset})
	m := rapid.SampledFrom([]mode{copying, splicing}).Draw(t, "mode")
	fixed := rapid.Bool().Draw(t, "pinned")
	rate := func(name string) int64 {
		return rapid.SampledFrom([]int64{0, 0, 100, 3000, 1 << 20, 1 << 34}).Draw(t, name)
	}
	burst := rapid.SampledFrom([]int64{0, 1, 5000}).Draw(t, "burst")
	own := Rates{Both: rate("own"), AToB: rate("own from A"), BToA: 1, Burst: rapid.SampledFrom([]int64{0, 1, 5000}).Draw(t, "own burst")}
	shared, fromA := rate("shared"), rate("shared from A")

	run := func(paced bool) (*direction, *scriptedSink) {
		d, src, dst, from := scripted(m, slices.Clone(source), slices.Clone(sink))
		d.set(pinned, fixed)
		var c *handClock
		if paced {
			c = throttled(d, &Limits{
				PerConnection: own, Bandwidth: NewBucket(shared, burst), BandwidthAToB: NewBucket(fromA, burst), BandwidthBToA: NewBucket(1, 1),
			})
			begin := c.t
			lead(t, d, src, dst, from)
			for _, b := range d.pacer().buckets {
				if s := b.inForce(); s != nil && int64(src.given) > s.burst+s.by(c.t)-s.by(begin) {
					t.Fatalf("read %d bytes in %v at a rate of %d", src.given, time.Duration(c.t-begin), s.rate)
				}
			}
		} else {
			lead(t, d, src, dst, from)
		}
		checkEnd(t, d, src, dst, from)
		if paced {
			checkRepaid(t, d, int64(src.given))
		}
		return d, dst
	}
	d, dst := run(true)
	e, same := run(false)
	if !slices.Equal(dst.got, same.got) || d.flow().Reason != e.flow().Reason || dst.ended != same.ended {
		t.Fatalf("with a rate: %d bytes, %v, %d ends; without: %d, %v, %d",
			len(dst.got), d.flow().Reason, dst.ended, len(same.got), e.flow().Reason, same.ended)
	}
}

// checkRepaid: what was reserved and not read has been given back.
func checkRepaid(t *rapid.T, d *direction, read int64) {
	w := d.pacer()
	if w.grant != 0 || w.reserved != (reserved{}) {
		t.Fatalf("keeps %d bytes after its end", w.grant)
	}
	for _, b := range w.buckets {
		if s := b.inForce(); s != nil && b.spent.Load() > s.by(w.clock.now())-s.burst+max(read, s.burst) {
			t.Fatalf("%d bytes read, the bucket is at %d of %d", read, b.spent.Load(), s.by(w.clock.now()))
		}
	}
}

// TestPacedSplices: bulk is spliced however slow the rate is, though each read is
// small, and its pipes stay small.
func TestPacedSplices(t *testing.T) {
	t.Parallel()

	for _, rate := range []int64{5000, 1 << 20, 1 << 30} {
		d, src, dst, from := scripted(copying, []event{{evBytes, 4 << 20}}, nil)
		*d.env().tune = Config{}.withDefaults()
		throttled(d, &Limits{Bandwidth: NewBucket(rate, 0)})
		lead(t, d, src, dst, from)
		f := d.flow()
		if f.Copied > 4*bufferSize || f.Bytes() != 4<<20 || f.Reason != ReasonEOF {
			t.Errorf("at %d bytes a second: %+v", rate, f)
		}
		if rate <= 1<<20 && slices.Max(from.sizes) > 64<<10 {
			t.Errorf("at %d bytes a second a pipe of %d", rate, slices.Max(from.sizes))
		}
		checkEnd(t, d, src, dst, from)
	}
}

// TestPacedAsksFirst: a direction that must wait reserves what is queued and no more;
// where nothing is, it does not wait at all.
func TestPacedAsksFirst(t *testing.T) {
	t.Parallel()

	b := NewBucket(1<<20, 4096)
	d, src, dst, from := scripted(copying, []event{{evBytes, 4096}, {evBlock, 0}, {evBytes, 10}}, nil)
	c := throttled(d, &Limits{Bandwidth: b})
	if w := d.step(); w != waitSource || src.given != 4096 {
		t.Fatalf("step ends with %v after %d bytes; want to wait for the source", w, src.given)
	}
	src.wake()
	if w := d.step(); w != waitTokens || from.buffers != 0 {
		t.Fatalf("step ends with %v, %d buffers; want to wait for the rate", w, from.buffers)
	}
	if w := d.pacer(); w.grant != 10 {
		t.Errorf("%d bytes reserved, 10 are queued", w.grant)
	}
	if n := b.Waits(); n != 1 {
		t.Errorf("%d waits counted", n)
	}
	if d.rested() {
		t.Error("rested at once")
	}
	c.t += int64(d.pacer().remaining(c.t))
	if !d.rested() {
		t.Error("its turn has come, and it has not rested")
	}
	lead(t, d, src, dst, from)
	checkEnd(t, d, src, dst, from)
}

// TestPacedAhead: what a wrapper had read before the session counts too.
func TestPacedAhead(t *testing.T) {
	t.Parallel()

	b := NewBucket(1<<20, 0)
	s := b.inForce()
	d, _, dst, _ := scripted(copying, nil, nil)
	d.setAhead(make([]byte, 5000))
	before := b.left(s, 1)
	throttled(d, &Limits{Bandwidth: b})
	if w := d.step(); w != waitDone || len(dst.got) != 5000 {
		t.Fatalf("%v after %d bytes", w, len(dst.got))
	}
	if spent := before - b.left(s, 1); spent != 5000 {
		t.Errorf("%d bytes are missing, 5000 were moved", spent)
	}
}

// A handClock is moved by hand, and has no timers.
type handClock struct{ t int64 }

func (c *handClock) now() int64 { return c.t }

func (c *handClock) afterFunc(time.Duration, func()) timer { panic("a handClock has no timers") }

// TestBucketKeepsRate: whatever is reserved and given back at whatever times, what may
// be read up to a time is no more than the burst and what the rate has given, and
// those who ask for everything get nearly that.
func TestBucketKeepsRate(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int64{1, 10, 1000, 1 << 20, 125e6, 1e10, mostRate - 1}).Draw(t, "rate")
		burst := rapid.SampledFrom([]int64{0, 1, 1000, 1 << 20}).Draw(t, "burst")
		b := NewBucket(rate, burst)
		s := b.inForce()
		now := rapid.Int64Range(0, 1<<55).Draw(t, "start")
		begin, moved := now, int64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			piece := s.piece(b.left(s, now))
			if piece < 1 || piece > max(s.burst, 1) {
				t.Fatalf("a piece of %d bytes with a burst of %d", piece, s.burst)
			}
			pos := b.reserve(s, piece, now)
			for left := s.after(pos, now); left > 0; left = s.after(pos, now) {
				now += int64(left)
			}
			unused := rapid.Int64Range(0, piece).Draw(t, "unused")
			b.refund(unused)
			moved += piece - unused
			if most := s.burst + s.by(now) - s.by(begin); moved > most {
				t.Fatalf("moved %d bytes in %v, at most %d may be", moved, time.Duration(now-begin), most)
			}
			if rapid.Bool().Draw(t, "idle") {
				now += rapid.Int64Range(0, 1e10).Draw(t, "pause")
			}
		}
	})
}

// TestBucketServesInTurn: of many who wait each gets as much as the others, and what
// one gets at a time becomes smaller the more there are.
func TestBucketServesInTurn(t *testing.T) {
	t.Parallel()

	const rate = 10 << 20
	for _, many := range []int{1, 10, 1000} {
		b := NewBucket(rate, 0)
		s := b.inForce()
		now := int64(1)
		pos, piece, got := make([]int64, many), make([]int64, many), make([]int64, many)
		take := func(i int) {
			piece[i] = s.piece(b.left(s, now))
			pos[i] = b.reserve(s, piece[i], now)
		}
		for i := range pos {
			take(i)
		}
		longest := time.Duration(0)
		for ; now < 60e9; now += int64(time.Millisecond) {
			for i := range pos {
				for s.after(pos[i], now) == 0 {
					got[i] += piece[i]
					take(i)
					longest = max(longest, time.Duration((pos[i]-s.by(now))*1e9/rate))
				}
			}
		}
		least, most := got[0], got[0]
		for _, n := range got {
			least, most = min(least, n), max(most, n)
		}
		if 4*least < 3*most {
			t.Errorf("%d who wait got between %d and %d bytes", many, least, most)
		}
		if bound := 2*pieceTime + time.Duration(many)*leastPiece*time.Second/rate; longest > 3*bound {
			t.Errorf("%d who wait: one waited %v", many, longest)
		}
	}
}

// TestBucketSetRate: a new rate counts from when it was set; what was owed stays owed.
func TestBucketSetRate(t *testing.T) {
	t.Parallel()

	b := NewBucket(1000, 500)
	var now int64 = 1e9
	s := b.inForce()
	pos := b.reserve(s, 2500, now) // 2 s of supply are owed
	if left := s.after(pos, now); left != longestNap {
		t.Fatalf("naps %v, want %v at most", left, longestNap)
	}
	b.set(10_000, 500, now+1e9) // 1 s of them is over
	s = b.inForce()
	if left := s.after(pos, now+1e9); left < 99*time.Millisecond || left > 101*time.Millisecond {
		t.Errorf("waits %v for 1,000 bytes at ten times the rate", left)
	}
	b.set(0, 500, now+1e9)
	if b.inForce() != nil || b.Rate() != 0 {
		t.Error("a rate of 0 is in force")
	}
	b.set(1000, 500, now+2e9)
	s = b.inForce()
	if left := b.left(s, now+2e9); left != 500 {
		t.Errorf("%d bytes are left after a time without limit, want the burst", left)
	}
	b.set(2000, 500, now+2e9)
	if left := b.left(b.inForce(), now+2e9); left != 500 {
		t.Errorf("%d bytes are left after a change of a full bucket", left)
	}
	b.set(2000, 1000, now+2e9)
	if left := b.left(b.inForce(), now+2e9); left != 500 {
		t.Errorf("%d bytes are left at once after the burst has grown", left)
	}
	if left := b.left(b.inForce(), now+12e9); left != 1000 {
		t.Errorf("%d bytes are left later, want the burst", left)
	}
	b.set(2000, 300, now+12e9)
	if left := b.left(b.inForce(), now+12e9); left != 300 {
		t.Errorf("%d bytes are left after the burst has shrunk", left)
	}
	b.set(1<<20, 0, now+12e9)
	if s := b.inForce(); s.burst != 1<<20/burstShare {
		t.Errorf("the burst is %d", s.burst)
	}
}

// TestBucketShared: many goroutines reserve at once; none of it is lost or counted twice.
func TestBucketShared(t *testing.T) {
	t.Parallel()

	b := NewBucket(1<<30, 1<<40)
	s := b.inForce()
	before := b.left(s, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				b.reserve(s, 3, 0)
				b.refund(1)
			}
		})
	}
	wg.Wait()
	if spent := before - b.left(s, 0); spent != 8*10_000*2 {
		t.Errorf("%d bytes spent, want %d", spent, 8*10_000*2)
	}
}
