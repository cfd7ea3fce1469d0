package relay_test

import (
	"bytes"
	"errors"
	"fmt"
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

// TestUrgentIsPassedOn: a loop passes an urgent byte on as urgent, at its place: a peer that does not take urgent bytes in line gets the
// bytes around it, and the byte by MSG_OOB.
func TestUrgentIsPassedOn(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		for _, at := range []int{0, 1, 70_000} {
			t.Run(fmt.Sprintf("%v/%d", e, at), func(t *testing.T) {
				testUrgentPasses(t, ofLoop().newRig(t, newRelay(t, &relay.Config{Engine: e}), inlineTCP, inlineTCP), at)
			})
		}
	}
}

// inlineTCP is tcp whose near end has urgent bytes in line.
func inlineTCP(t testing.TB) (halfConn, net.Conn) {
	far, near := sockets.TCPPair(t)
	setInline(t, near)
	return far, near
}

func testUrgentPasses(t *testing.T, g *rig, at int) {
	before, after := content(7, at), content(8, 70_000)
	for _, way := range [][2]halfConn{{g.A, g.B}, {g.B, g.A}} {
		from, to := way[0], way[1]
		sent := make(chan error, 1)
		go func() {
			p := peer{conn: from}
			_, errBefore := from.Write(before)
			errUrgent := p.sendUrgent('!')
			_, errAfter := from.Write(after)
			sent <- errors.Join(errBefore, errUrgent, errAfter)
		}()
		got := make([]byte, at)
		if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, before) {
			t.Fatalf("%d bytes before it, %v", len(got), err)
		}
		urgent, fd := make([]byte, 1), sockets.FD(t, to.(*net.TCPConn))
		condition.Await(t, "the urgent byte", func() bool {
			n, err := sys.Recv(fd, urgent, sys.MSG_OOB|sys.MSG_DONTWAIT)
			return n == 1 && err == nil
		})
		got = make([]byte, len(after))
		if _, err := io.ReadFull(to, got); urgent[0] != '!' || err != nil || !bytes.Equal(got, after) {
			t.Fatalf("%q, then %v, or other bytes behind it", urgent, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

// TestUrgent: an urgent byte at the start, in the middle or at the end, then a
// FIN: everything arrives and the session ends by itself, in every engine. The
// urgent byte itself is in the stream if the receiving socket has SO_OOBINLINE,
// and dropped by the kernel if not.
func TestUrgent(t *testing.T) {
	t.Parallel()

	const n = 100_000
	for _, e := range engines {
		for _, at := range []int{0, n / 2, n} {
			for _, inline := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/inline=%v", e, at, inline), func(t *testing.T) {
					eachDriver(t, func(t *testing.T, d *driving) { testUrgent(t, d, e, n, at, inline) })
				})
			}
		}
	}
}

func testUrgent(t *testing.T, d *driving, e relay.Engine, n, at int, inline bool) {
	r := newRelay(t, &relay.Config{Engine: e})
	g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := sockets.TCPPair(t)
		if inline {
			setInline(t, near)
		}
		return far, near
	}, tcp)
	body := content(7, n)
	want := bytes.Clone(body)
	if inline {
		setInline(t, g.B.(*net.TCPConn)) // a loop passes it on as urgent
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

func setInline(t testing.TB, c syscall.Conn) {
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
	t.Parallel()

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

// TestUrgentBehindBulk: a direction that copies meets the mark in the very read after
// which it would splice, with everything behind it queued already, and the end of file
// told of or not.
func TestUrgentBehindBulk(t *testing.T) {
	t.Parallel()

	for _, end := range []bool{false, true} {
		eachDriver(t, func(t *testing.T, d *driving) {
			r := newRelay(t, nil)
			far, near := sockets.TCPPair(t)
			if err := near.SetReadBuffer(2 << 20); err != nil {
				t.Fatal(err)
			}
			body, tail := content(1, 104<<10), []byte("behind the mark")
			for _, step := range []func() error{
				func() error { _, err := far.Write(body); return err },
				func() error { _, err := sys.Send(sockets.FD(t, far), []byte{'!'}, sys.MSG_OOB); return err },
				func() error { _, err := far.Write(tail); return err },
				func() error { return endIf(end, far) },
				func() error { return arrived(far) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			g := d.newRig(t, r, func(testing.TB) (halfConn, net.Conn) { return far, near }, tcp)
			got := make([]byte, len(body)+len(tail)) // the urgent byte is dropped
			if n, err := io.ReadFull(g.B, got); err != nil || !bytes.Equal(got, append(body, tail...)) {
				t.Fatalf("got %d bytes, or other ones: %v", n, err)
			}
			_ = far.CloseWrite()
			if err := expect(g.B, nil); err != nil {
				t.Fatal(err)
			}
			_ = g.B.CloseWrite()
			g.checkClean(len(got), 0)
		})
	}
}

func endIf(end bool, c halfConn) error {
	if end {
		return c.CloseWrite()
	}
	return nil
}

// arrived waits until the peer's kernel has all that was sent.
func arrived(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	queued := 1
	for deadline := time.Now().Add(patience); queued > 0 && err == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d bytes are not acknowledged", queued)
		}
		_ = raw.Control(func(fd uintptr) { queued, err = sys.SIOCOUTQ(int(fd)) })
	}
	return err
}

// TestUrgentWhileBlocked: the urgent byte, and the end of file behind it, come while
// the destination takes nothing.
func TestUrgentWhileBlocked(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			eachDriver(t, func(t *testing.T, d *driving) {
				r := newRelay(t, &relay.Config{Engine: e})
				g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
					far, near := smallTCP(t)
					setInline(t, near.(*net.TCPConn))
					return far, near
				}, smallTCP)
				setInline(t, g.B.(*net.TCPConn)) // a loop passes it on as urgent
				sent := fillFrom(t, g.A, 0)
				if pipes, buffers := d.holds(t, r); pipes+buffers != 1 {
					t.Fatalf("%d pipes, %d buffers: not blocked", pipes, buffers)
				}
				wrote := make(chan error, 1)
				go func() {
					p := peer{conn: g.A}
					wrote <- errors.Join(p.sendUrgent('!'), g.A.CloseWrite())
				}()
				got, err := io.ReadAll(g.B)
				if err != nil || int64(len(got)) != sent+1 || !isFiller(got[:sent], 0) || got[sent] != '!' {
					t.Fatalf("got %d of %d bytes, or other ones: %v", len(got), sent+1, err)
				}
				if err := <-wrote; err != nil {
					t.Fatal(err)
				}
				_ = g.B.CloseWrite()
				g.checkClean(int(sent)+1, 0)
			})
		})
	}
}
