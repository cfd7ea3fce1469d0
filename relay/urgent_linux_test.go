package relay_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestUrgent: an urgent byte at the start, in the middle or at the end, then a
// FIN: everything arrives and the session ends by itself, in every engine. The
// urgent byte itself is in the stream if the receiving socket has SO_OOBINLINE,
// and dropped by the kernel if not.
func TestUrgent(t *testing.T) {
	const n = 100_000
	for _, e := range engines {
		for _, at := range []int{0, n / 2, n} {
			for _, inline := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/inline=%v", e, at, inline), func(t *testing.T) {
					testUrgent(t, e, n, at, inline)
				})
			}
		}
	}
}

func testUrgent(t *testing.T, e relay.Engine, n, at int, inline bool) {
	r := newRelay(t, &relay.Config{Engine: e})
	g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := sockets.TCPPair(t)
		if inline {
			setInline(t, near)
		}
		return far, near
	}, tcp)
	body := content(7, n)
	want := bytes.Clone(body)
	if inline {
		want = append(bytes.Clone(body[:at]), '!')
		want = append(want, body[at:]...)
	}
	errs := make(chan error, 1)
	go func() {
		errs <- func() error {
			if _, err := g.A.Write(body[:at]); err != nil {
				return err
			}
			if _, err := sys.Send(sockets.FD(t, g.A.(*net.TCPConn)), []byte{'!'}, sys.MSG_OOB); err != nil {
				return err
			}
			_, err := g.A.Write(body[at:])
			return err
		}()
		g.A.CloseWrite()
	}()
	got, err := io.ReadAll(g.B)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d, error %v", len(got), len(want), err)
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	g.B.CloseWrite()
	res := g.checkClean(len(want), 0)
	if n := res.AToB.Fallbacks[relay.FallbackUrgent]; n > 3 {
		t.Fatalf("one urgent byte made the direction fall back %d times", n)
	}
	if e == relay.EngineCopy && res.AToB.Fallbacks[relay.FallbackUrgent] != 0 {
		t.Fatalf("copying fell back: %+v", res.AToB)
	}
}

func setInline(t testing.TB, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_OOBINLINE, 1)
	}); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
}

// TestUrgentStalls: with the bytes queued behind the mark before splice looks, the
// stall is met for certain; it is counted, and the bytes around it are spliced.
func TestUrgentStalls(t *testing.T) {
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	in, src := sockets.TCPPair(t)
	dst, out := sockets.TCPPair(t)
	for _, step := range []func() error{
		func() error { _, err := in.Write([]byte("before")); return err },
		func() error { _, err := sys.Send(sockets.FD(t, in), []byte{'!'}, sys.MSG_OOB); return err },
		func() error { _, err := in.Write([]byte("after")); return err },
		in.CloseWrite,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := r.Move(dst, src)
	if err != nil || f.Bytes() != int64(len("beforeafter")) || f.Fallbacks[relay.FallbackUrgent] == 0 || f.Spliced == 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	dst.CloseWrite()
	if err := expect(out, []byte("beforeafter")); err != nil {
		t.Fatal(err)
	}
}
