package relay_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestJoinResetCollectedByWrite: while the relay writes to a side that is reset,
// the write may collect the socket's error, after which a read sees what looks
// like an end of file. It must not be passed on as one.
func TestJoinResetCollectedByWrite(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinResetCollectedByWrite)
}

func testJoinResetCollectedByWrite(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for range 50 {
			g := d.newRig(t, r, tcp, tcp)
			go func() {
				block := content(8, 4096)
				for {
					if _, err := g.B.Write(block); err != nil {
						return
					}
				}
			}()
			if _, err := io.ReadFull(g.A, make([]byte, 100_000)); err != nil {
				t.Fatal(err)
			}
			abort(t, g.A)
			res, err := g.wait()
			if res.AToB.Reason == relay.ReasonEOF || res.Reason != relay.ReasonReset || err == nil {
				t.Fatalf("%v: ended by %v (A to B: %v), error %v, want a reset", e, res.Reason, res.AToB.Reason, err)
			}
		}
	}
}

// TestJoinClosedUnderneath: a connection that somebody else closes ends the
// session with net.ErrClosed, and its peer gets no clean end.
func TestJoinClosedUnderneath(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		var near net.Conn
		g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
			far, n := tcp(t)
			near = n
			return far, n
		}, tcp)
		if err := ping(g.A, g.B, 1); err != nil {
			t.Fatal(err)
		}
		near.Close()
		res, err := g.wait()
		if res.Reason != relay.ReasonError || !errors.Is(err, net.ErrClosed) {
			t.Fatalf("%v: ended by %v, error %v", e, res.Reason, err)
		}
		if _, _, err := receive(g.B); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%v: B sees %v, want ECONNRESET", e, err)
		}
	}
}

// TestJoinResetAccount: bytes that the reset threw away from the destination's send
// queue are lost, not delivered.
func TestJoinResetAccount(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinResetAccount)
}

func testJoinResetAccount(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		r.SetLinger(100 * time.Millisecond)
		g := d.newRig(t, r, tcp, tcp)
		want := content(1, 2<<20)
		if _, err := g.A.Write(want); err != nil {
			t.Fatal(err)
		}
		g.until("all moved", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(want)) })
		abort(t, g.A)
		res, _ := g.wait()
		if _, n, _ := receive(g.B); n+res.AToB.Lost != int64(len(want)) {
			t.Fatalf("%v: sent %d, B got %d, lost %d", e, len(want), n, res.AToB.Lost)
		}
	}
}

// TestJoinBrokenPipe: a unix socket whose peer is gone answers EPIPE, which ends
// the session as a reset of the other side.
func TestJoinBrokenPipe(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinBrokenPipe)
}

func testJoinBrokenPipe(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		g := d.newRig(t, r, tcp, unixStream)
		if err := g.B.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := expect(g.A, nil); err != nil {
			t.Fatal(err)
		}
		g.B.Close()
		if _, err := g.A.Write([]byte("nobody reads this")); err != nil {
			t.Fatal(err)
		}
		res, err := g.wait()
		if res.Reason != relay.ReasonReset || !errors.Is(err, syscall.EPIPE) || res.AToB.Lost == 0 {
			t.Fatalf("%v: %+v, error %v, want EPIPE and lost bytes", e, res, err)
		}
		if _, err := g.A.Read(make([]byte, 1)); err == nil {
			t.Fatal("A reads on")
		}
	}
}
