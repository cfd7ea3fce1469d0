package relay_test

import (
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay"
)

// TestMoved: what the owner has moved counts, and the next write is not held back for the
// acknowledgement of the owner's.
func TestMoved(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	A, nearA := tcp(t)
	nearB, B := tcp(t)
	a, b := on.take(nearA), on.take(nearB)
	if err := sys.SetsockoptInt(b.FD, sys.IPPROTO_TCP, sys.TCP_NODELAY, 0); err != nil {
		t.Fatal(err)
	}
	a.NoDelay, b.NoDelay, a.Moved = true, false, 7
	ended := make(chan outcome, 1)
	s := &loopSession{on: on, ended: func(res relay.Result, err error) { ended <- outcome{res, err} }}
	on.do(func() {
		a.ID, _ = on.loop.Add(a.FD, 0, &s.driven)
		b.ID, _ = on.loop.Add(b.FD, 1, &s.driven)
		on.driver.Start(&s.driven, a, b, s)
	})
	if err := ping64(A, B, 1); err != nil {
		t.Fatal(err)
	}
	on.do(func() {
		if on, err := sys.GetsockoptInt(b.FD, sys.IPPROTO_TCP, sys.TCP_NODELAY); err != nil || on == 0 {
			t.Errorf("TCP_NODELAY of the endpoint's socket is %d, %v, after its second write", on, err)
		}
	})
	for _, c := range []net.Conn{A, B} {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	if o := end(t, ended); o.result.AToB.Copied != 64+7 || o.result.BToA.Bytes() != 0 {
		t.Errorf("%+v", o.result)
	}
}
