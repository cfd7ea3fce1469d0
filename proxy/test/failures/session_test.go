package failures

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
)

// passive is an upstream that detects failures by its clients alone.
const passive = `health_check: off, circuit_breaker: off, retry: {attempts: 1, backoff: 1ms},
	outlier_detection: {consecutive_failures: 3, base_ejection_time: 2s}`

// TestFrozenReader: an upload to a stopped process, which no longer reads, goes on when that does, however long its window was
// closed: its kernel answers all probes. Once that is gone as well the upload ends within user_timeout.
func TestFrozenReader(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	const userTimeout, size = 400 * time.Millisecond, 64 << 20
	s := play(t, manners[0], netns.Echo, "timeouts: {idle: 1h}, socket: {user_timeout: 400ms}", passive)
	up := s.session("victim")
	_ = up.SetDeadline(time.Now().Add(condition.Patience))

	s.victim.Freeze()
	ended := s.stalls(up, size, youth+4*userTimeout)
	s.victim.Thaw()
	if n, err := io.CopyN(io.Discard, up, size); err != nil {
		t.Fatalf("%d of %d bytes come back, then %v", n, size, err)
	}
	must(t, <-ended)

	s.victim.Freeze()
	ended = s.stalls(up, 8*size, 2*userTimeout) // buffers have grown
	s.there.Silence(s.link.Near)
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the upload ended with %v", err)
	}
	s.Logs("session ended", s.victim.Addr.String(), "timed out")
	s.untouched()
}

// stalls has a client send so many bytes, and returns once nothing was taken of them for so long, with the end of that.
func (s *scene) stalls(up io.Writer, size int64, quiet time.Duration) (ended <-chan error) {
	s.T.Helper()
	var wrote atomic.Int64
	end := make(chan error, 1)
	go func() {
		var err error
		for piece := make([]byte, 64<<10); err == nil && wrote.Load() < size; {
			_, err = up.Write(piece)
			wrote.Add(int64(len(piece)))
		}
		end <- err
	}()
	still, since := int64(-1), time.Now()
	s.Until("nothing is taken any more", func() bool {
		if n := wrote.Load(); n != still {
			still, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
	if still >= size {
		s.T.Fatal("all was taken by buffers")
	}
	return end
}

// TestMute: a process accepts and never answers. Its breaker keeps clients away, lets some
// through for trial, and lets all through when the trials have succeeded.
func TestMute(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	s := play(t, manners[0], netns.Silent, "timeouts: {first_byte: 300ms}", `health_check: off, outlier_detection: off,
		circuit_breaker: {min_volume: 3, failure_percentage: 80, open: 1s, trial_connections: 2}`)
	s.Until("the victim's breaker is open", func() bool {
		switch c, err := s.ask(); {
		case err == nil && c.of == "other":
			c.Close()
		case !errors.Is(err, syscall.ECONNRESET):
			t.Fatalf("a client of a mute endpoint: %v, %v", c, err)
		}
		return s.Endpoint("u", "victim").Breaker == "open"
	})
	if e := s.Endpoint("u", "victim"); e.Failures != 3 {
		t.Errorf("%+v, want 3 failures", e)
	}
	s.served(4)
	s.victim.Kill()
	s.there.Backend("victim", netns.Echo, s.victim.Addr)
	s.Until("the victim may be tried", func() bool { return s.Endpoint("u", "victim").Breaker == "half-open" })
	s.Until("the victim's breaker is closed, after trials", func() bool {
		if c, err := s.ask(); err == nil {
			c.Close()
		}
		return s.Endpoint("u", "victim").Breaker == ""
	})
	s.returns()
}
