package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestUrgentUnix is TestUrgent over unix sockets, which know urgent data since Linux 5.15
// (CONFIG_AF_UNIX_OOB; net/unix/af_unix.c, queue_oob and manage_oob): the byte is in the
// stream if the receiving socket has SO_OOBINLINE when it is read, and dropped if not.
func TestUrgentUnix(t *testing.T) {
	t.Parallel()

	const n = 100_000
	for _, e := range engines {
		for _, at := range []int{0, n / 2, n} {
			for _, inline := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/inline=%v", e, at, inline), func(t *testing.T) {
					eachDriver(t, func(t *testing.T, d *driving) { testUrgentUnix(t, d, e, n, at, inline) })
				})
			}
		}
	}
}

func testUrgentUnix(t *testing.T, d *driving, e relay.Engine, n, at int, inline bool) {
	r := newRelay(t, &relay.Config{Engine: e})
	g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := sockets.UnixPair(t)
		if inline {
			setInline(t, near)
		}
		return far, near
	}, tcp)
	body, want := content(7, n), []byte(nil)
	if want = bytes.Clone(body); inline {
		want = slices.Insert(want, at, '!')
	}
	sent := make(chan error, 1)
	go func() {
		_, err := g.A.Write(body[:at])
		if err == nil {
			err = sendOOB(t, g.A.(*net.UnixConn))
		}
		if err == nil {
			_, err = g.A.Write(body[at:])
		}
		sent <- errors.Join(err, g.A.CloseWrite())
	}()
	got, err := io.ReadAll(g.B)
	skipWithoutOOB(t, <-sent)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d, error %v", len(got), len(want), err)
	}
	g.B.CloseWrite()
	g.checkClean(len(want), 0)
}

// sendOOB sends an urgent byte.
func sendOOB(t testing.TB, c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	waited := raw.Write(func(fd uintptr) bool {
		_, err = sys.Send(int(fd), []byte{'!'}, sys.MSG_OOB|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		return err != syscall.EAGAIN
	})
	return errors.Join(waited, err)
}

// skipWithoutOOB ends a test for which this kernel has no urgent data on unix sockets.
func skipWithoutOOB(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skip("unix sockets of this kernel have no urgent data (CONFIG_AF_UNIX_OOB)")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUrgentUnixAlone: an urgent byte that is not inline, and that nothing follows, leaves
// the session waiting for the next event: the kernel calls the socket readable, and answers
// EAGAIN to the read.
func TestUrgentUnixAlone(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			d := ofLoop()
			r := newRelay(t, &relay.Config{Engine: e})
			g := d.newRig(t, r, unixStream, tcp)
			skipWithoutOOB(t, sendOOB(t, g.A.(*net.UnixConn)))
			on := d.looped(t, r)
			for range 100 { // the byte is told of in one of the first turns
				on.turn()
			}
			on.do(func() {
				if g.session.(*loopSession).driven.Recalled() {
					t.Error("the session asks for every turn")
				}
			})
			for _, c := range []halfConn{g.A, g.B} {
				if err := c.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			g.checkClean(0, 0)
		})
	}
}
