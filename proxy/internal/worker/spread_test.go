package worker_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestSpread: the last step is at the end of the time, the first one not before nine tenths of
// it, and each has about as many of the sessions.
func TestSpread(t *testing.T) {
	t.Parallel()

	const clients = 100_000
	for _, within := range []time.Duration{time.Nanosecond, time.Millisecond, 150 * time.Millisecond, time.Second, 30 * time.Second, 5 * time.Minute, 8760 * time.Hour} {
		s := worker.NewSpread(within)
		last := s.First + time.Duration(s.Steps-1)*s.Every
		if last != within || within-s.First > within/10 || within-s.First > 30*time.Second || s.Steps < 1 || s.Steps > 50 || s.Steps > 1 && s.Every < 10*time.Millisecond {
			t.Errorf("%v: %+v, the last step after %v", within, s, last)
		}
		left := clients
		for step := range s.Steps {
			n := 0
			for range left {
				if s.Cuts(step) {
					n++
				}
			}
			left -= n
			if fair := clients / s.Steps; n < fair/2 || n > 2*fair { // more than ten standard deviations
				t.Errorf("%v: %d are cut in step %d of %d", within, n, step, s.Steps)
			}
		}
		if left != 0 {
			t.Errorf("%v: %d are left", within, left)
		}
	}
	if s := worker.NewSpread(30 * time.Second); s.Steps != 50 || s.Every != 60*time.Millisecond {
		t.Errorf("of 30 s: %+v", s)
	}
}
