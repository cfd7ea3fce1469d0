package dispatch_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
)

// occupied is a rig whose only endpoint is at its limit of one session, which is returned.
func occupied(t *testing.T, vc dispatch.ViewConfig) (*rig, core.Bond) {
	t.Helper()
	r := newRig(t, 1, vc, nil)
	return r, r.occupy()
}

// occupy sets the limit of the only endpoint to one session, and returns that.
func (r *rig) occupy() core.Bond {
	r.t.Helper()
	r.endpoint(0).SetLimit(1)
	s, _ := r.search()
	s.Next(r.clock)
	limits, err := s.Reached(r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Close()
	return limits.Of.(core.Bond)
}

// TestNoStormBeforeAFullFallback: clients that wait for room at the fallback, because their own
// upstream refuses connections, try that at intervals, however many wait; and they are served there
// when it accepts again.
func TestNoStormBeforeAFullFallback(t *testing.T) {
	full, session := occupied(t, dispatch.ViewConfig{QueueSize: 100, QueueTimeout: time.Minute})
	r := newRig(t, 1, dispatch.ViewConfig{Fallback: full.view}, nil)
	const clients = 20
	var waiting [clients]*dispatch.Search
	connects, accepts, served := 0, false, 0
	look := func(i int) {
		for range 100 {
			switch step := waiting[i].Next(r.clock); step.Do {
			case core.Connect:
				connects++
				if accepts {
					if _, err := waiting[i].Reached(r.clock); err != nil {
						t.Fatal(err)
					}
					waiting[i].Close()
					waiting[i] = nil
					served++
					return
				}
				waiting[i].Failed(syscall.ECONNREFUSED, r.clock)
			case core.Park:
				return
			default:
				t.Fatalf("client %d: %+v, %v", i, step, waiting[i].Err())
			}
		}
		t.Fatalf("client %d tries without end", i)
	}
	for i := range waiting {
		waiting[i], _ = r.search()
		look(i)
	}
	first := connects
	round := func(d time.Duration) {
		for end := r.clock + int64(d); r.clock < end; {
			r.pass(time.Millisecond)
			full.clock = r.clock
			for i, s := range waiting {
				if s != nil { // whether it was woken or not
					look(i)
				}
			}
		}
	}
	round(10 * time.Second)
	if n := connects - first; n < 100 || n > 10*20+clients {
		t.Errorf("%d connects in vain in 10 s of %d clients, and %d when they came", n, clients, first)
	}
	accepts = true
	round(time.Second)
	if served != clients {
		t.Errorf("%d of %d are served", served, clients)
	}
	session.Ended(answered, nil)
}

// TestHeldForRoomOfAChain: clients that are held, because their own upstream is full and its fallback
// refuses connections, get its room as they came, and before those who come later; also those whose time in its own queue is
// over before they try the fallback.
func TestHeldForRoomOfAChain(t *testing.T) {
	t.Run("without a queue", func(t *testing.T) { heldForRoomOfAChain(t, dispatch.ViewConfig{}) })
	t.Run("with a queue", func(t *testing.T) {
		heldForRoomOfAChain(t, dispatch.ViewConfig{QueueSize: 100, QueueTimeout: 2500 * time.Millisecond})
	})
}

func heldForRoomOfAChain(t *testing.T, vc dispatch.ViewConfig) {
	dead := newRig(t, 1, dispatch.ViewConfig{QueueSize: 100, QueueTimeout: time.Minute, Hold: 3 * time.Second}, nil)
	vc.Fallback = dead.view
	r, session := occupied(t, vc)
	come := func() *dispatch.Search {
		s, _ := r.search()
		if step := r.inVain(s); step.Do != core.Park {
			t.Fatalf("%+v, %v", step, s.Err())
		}
		return s
	}
	var waiting []*dispatch.Search
	for range 5 {
		waiting = append(waiting, come())
		r.pass(time.Second)
		for _, s := range waiting {
			if step := r.inVain(s); step.Do != core.Park {
				t.Fatalf("%+v, %v", step, s.Err())
			}
		}
	}
	for i, s := range waiting {
		session.Ended(answered, nil)
		waiting = append(waiting, come())
		for j := len(waiting) - 1; j > i; j-- {
			if step := waiting[j].Next(r.clock); step.Do != core.Park {
				t.Fatalf("client %d, when it is the turn of %d: %+v, %v", j, i, step, waiting[j].Err())
			}
		}
		if step := s.Next(r.clock); step.Do != core.Connect {
			t.Fatalf("client %d: %+v, %v", i, step, s.Err())
		}
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		session = limits.Of.(core.Bond)
		s.Close()
	}
	for _, s := range waiting[5:] {
		s.Close()
	}
	session.Ended(answered, nil)
}
