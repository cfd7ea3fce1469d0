package relay

import (
	"slices"
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

// FuzzPaced is TestPacedModel, guided by coverage.
func FuzzPaced(f *testing.F) { f.Fuzz(rapid.MakeFuzz(pacedModel)) }

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

// TestPacedSinkBlocks: what is reserved and cannot be read, because the sink is full, is
// given back to the others.
func TestPacedSinkBlocks(t *testing.T) {
	t.Parallel()

	b := NewBucket(1<<20, 0)
	s := b.inForce()
	d, _, _, _ := scripted(copying, []event{{evBytes, 3000}}, []event{{evBlock, 0}})
	c := throttled(d, &Limits{Bandwidth: b})
	before := b.left(s, c.t)
	if w := d.step(); w != waitSink {
		t.Fatal(w)
	}
	if spent := before - b.left(s, c.t); spent != 3000 {
		t.Errorf("%d bytes are missing, 3000 were read", spent)
	}
	d.abandon(false)
}
