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
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/signals"
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
			_, errBefore := from.Write(before)
			errUrgent := sendUrgent(from, '!')
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
		if _, err := io.ReadFull(sockets.Marked(to), got); urgent[0] != '!' || err != nil || !bytes.Equal(got, after) {
			t.Fatalf("%q, then %v, or other bytes behind it", urgent, err)
		}
		must.Do(t, <-sent)
	}
}

// TestUrgent: an urgent byte at the start, in the middle or at the end, then a FIN: everything arrives and the session ends by itself,
// in every engine. The byte is in the stream if the receiving socket has SO_OOBINLINE, and dropped by the kernel if not. Unix sockets know
// urgent data since Linux 5.15 (CONFIG_AF_UNIX_OOB; net/unix/af_unix.c, queue_oob and manage_oob).
func TestUrgent(t *testing.T) {
	t.Parallel()

	const n = 100_000
	for name, of := range map[string]network{"tcp": tcp, "unix": unixStream} {
		for _, e := range engines {
			for _, at := range []int{0, n / 2, n} {
				for _, inline := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%v/%d/inline=%v", name, e, at, inline), func(t *testing.T) {
						eachDriver(t, func(t *testing.T, d *driving) { testUrgent(t, d, e, of, n, at, inline) })
					})
				}
			}
		}
	}
}

func testUrgent(t *testing.T, d *driving, e relay.Engine, of network, n, at int, inline bool) {
	r := newRelay(t, &relay.Config{Engine: e})
	g := d.newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := of(t)
		if inline {
			setInline(t, near.(syscall.Conn))
		}
		return far, near
	}, tcp)
	body, want := content(7, n), content(7, n)
	if inline {
		setInline(t, g.B.(*net.TCPConn)) // a loop passes it on as urgent
		want = slices.Insert(want, at, '!')
	}
	sent := make(chan error, 1)
	go func() {
		_, err := g.A.Write(body[:at])
		if err == nil {
			err = sendUrgent(g.A, '!')
		}
		if err == nil {
			_, err = g.A.Write(body[at:])
		}
		sent <- errors.Join(err, g.A.CloseWrite())
	}()
	got, err := io.ReadAll(sockets.Marked(g.B))
	skipWithoutOOB(t, <-sent)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d, error %v", len(got), len(want), err)
	}
	g.B.CloseWrite()
	res := g.checkClean(len(want), 0)
	if n := res.AToB.Fallbacks[relay.FallbackUrgent]; n > 3 || n > 0 && e == relay.EngineCopy {
		t.Fatalf("one urgent byte made the direction fall back %d times: %+v", n, res.AToB)
	}
}

func setInline(t testing.TB, c syscall.Conn) {
	t.Helper()
	must.Do(t, syscall.SetsockoptInt(sockets.FD(t, c), syscall.SOL_SOCKET, syscall.SO_OOBINLINE, 1))
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
			must.Do(t, near.SetReadBuffer(2<<20))
			body, tail := content(1, 104<<10), []byte("behind the mark")
			for _, step := range []func() error{
				func() error { _, err := far.Write(body); return err },
				func() error { _, err := sys.Send(sockets.FD(t, far), []byte{'!'}, sys.MSG_OOB); return err },
				func() error { _, err := far.Write(tail); return err },
				func() error { return endIf(end, far) },
				func() error { return arrived(t, far) },
			} {
				must.Do(t, step())
			}
			g := d.newRig(t, r, func(testing.TB) (halfConn, net.Conn) { return far, near }, tcp)
			got := make([]byte, len(body)+len(tail)) // the urgent byte is dropped
			if n, err := io.ReadFull(g.B, got); err != nil || !bytes.Equal(got, append(body, tail...)) {
				t.Fatalf("got %d bytes, or other ones: %v", n, err)
			}
			_ = far.CloseWrite()
			must.Do(t, expect(g.B, nil))
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
func arrived(t testing.TB, c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	queued := 1
	condition.Await(t, "all is acknowledged", func() bool {
		_ = raw.Control(func(fd uintptr) { queued, err = sys.SIOCOUTQ(int(fd)) })
		return queued == 0 || err != nil
	})
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
				sent := int64(0)
				condition.Await(t, "it is blocked", func() bool { // a loop that was late has room again
					sent += fillFrom(t, g.A, sent)
					pipes, buffers := d.holds(t, r)
					return pipes+buffers == 1
				})
				wrote := make(chan error, 1)
				go func() {
					wrote <- errors.Join(sendUrgent(g.A, '!'), g.A.CloseWrite())
				}()
				got, err := io.ReadAll(sockets.Marked(g.B))
				if err != nil || int64(len(got)) != sent+1 || !isFiller(got[:sent], 0) || got[sent] != '!' {
					t.Fatalf("got %d of %d bytes, or other ones: %v", len(got), sent+1, err)
				}
				must.Do(t, <-wrote)
				_ = g.B.CloseWrite()
				g.checkClean(int(sent)+1, 0)
			})
		})
	}
}

