package relay

import (
	"testing"
	"time"
)

// TestLifetimeJitter: lifetimes are spread over their last part, evenly, and a session's
// does not change.
func TestLifetimeJitter(t *testing.T) {
	t.Parallel()

	l := &Limits{MaxLifetime: 1000 * time.Second, LifetimeJitter: 0.1}
	var tenths [10]int
	for seed := range int64(10_000) {
		life := l.lifetime(seed)
		if life != l.lifetime(seed) {
			t.Fatal("a session's lifetime has changed")
		}
		less := l.MaxLifetime - life
		if less < 0 || less >= 100*time.Second {
			t.Fatalf("a lifetime of %v", life)
		}
		tenths[less/(10*time.Second)]++
	}
	for i, n := range tenths {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 10,000 lifetimes are in tenth %d of the jitter", n, i)
		}
	}
	for _, c := range []struct {
		jitter float64
		least  time.Duration
	}{{0, time.Second}, {-1, time.Second}, {1, 1}, {5, 1}} {
		l := &Limits{MaxLifetime: time.Second, LifetimeJitter: c.jitter}
		for seed := range int64(100) {
			if life := l.lifetime(seed); life < c.least || life > time.Second {
				t.Errorf("jitter %v: a lifetime of %v", c.jitter, life)
			}
		}
	}
	if life := (&Limits{LifetimeJitter: 0.1}).lifetime(1); life != 0 {
		t.Errorf("no limit became %v", life)
	}
}
