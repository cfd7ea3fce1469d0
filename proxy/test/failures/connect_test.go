package failures

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/netns"
)

// An outage makes an endpoint unreachable, and mends it.
type outage struct {
	fail, mend func(*scene)
	timeout    bool   // a connection attempt fails only by its timeout
	ends       error  // how a session with bytes in flight ends
	cause      string // the logged cause of that end
}

var outages = map[string]outage{
	"refused": {
		fail: func(s *scene) { s.victim.Kill() },
		mend: func(s *scene) { s.there.Backend("victim", netns.Echo, s.victim.Addr) },
		ends: io.EOF, // the kernel closes the sockets of a dead process
	},
	"no route": {
		fail: func(s *scene) { s.here.RemoveRoute(s.own) },
		mend: func(s *scene) { s.here.Route(s.own, s.link.Far) },
		ends: syscall.ECONNRESET, cause: "timed out",
	},
	"prohibited": {
		fail: func(s *scene) { s.here.RemoveRoute(s.own); s.here.Prohibit(s.own) },
		mend: func(s *scene) { s.here.RemoveRoute(s.own); s.here.Route(s.own, s.link.Far) },
		ends: syscall.ECONNRESET, cause: "timed out",
	},
	"silence": {
		fail:    func(s *scene) { s.there.Silence(s.link.Near) },
		mend:    func(s *scene) { s.there.RemoveRoute(s.link.Near) },
		timeout: true, ends: syscall.ECONNRESET, cause: "timed out",
	},
	"link down": {
		fail:    func(s *scene) { s.there.Cut(s.link) },
		mend:    func(s *scene) { s.there.Mend(s.link) },
		timeout: true, ends: syscall.ECONNRESET, cause: "timed out",
	},
}

// TestOutOfReach: an endpoint that cannot be connected to costs no client, only the time to find
// out. Its sessions end within their timeout.
func TestOutOfReach(t *testing.T) {
	t.Parallel()
	for _, m := range manners {
		for name, o := range outages {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				if netns.Alone(t) {
					o.test(t, m)
				}
			})
		}
	}
}

func (o *outage) test(t *testing.T, m manner) {
	const connect, keepAlive, userTimeout = 500 * time.Millisecond, time.Second, time.Second
	s := play(t, m, netns.Echo, "timeouts: {connect: 500ms}, socket: {keepalive: 1s, user_timeout: 1s}",
		`health_check: off, circuit_breaker: off, retry: {attempts: 1, backoff: 1ms},
		outlier_detection: {consecutive_failures: 3, base_ejection_time: 1s}`)
	busy, quiet := s.session("victim"), s.session("victim")
	o.fail(s)
	began := time.Now()
	s.served(6)
	took := time.Since(began)
	if o.timeout && took < 3*connect {
		t.Errorf("three timed-out connections took %v", took)
	}
	s.ejected()
	s.untouched()
	if e := s.Endpoint("u", "victim"); e.Failures < 3 || s.Count("retries") != e.Failures || s.Count("failures") != e.Failures {
		t.Errorf("%+v, %d retries, %d failures", e, s.Count("retries"), s.Count("failures"))
	}
	_, busy.failed = busy.Write([]byte("is anybody there?")) // it may have ended before
	for what, c := range map[string]*client{"has bytes on their way": busy, "is quiet": quiet} {
		_, err := c.end(t)
		took := time.Since(began)
		t.Logf("the session that %s ended %v after the beginning: %v", what, took, err)
		if !errors.Is(err, o.ends) {
			t.Errorf("the session that %s ended with %v, want %v", what, err, o.ends)
		}
		if took > 10*(youth+keepAlive+userTimeout) {
			t.Errorf("the session that %s took %v to end", what, took)
		}
		c.Close()
	}
	s.Logs("session ended", s.victim.Addr.String(), o.cause)
	s.untouched()
	o.mend(s)
	s.returns()
}

// youth is the maximum age of a session before its endpoint's socket has all of its options.
const youth = 2 * time.Second