// skipWithoutOOB ends a test for which this kernel has no urgent data on unix sockets.
func skipWithoutOOB(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, syscall.EOPNOTSUPP) {
		t.Skip("unix sockets of this kernel have no urgent data (CONFIG_AF_UNIX_OOB)")
	}
	must.Do(t, err)
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
			skipWithoutOOB(t, sendUrgent(g.A, '!'))
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
				must.Do(t, c.CloseWrite())
			}
			g.checkClean(0, 0)
		})
	}
}

// TestUrgentInSignals: a read that comes to the urgent mark with a signal pending
// answers EAGAIN although bytes are queued, and nothing tells of them again. The
// runtime signals its threads to preempt them; here they are all the time.
func TestUrgentInSignals(t *testing.T) {
	for _, e := range engines {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/inline=%v", e, inline), func(t *testing.T) {
				eachDriver(t, func(t *testing.T, d *driving) { testUrgentInSignals(t, d, e, inline) })
			})
		}
	}
}

func testUrgentInSignals(t *testing.T, d *driving, e relay.Engine, inline bool) {
	g := d.newRig(t, newRelay(t, &relay.Config{Engine: e}), func(t testing.TB) (halfConn, net.Conn) {
		far, near := sockets.TCPPair(t)
		if inline {
			setInline(t, near)
		}
		return far, near
	}, tcp)
	setInline(t, g.B.(*net.TCPConn)) // a loop passes it on as urgent
	sent, want := []byte("!"), []byte("!")
	if !inline { // the kernel drops the urgent byte, which is the last one
		sent, want = []byte("before!after"), []byte("beforeafter")
	}
	urgent := bytes.IndexByte(sent, '!') + 1
	stop := signals.Storm()
	defer stop()
	fd, to, got := sockets.FD(t, g.A.(*net.TCPConn)), sockets.FD(t, g.B.(*net.TCPConn)), make([]byte, len(want))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		must.Get(sys.Send(fd, sent[:urgent], sys.MSG_OOB))(t)
		write(t, g.A, sent[urgent:])
		have := 0
		condition.Await(t, "what was sent around an urgent byte", func() bool { // the runtime's poller would wait at the mark for ever
			n, err := sys.Recv(to, got[have:], sys.MSG_DONTWAIT)
			if have += max(n, 0); n == 0 && err == nil {
				t.Fatal("an end of file")
			}
			return have == len(want)
		})
		if !bytes.Equal(got, want) {
			t.Fatalf("%q has come, want %q", got, want)
		}
	}
	_, _ = g.A.CloseWrite(), g.B.CloseWrite()
	_, _ = g.wait()
}

// sendUrgent sends a byte as urgent data.
func sendUrgent(c net.Conn, b byte) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	waited := raw.Write(func(fd uintptr) bool {
		_, err = sys.Send(int(fd), []byte{b}, sys.MSG_OOB|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		return err != syscall.EAGAIN
	})
	return errors.Join(waited, err)
}
