package dispatch_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
)

// TestDoorInTurn: of clients beyond a listener's limit, each waits for its turn: none that
// comes while there is room for another one, who was told and has not looked yet, is before
// that one.
func TestDoorInTurn(t *testing.T) {
	r := newRig(t, 1, dispatch.ViewConfig{}, nil)
	door := r.listener.Config().Door
	door.Connections.Set(1)
	admitter := r.listener.Service().Admitter
	admit := func() (*dispatch.Search, *core.Client) {
		s, c := r.search()
		if err := admitter.Admit(c, true, r.clock); err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	next := func(s *dispatch.Search, want core.Do, who string) {
		t.Helper()
		if got := s.Next(r.clock).Do; got != want {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
	first, c := admit()
	next(first, core.Connect, "the first")
	second, c2 := admit()
	third, c3 := admit()
	next(second, core.Park, "the second, who is one too many")
	first.Close()
	admitter.Left(c.Ticket)
	next(third, core.Park, "the third, while there is a place for the second")
	next(second, core.Connect, "the second")
	second.Close()
	admitter.Left(c2.Ticket)
	next(third, core.Connect, "the third")
	third.Close()
	admitter.Left(c3.Ticket)
	if n := door.Connections.InUse(); n != 0 {
		t.Errorf("%d places are taken in the end", n)
	}
}
