package relay

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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

// TestBucketGivesAll: who reserves piece after piece and waits for each gets the burst
// and the whole rate.
func TestBucketGivesAll(t *testing.T) {
	t.Parallel()

	for _, rate := range []int64{1000, 1 << 20, 1e9} {
		b := NewBucket(rate, 0)
		s := b.inForce()
		now, moved := int64(1), int64(0)
		for now < 10e9 {
			n := s.piece(b.left(s, now))
			pos := b.reserve(s, n, now)
			for left := s.after(pos, now); left > 0; left = s.after(pos, now) {
				now += int64(left) + 300e3 // a timer is late
			}
			moved += n
		}
		if want := s.burst + 10*rate; moved < want-want/50 || moved > want+want/50 {
			t.Errorf("at %d bytes a second: %d in 10 s, want %d", rate, moved, want)
		}
	}
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
