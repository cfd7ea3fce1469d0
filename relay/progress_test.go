package relay_test

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestSessionIdle: for how long nothing has moved is known where there is a timeout for
// that.
func TestSessionIdle(t *testing.T) {
	t.Parallel()

	for cfg, want := range map[[2]time.Duration]bool{{time.Hour, 0}: true, {0, time.Hour}: true, {}: false} {
		timeout, legs := cfg[0], cfg[1]
		r, clock := clockedRelay(t, relay.Config{Engine: relay.EngineCopy, IdleTimeout: timeout, LegsAfter: legs})
		a, nearA := tcp(t)
		b, nearB := tcp(t)
		s := r.NewSession(nearA, nearB)
		if _, known := s.Idle(); known {
			t.Error("it is known before it runs")
		}
		ended := start(t, s)
		idle := func(want time.Duration, known bool) {
			t.Helper()
			if d, k := s.Idle(); d != want || k != known {
				t.Errorf("with times of %v: %v, %v, want %v, %v", cfg, d, k, want, known)
			}
		}
		clock.advance(3 * time.Second)
		if want {
			idle(3*time.Second, true)
		} else {
			idle(0, false)
		}
		if _, err := a.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); want && time.Since(begin) < patience; time.Sleep(time.Millisecond) { // it is noted after the byte was sent
			if d, _ := s.Idle(); d == 0 {
				break
			}
		}
		clock.advance(2 * time.Second)
		if want {
			idle(2*time.Second, true)
		}
		_ = a.CloseWrite()
		_ = b.CloseWrite()
		if o := end(t, ended); o.err != nil {
			t.Error(o.err)
		}
	}
}
