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
	"github.com/penstock/penstock/proxy/admin"
)

// passive is an upstream that detects failures by its clients alone.
const passive = `health_check: off, circuit_breaker: off, retry: {attempts: 1, backoff: 1ms},
	outlier_detection: {consecutive_failures: 3, base_ejection_time: 2s}`

// TestFrozen: the kernel of a stopped process still accepts connections, and the process does not
// answer. Established sessions end by the idle timeout. New clients are reset after the
// first-byte timeout, and the endpoint is ejected.
func TestFrozen(t *testing.T) {
	t.Parallel()
	for _, m := range manners {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if netns.Alone(t) {
				testFrozen(t, m)
			}
		})
	}
}

func testFrozen(t *testing.T, m manner) {
	const firstByte = 400 * time.Millisecond
	s := play(t, m, netns.Echo, "timeouts: {first_byte: 400ms, idle: 2s, half_close: 1500ms}", passive)
	busy, half := s.session("victim"), s.session("victim")
	s.victim.Freeze()
	must(t, half.Conn.(interface{ CloseWrite() error }).CloseWrite())
	if _, err := io.WriteString(busy, "is anybody there?"); err != nil {
		t.Fatal(err)
	}
	for failed := 0; failed < 3; {
		began := time.Now()
		switch c, err := s.ask(); {
		case err == nil && c.of == "other":
			c.Close()
		case !errors.Is(err, syscall.ECONNRESET):
			t.Fatalf("a client of the frozen endpoint: %v, %v", c, err)
		default:
			failed++
			if took := time.Since(began); took < firstByte/2 {
				t.Errorf("the reset took %v", took)
			}
		}
	}
	s.ejected()
	s.served(4)
	if e := s.Endpoint("u", "victim"); e.Failures != 3 || s.Count("failures") != 3 || s.Count("retries") != 0 {
		t.Errorf("%+v, %d failures, %d retries", e, s.Count("failures"), s.Count("retries"))
	}
	s.Logs("session ended", s.victim.Addr.String(), "reason=first-byte-timeout")
	busy.reset(t)
	s.Logs("session ended", s.victim.Addr.String(), "reason=idle-timeout")
	half.reset(t)
	s.Logs("session ended", s.victim.Addr.String(), "reason=half-close-timeout")
	s.untouched()
	s.victim.Thaw()
	s.returns()
}

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

// TestResets: an endpoint that resets each connection it has accepted is ejected.
func TestResets(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	s := play(t, manners[0], netns.Reset, "timeouts: {first_byte: 5s}", passive)
	s.Until("the victim is ejected", func() bool {
		c, err := s.ask()
		switch {
		case err == nil && c.of == "other":
			c.Close()
		case !errors.Is(err, syscall.ECONNRESET):
			t.Fatalf("a client of an endpoint that resets: %v, %v", c, err)
		}
		return s.Endpoint("u", "victim").State == admin.Ejected
	})
	s.ejected()
	if e := s.Endpoint("u", "victim"); e.Failures != 3 {
		t.Errorf("%+v, want 3 failures", e)
	}
	s.served(4)
	s.victim.Kill()
	s.there.Backend("victim", netns.Echo, s.victim.Addr)
	s.returns()
}

// TestKilled: when a process is killed, bytes it has not read reset their session, which is not
// taken for an orderly end. Another session ends by the kernel's end of file.
func TestKilled(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	s := play(t, manners[0], netns.Echo, "timeouts: {connect: 1s}", checked)
	idle, busy := s.session("victim"), s.session("victim")
	s.victim.Freeze()
	if _, err := io.WriteString(busy, "unread"); err != nil {
		t.Fatal(err)
	}
	s.Until("the bytes have arrived", func() bool { return moved(s) })
	s.victim.Kill()
	busy.reset(t)
	if _, err := idle.end(t); !errors.Is(err, io.EOF) {
		t.Errorf("an idle session ended with %v", err)
	}
	idle.Close()
	s.served(4)
	s.down()
	s.untouched()
	s.there.Backend("victim", netns.Echo, s.victim.Addr)
	s.returns()
}

// moved reports whether a session with the victim has forwarded bytes to it.
func moved(s *scene) bool {
	list, err := s.Sessions(s.T.Context(), admin.SessionQuery{}, admin.SessionOrder{})
	must(s.T, err)
	for c := range list.Sessions {
		if c.Name == "victim" && c.Bytes.ClientToEndpoint.All() > 0 {
			return true
		}
	}
	return false
}

// checked is an upstream whose endpoints are checked for an answer.
const checked = `outlier_detection: off, circuit_breaker: off, retry: {attempts: 1, backoff: 1ms},
	health_check: {interval: 50ms, fast_interval: 20ms, timeout: 200ms, rise: 2, fall: 2, expect: "\n"}`

// down waits until the victim's checks have failed.
func (s *scene) down() {
	s.T.Helper()
	s.Until("the victim is down", func() bool { return s.Endpoint("u", "victim").State == admin.Down })
	if e := s.Endpoint("u", "victim"); e.Why == "" {
		s.T.Errorf("%+v, want a reason", e)
	}
	if e := s.Endpoint("u", "other"); e.State != admin.Up || e.Failures != 0 {
		s.T.Errorf("the other endpoint: %+v", e)
	}
}

// TestUnhealthy: checks find a stopped process before any client does, and its sessions are
// handled as on_unhealthy says.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	for how, test := range map[string]func(t *testing.T, s *scene, busy *client){
		"reset": func(t *testing.T, _ *scene, busy *client) { busy.reset(t) },
		"drain": func(t *testing.T, _ *scene, busy *client) {
			if took := busy.reset(t); took < 300*time.Millisecond {
				t.Errorf("the session was cut after %v", took)
			}
		},
		"keep": func(t *testing.T, s *scene, busy *client) {
			s.victim.Thaw()
			text := make([]byte, len(question))
			if _, err := io.ReadFull(busy, text); err != nil || string(text) != question {
				t.Errorf("%q, %v", text, err)
			}
			if err := busy.echo("still the same"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if !netns.Alone(t) {
				return
			}
			s := play(t, manners[0], netns.Echo, "timeouts: {idle: 1h}", checked+", drain_timeout: 700ms, on_unhealthy: "+how)
			busy := s.session("victim")
			s.victim.Freeze()
			if _, err := io.WriteString(busy, question); err != nil {
				t.Fatal(err)
			}
			s.down()
			s.served(4)
			if n := s.Count("failures"); n != 0 {
				t.Errorf("%d failures of clients", n)
			}
			s.untouched()
			test(t, s, busy)
			s.victim.Thaw()
			s.returns()
		})
	}
}

const question = "is anybody there?"
