package limit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/limit"
)

// TestRate: at most the burst at once, and then one whenever the rate gives one.
func TestRate(t *testing.T) {
	r := limit.NewRate(10, 3)
	now := int64(5e9)
	for range 3 {
		if !r.Take(now) {
			t.Fatal("refused within the burst")
		}
	}
	if r.Take(now) || r.Until(now) != 100*time.Millisecond {
		t.Fatalf("another one in %v, want 100ms", r.Until(now))
	}
	now += 100e6
	if r.Until(now) != 0 || !r.Take(now) || r.Take(now) {
		t.Error("want one after 100 ms")
	}
	r.Spend(now)
	r.Spend(now)
	if left := r.Until(now); left != 300*time.Millisecond {
		t.Errorf("another one in %v after two too many, want 300ms", left)
	}
	now += 1e12
	for range 3 {
		if !r.Take(now) {
			t.Error("refused after a long time")
		}
	}
	if r.Take(now) {
		t.Error("the burst has grown")
	}
	r.Set(0, 0)
	if !r.Take(now) || r.Until(now) != 0 || r.PerSecond() != 0 {
		t.Error("refused without a limit")
	}
	r.Set(0.5, 0)
	if r.PerSecond() != 0.5 {
		t.Error(r.PerSecond())
	}
	var none limit.Rate
	if none.Spend(now); !none.Take(now) {
		t.Error("the zero value refuses")
	}
}

// TestRateAsReference: it decides as golang.org/x/time/rate does.
func TestRateAsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.SampledFrom([]float64{0.1, 1, 2, 10, 1000, 1e6}).Draw(t, "rate")
		burst := rapid.IntRange(1, 20).Draw(t, "burst")
		r, ref := limit.NewRate(perSecond, burst), rate.NewLimiter(rate.Limit(perSecond), burst)
		now, base := int64(1e12), time.Unix(0, 0)
		for range 200 {
			// Not where a token is just due: the reference counts in floating point.
			now += rapid.SampledFrom([]int64{0, 0, 13, 77_777, 333_333, 7_777_777, 999e6, 21e9}).Draw(t, "pause")
			want, got := ref.AllowN(base.Add(time.Duration(now)), 1), r.Take(now)
			if want != got {
				// One that is off by rounding is due within a moment.
				if r.Until(now) > time.Microsecond && !got {
					t.Fatalf("%v, the reference returns %v; the next in %v", got, want, r.Until(now))
				}
				t.Skip("a token that is due right now")
			}
		}
	})
}

// TestRateShared: many loops together get as many as the rate gives, and not one more.
func TestRateShared(t *testing.T) {
	r := limit.NewRate(1000, 50)
	var let atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(5000) {
				if r.Take(1e9 + i*1e6) { // five seconds
					let.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := let.Load(); n > 5000+50 || n < 4900 {
		t.Errorf("%d let through, want 5,050", n)
	}
}

func BenchmarkRate(b *testing.B) {
	r := limit.NewRate(1e6, 1e6)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for now := int64(0); pb.Next(); now += 1000 {
				r.Take(now)
			}
		})
	})
	ref := rate.NewLimiter(1e6, 1e6)
	b.Run("x/time/rate", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for now := time.Now(); pb.Next(); now = now.Add(1000) {
				ref.AllowN(now, 1)
			}
		})
	})
}

// TestRateGivenBack: a connection that does not count leaves the rate as it was, and gives no
// client more than the rate does.
func TestRateGivenBack(t *testing.T) {
	r := limit.NewRate(10, 3)
	now := int64(5e9)
	for range 3 {
		r.Spend(now)
	}
	for range 3 {
		r.Spend(now)
		r.GiveBack(now)
		if left := r.Until(now); left != 100*time.Millisecond {
			t.Fatalf("another one in %v, want 100ms", left)
		}
	}
	now += 1e12
	for range 5 {
		r.GiveBack(now) // long after the time gave them back
	}
	for range 3 {
		if !r.Take(now) {
			t.Error("refused after a long time")
		}
	}
	if r.Take(now) {
		t.Error("the burst has grown")
	}
	r.Set(0, 0)
	r.GiveBack(now)
	var none limit.Rate
	if none.GiveBack(now); !none.Take(now) {
		t.Error("the zero value refuses")
	}
}
