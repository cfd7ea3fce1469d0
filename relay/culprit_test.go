package relay_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestCulprit: the result says which side was reset.
func TestCulprit(t *testing.T) {
	t.Parallel()

	for _, reset := range []relay.Side{relay.SideA, relay.SideB, relay.SideNone} {
		client, a := sockets.TCPPair(t)
		endpoint, b := sockets.TCPPair(t)
		r, err := relay.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := r.NewSession(a, b)
		ended := make(chan relay.Result, 1)
		if err := s.Start(func(res relay.Result, _ error) { ended <- res }); err != nil {
			t.Fatal(err)
		}
		switch reset {
		case relay.SideA:
			_ = client.SetLinger(0)
		case relay.SideB:
			_ = endpoint.SetLinger(0)
		}
		if reset == relay.SideB {
			endpoint.Close()
		} else {
			client.Close()
			if reset == relay.SideNone {
				endpoint.Close()
			}
		}
		if res := <-ended; res.Culprit != reset {
			t.Errorf("%v, want %v: %+v", res.Culprit, reset, res)
		}
		r.Close()
	}
}
