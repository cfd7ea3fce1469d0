package router_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestDoorInTurn: of clients beyond a listener's limit, each waits for its turn. A place may be
// free for a client that was woken and has not looked yet. No client that comes meanwhile is
// before that one.
func TestDoorInTurn(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{}, nil)
	door := r.listener.Config().State
	door.Connections.Set(1)
	admitter := r.listener.Service().Admitter
	admit := func() (*router.Search, *worker.Client) {
		s, c := r.search()
		if err := admitter.Admit(c, true, r.clock); err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	next := func(s *router.Search, want worker.Action, who string) {
		t.Helper()
		if got := s.Next(r.clock).Action; got != want {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
	first, c := admit()
	next(first, worker.Connect, "the first")
	second, c2 := admit()
	third, c3 := admit()
	next(second, worker.Park, "the second, which is one too many")
	first.Close()
	admitter.Released(c.AdmissionToken)
	next(third, worker.Park, "the third, while there is a place for the second")
	next(second, worker.Connect, "the second")
	second.Close()
	admitter.Released(c2.AdmissionToken)
	next(third, worker.Connect, "the third")
	third.Close()
	admitter.Released(c3.AdmissionToken)
	if n := door.Connections.InUse(); n != 0 {
		t.Errorf("%d places are taken in the end", n)
	}
}
