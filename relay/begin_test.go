package relay_test

import (
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestLooksWhileItBegins: everything that may be called at any time by any goroutine may be while the session
// begins. The race detector is the judge.
func TestLooksWhileItBegins(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{LegsAfter: time.Hour})
	for range 20 {
		farA, a := tcp(t)
		farB, b := tcp(t)
		s := r.NewSession(a, b)
		s.Limit(&relay.Limits{BandwidthAToB: relay.NewBucket(1<<20, 0)})
		var looks sync.WaitGroup
		for range 2 {
			looks.Go(func() {
				for known := false; !known; { // Idle takes no lock, which would order it behind the beginning
					_, known = s.Idle()
				}
				s.Quiet(quietLeast)
				s.Look()
				s.Legs()
				s.Result()
			})
		}
		ends := start(t, s)
		looks.Wait()
		_, _ = farA.CloseWrite(), farB.CloseWrite()
		end(t, ends)
	}
}
