package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// untilSocket waits for a condition of the socket of a far end.
func untilSocket(t *testing.T, c halfConn, what string, is func(fd int) bool) {
	t.Helper()
	fd := sockets.FD(t, c.(*net.TCPConn))
	condition.Await(t, what, func() bool { return is(fd) })
}

// earlyClose has one peer answer and close while bytes of the other one are unread, so that its kernel resets the connection behind
// the answer, which the kernel of this side has acknowledged.
func earlyClose(t *testing.T, closes, reads halfConn, answer []byte) {
	t.Helper()
	if _, err := reads.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	untilSocket(t, closes, "unread bytes", func(fd int) bool { n, err := sys.FIONREAD(fd); return err == nil && n == 6 })
	if _, err := closes.Write(answer); err != nil {
		t.Fatal(err)
	}
	untilSocket(t, closes, "acknowledgement of all", func(fd int) bool { n, err := sys.SIOCOUTQ(fd); return err == nil && n == 0 })
	if err := closes.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // so that the reset has met the session: no condition shows that it goes on
}

// TestEarlyClose: of a side that was reset the other one gets all that had come before, though it reads late, and the reset only then.
func TestEarlyClose(t *testing.T) {
	t.Parallel()

	answer := bytes.Repeat([]byte("answer "), 200_000)
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				r.SetLinger(patience)
				for i := range 6 {
					g := d.newRig(t, r, tcp, tcp)
					closes, reads := g.B, g.A
					if i%2 == 1 {
						closes, reads = reads, closes
					}
					earlyClose(t, closes, reads, answer)
					got, err := io.ReadAll(reads)
					if !bytes.Equal(got, answer) || !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("%d of %d bytes, then %v, want all and a reset", len(got), len(answer), err)
					}
					if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil || res.AToB.Lost+res.BToA.Lost != 0 {
						t.Errorf("ended by %v, %v, lost %d and %d", res.Reason, err, res.AToB.Lost, res.BToA.Lost)
					}
				}
			})
		})
	}
}

// TestEarlyCloseIsCut: a session that waits for the side that was not reset ends at once when it is cut, and by itself
// when that side takes nothing.
func TestEarlyCloseIsCut(t *testing.T) {
	t.Parallel()

	answer := bytes.Repeat([]byte("answer "), 200_000)
	eachDriver(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		for _, cut := range []bool{true, false} {
			r.SetLinger(time.Hour)
			if !cut {
				r.SetLinger(20 * time.Millisecond)
			}
			g := d.newRig(t, r, tcp, tcp)
			earlyClose(t, g.B, g.A, answer)
			if cut {
				if _, err := g.A.Write([]byte("more")); err != nil { // goroutines find the reset by writing to it
					t.Fatal(err)
				}
				g.until("the reset is found", func(r relay.Result) bool { return r.Reason == relay.ReasonReset })
				g.cancel(errors.New("cut"))
			}
			if res, err := g.wait(); res.Reason != relay.ReasonReset || err == nil || res.Culprit != relay.SideB {
				t.Errorf("cut %v: ended by %v of %v, %v, want the reset of b", cut, res.Reason, res.Culprit, err)
			}
		}
	})
}
