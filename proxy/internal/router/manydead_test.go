package router_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// manyDead is how many endpoints an upstream has that refuse.
const manyDead = 2000

// seek has a client look for an endpoint until it is served or refused; each connect takes so long. It returns how
// many were refused, and how long all of that took.
func (r *rig) seek(s *router.Search, connect time.Duration, serves string) (refused int, took time.Duration, served bool) {
	r.t.Helper()
	began := r.clock
	for {
		switch step := s.Next(r.clock); step.Action {
		case worker.Connect:
			r.pass(connect)
			if step.Address.AddrPort.Addr().String() == serves {
				return refused, time.Duration(r.clock - began), true
			}
			if refused++; refused > 20*manyDead {
				r.t.Fatalf("%d connects within %v", refused, time.Duration(r.clock-began))
			}
			s.Failed(syscall.ECONNREFUSED, r.clock)
		case worker.Park, worker.Pause:
			r.pass(max(step.Timeout, time.Microsecond))
		case worker.GiveUp:
			return refused, time.Duration(r.clock - began), false
		default:
			r.t.Fatal(step.Action)
		}
	}
}

// TestHoldBoundsTheSearch: however many endpoints are dead, a client is refused when it has been held, and
// the connects that it causes are bounded: two hundred in a second, and those to endpoints that no client has tried
// before.
func TestHoldBoundsTheSearch(t *testing.T) {
	t.Parallel()

	const hold = 3 * time.Second
	for name, c := range map[string]struct {
		down    bool
		connect time.Duration
		most    int
	}{
		"found by checks":       {true, 20 * time.Microsecond, 64 + 3*200 + 16},
		"not known":             {false, 20 * time.Microsecond, manyDead + 64 + 3*200 + 16},
		"not known, and slowly": {false, 10 * time.Millisecond, 300 + 2 + 16 + 2},
	} {
		r := newRig(t, manyDead, router.SnapshotConfig{Attempts: 2, QueueSize: 10, Hold: hold}, nil)
		for i := range r.members {
			if c.down {
				r.endpoint(i).SetHealthy(false)
			}
		}
		s, _ := r.search()
		refused, took, _ := r.seek(s, c.connect, "")
		t.Logf("%s: %d connects, %v", name, refused, took)
		if limit := hold + 50*time.Millisecond + 18*c.connect; took < hold || took > limit || refused > c.most || refused < 64 {
			t.Errorf("%s: refused after %v and %d connects, want %v to %v, and %d at most", name, took, refused, hold, limit, c.most)
		}
		if n := strings.Count(s.Err().Error(), "connect to"); n > 32 {
			t.Errorf("%s: the error names %d endpoints", name, n)
		}
		s.Close()
		if r.active() != 0 || r.upstream.Waiting() != 0 {
			t.Errorf("%s: %d active, %d wait in the end", name, r.active(), r.upstream.Waiting())
		}
	}
}

// TestOneServesAmongManyDead: a client finds the one endpoint that serves, whether clients are held or not.
func TestOneServesAmongManyDead(t *testing.T) {
	t.Parallel()

	for _, hold := range []time.Duration{0, 3 * time.Second} {
		r := newRig(t, manyDead, router.SnapshotConfig{Attempts: 2, QueueSize: 10, Hold: hold}, nil)
		s, _ := r.search()
		refused, took, served := r.seek(s, 20*time.Microsecond, "10.0.3.200")
		if !served {
			t.Errorf("hold %v: refused after %d connects and %v", hold, refused, took)
		}
		s.Close()
	}
}

// TestOwnFaultsArePaced: a client for which this machine lacks something tries a few endpoints, and waits before it
// tries others.
func TestOwnFaultsArePaced(t *testing.T) {
	t.Parallel()

	r := newRig(t, manyDead, router.SnapshotConfig{Attempts: 2, QueueSize: 10, Hold: 3 * time.Second}, nil)
	s, _ := r.search()
	defer s.Close()
	for tries := 0; ; tries++ {
		step := s.Next(r.clock)
		if step.Action == worker.Park {
			break
		}
		if step.Action != worker.Connect || tries > 40 {
			t.Fatalf("try %d: %v", tries, step.Action)
		}
		s.Failed(syscall.EADDRNOTAVAIL, r.clock)
	}
	r.pass(60 * time.Millisecond)
	if step := s.Next(r.clock); step.Action != worker.Connect {
		t.Errorf("later: %v", step.Action)
	}
}
