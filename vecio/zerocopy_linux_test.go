package vecio_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/vecio"
)

// A lender lends pieces, and overwrites them as soon as they are given back. If the
// kernel still had to send bytes of them, those would arrive overwritten.
type lender struct {
	t    *testing.T
	lent map[*byte]bool
	back int
}

func newLender(t *testing.T) *lender { return &lender{t: t, lent: map[*byte]bool{}} }

func (l *lender) lend(p []byte) []byte {
	p = bytes.Clone(p)
	l.lent[&p[0]] = true
	return p
}

func (l *lender) Release(p []byte) {
	if !l.lent[&p[0]] {
		l.t.Errorf("a piece of %d bytes was given back twice, or never lent", len(p))
	}
	delete(l.lent, &p[0])
	l.back++
	for i := range p {
		p[i] = 0xDD
	}
}

func (l *lender) want(back, out int) {
	l.t.Helper()
	if l.back != back || len(l.lent) != out {
		l.t.Errorf("%d pieces were given back and %d are out; want %d and %d", l.back, len(l.lent), back, out)
	}
}

// zeroCopied is a writer with MSG_ZEROCOPY.
func zeroCopied(t *testing.T, c *net.TCPConn, cfg vecio.Config) *vecio.Writer {
	t.Helper()
	if cfg.ZeroCopy == 0 {
		cfg.ZeroCopy = 10 << 10
	}
	w := newSocket(t, c, &cfg)
	if s := w.Stats().ZeroCopy.State; s != vecio.ZeroCopyOn {
		if _, set := os.LookupEnv("CI"); set {
			t.Fatalf("SO_ZEROCOPY is to be had on Linux 4.14 and later, but zero-copy is %v", s)
		}
		t.Skipf("needs SO_ZEROCOPY (Linux 4.14): %v", s)
	}
	if limit, err := sys.RlimitMemlock(); err != nil || os.Getuid() != 0 && limit < 8<<20 {
		t.Skipf("needs 8 MiB of RLIMIT_MEMLOCK, has %d, %v", limit, err)
	}
	return w
}

// reaped waits until no piece is held.
func reaped(t *testing.T, w *vecio.Writer) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		n, err := w.Reap()
		must(t, err)
		if n != w.Held() {
			t.Fatalf("%d are held, and %d", n, w.Held())
		}
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d pieces are still held: %+v", n, w.Stats().ZeroCopy)
		}
	}
}

// withoutWindow returns a pair whose client's data stays queued: the server does not
// read, and the window that it has offered is used up. Of the sent bytes at least the
// given number have not left.
func withoutWindow(t *testing.T, waiting int) (client, server *net.TCPConn, sent int) {
	t.Helper()
	client, server = sockets.TCPPair(t)
	must(t, server.SetReadBuffer(4<<10))
	fd, b := sockets.FD(t, client), make([]byte, 4<<10)
	for deadline := time.Now().Add(10 * time.Second); ; {
		k, err := sys.Send(fd, b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		must(t, err)
		sent += k
		n, err := sys.SIOCOUTQNSD(fd)
		must(t, err)
		if n >= waiting {
			return client, server, sent
		}
		if time.Now().After(deadline) {
			t.Fatal("the window of a server that does not read never closes")
		}
	}
}

var mebibyte = random(1 << 20)

// TestZeroCopyOverLoopback: pieces are held until the kernel gives them back. The kernel
// reports that it has copied, so there is no other such call, and everything arrives.
func TestZeroCopyOverLoopback(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{}), newLender(t)
	header, payload := random(100), random(50<<10)
	send := func() {
		must(t, w.Append(header), w.Own(l.lend(payload), l), w.AppendString("end"), w.End())
		if got := received(t, server, len(header)+len(payload)+3); !bytes.Equal(got, append(append(bytes.Clone(header), payload...), "end"...)) {
			t.Fatal("something else arrived")
		}
	}
	send()
	l.want(0, 1)
	reaped(t, w)
	l.want(1, 0)
	s := w.Stats().ZeroCopy
	if s.State != vecio.ZeroCopyCopied || s.Calls == 0 || s.Copied != s.Calls || s.Done != 0 || s.Notices == 0 || s.Bytes != int64(len(payload)) {
		t.Errorf("%+v", s)
	}
	send()
	l.want(2, 0)
	if again := w.Stats().ZeroCopy; again != s {
		t.Errorf("%+v, then %+v", s, again)
	}
	must(t, w.Close())
}

// TestSmallAndBorrowedPiecesAreNotHeld.
func TestSmallAndBorrowedPiecesAreNotHeld(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{ZeroCopy: 20000}), newLender(t)
	must(t, w.Own(l.lend(random(19999)), l), w.Append(random(30000)), w.Own(l.lend(random(10)), l), w.End())
	l.want(2, 0)
	if s := w.Stats().ZeroCopy; s.Calls != 0 || w.Held() != 0 {
		t.Errorf("%+v", s)
	}
	received(t, server, 19999+30000+10)
}

// TestEPOLLERRMeansNotices: it is raised with SO_ERROR at 0, and is gone after Reap.
func TestEPOLLERRMeansNotices(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{}), newLender(t)
	epoll, err := sys.EpollCreate1()
	must(t, err)
	defer func() { must(t, sys.Close(epoll)) }()
	fd := sockets.FD(t, client)
	must(t, sys.EpollCtl(epoll, sys.EPOLL_CTL_ADD, fd, &sys.EpollEvent{Fd: int32(fd)}))
	must(t, w.Own(l.lend(random(50<<10)), l), w.End())
	received(t, server, 50<<10)
	var events [1]sys.EpollEvent
	if n, err := sys.EpollWait(epoll, events[:], 10_000); n != 1 || err != nil || events[0].Events&sys.EPOLLERR == 0 {
		t.Fatalf("%d events %+v, %v; want EPOLLERR", n, events, err)
	}
	if e, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ERROR); e != 0 || err != nil {
		t.Errorf("SO_ERROR is %d, %v", e, err)
	}
	reaped(t, w)
	if n, err := sys.EpollWait(epoll, events[:], 0); n != 0 || err != nil {
		t.Errorf("%d events %+v, %v after Reap; want none", n, events, err)
	}
}

// TestHeldBeyondTheEnd: a writer is closed, or fails, while its peer acknowledges
// nothing. It keeps the pieces that the kernel needs until Abort, be they sent in whole,
// in part, or not at all.
func TestHeldBeyondTheEnd(t *testing.T) {
	for _, how := range []string{"close", "abort", "reset of the writer"} {
		t.Run(how, func(t *testing.T) {
			client, server, _ := withoutWindow(t, 64<<10)
			w, l := zeroCopied(t, client, vecio.Config{High: 1 << 30}), newLender(t)
			pieces := 0
			for w.Flush() == nil {
				must(t, w.Own(l.lend(mebibyte), l))
				pieces++
			}
			must(t, w.Own(l.lend(mebibyte), l), w.Append(mebibyte))
			l.want(0, pieces+1)
			switch how {
			case "close":
				var unsent *vecio.WriteError
				if err := w.Close(); !errors.Is(err, vecio.ErrHeld) || !errors.As(err, &unsent) {
					t.Errorf("Close returns %v, want ErrHeld and the unsent pieces", err)
				}
				l.want(1, pieces)
			case "reset of the writer":
				if err := w.ResetSocket(sockets.FD(t, client)); !errors.Is(err, vecio.ErrHeld) {
					t.Errorf("ResetSocket returns %v, want ErrHeld", err)
				}
				l.want(1, pieces)
			}
			if n, err := w.Reap(); how != "abort" && (n != pieces || err != nil) {
				t.Errorf("%d pieces held, %v; want %d", n, err, pieces)
			}
			must(t, w.Abort())
			reaped(t, w)
			l.want(pieces+1, 0)
			s := w.Stats().ZeroCopy
			if s.Done+s.Copied != s.Calls || s.Done == 0 || s.Held != 0 {
				t.Errorf("%+v; want a notice for every call, and some not copied", s)
			}
			if _, err := io.Copy(io.Discard, server); err == nil {
				t.Error("the peer got a clean end")
			}
			if err := w.Append([]byte{1}); !errors.Is(err, vecio.ErrClosed) {
				t.Errorf("after Abort: %v", err)
			}
		})
	}
}

// TestAResetReportsAll: after an RST from the peer the writer fails, and everything is
// given back.
func TestAResetReportsAll(t *testing.T) {
	client, server, _ := withoutWindow(t, 64<<10)
	w, l := zeroCopied(t, client, vecio.Config{High: 1 << 30}), newLender(t)
	pieces := 0
	for w.Flush() == nil {
		must(t, w.Own(l.lend(mebibyte), l))
		pieces++
	}
	must(t, server.SetLinger(0), server.Close())
	var failed *vecio.WriteError
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if err := w.Flush(); errors.As(err, &failed) {
			break
		} else if err != vecio.ErrBlocked || time.Now().After(deadline) {
			t.Fatalf("got %v, want a failure", err)
		}
	}
	if !errors.Is(failed, syscall.ECONNRESET) && !errors.Is(failed, syscall.EPIPE) {
		t.Errorf("got %v", failed)
	}
	reaped(t, w)
	l.want(pieces, 0)
	if s := w.Stats().ZeroCopy; s.Done+s.Copied != s.Calls || s.Calls == 0 {
		t.Errorf("%+v; want a notice for every call", s)
	}
	must(t, w.Close())
}

// TestMixedPieces: the bytes arrive as sent, in order, whatever is held meanwhile, at a
// peer that reads slowly. Every owned piece comes back once.
func TestMixedPieces(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{High: 1 << 30}), newLender(t)
	var sent []byte
	owned := 0
	for i := range 200 {
		p := mebibyte[i:][:1+i*i*7919%70_000]
		sent = append(sent, p...)
		switch i % 3 {
		case 0:
			must(t, w.Append(p))
		default:
			must(t, w.Own(l.lend(p), l))
			owned++
		}
	}
	got := make(chan []byte)
	go func() { got <- received(t, server, len(sent)) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if err := w.Flush(); err == nil {
			break
		} else if err != vecio.ErrBlocked || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(<-got, sent) {
		t.Error("something else arrived")
	}
	reaped(t, w)
	l.want(owned, 0)
	if s := w.Stats().ZeroCopy; s.Calls == 0 || s.Copied+s.Done != s.Calls {
		t.Errorf("%+v", s)
	}
}

// TestResetGoesOnCounting: the kernel numbers a socket's calls, not a writer's. After
// ResetSocket the knowledge about the same socket is kept, and none is carried to another
// socket.
func TestResetGoesOnCounting(t *testing.T) {
	client, server := sockets.TCPPair(t)
	w, l := zeroCopied(t, client, vecio.Config{}), newLender(t)
	send := func(server net.Conn) {
		must(t, w.Own(l.lend(random(20<<10)), l), w.End())
		received(t, server, 20<<10)
		reaped(t, w)
	}
	send(server)
	must(t, w.ResetSocket(sockets.FD(t, client)))
	if s := w.Stats().ZeroCopy; s != (vecio.ZeroCopyStats{State: vecio.ZeroCopyCopied}) {
		t.Errorf("%+v; want to know that this socket copies, and counts of 0", s)
	}
	send(server)
	client, server = sockets.TCPPair(t)
	must(t, w.ResetSocket(sockets.FD(t, client)))
	send(server)
	l.want(3, 0)
	if s := w.Stats().ZeroCopy; s.Calls != 1 || s.Copied != 1 {
		t.Errorf("%+v; want one call on the new socket", s)
	}
}

// TestFewestSegmentsWithZeroCopy: header, payload and trailer are three calls then, and
// no segment more.
func TestFewestSegmentsWithZeroCopy(t *testing.T) {
	const total = 100 + 12<<10 + 50
	header, payload, trailer := random(100), random(12<<10), random(50)
	promptly(t, func() bool {
		client, server := maxsegPair(t)
		w := zeroCopied(t, client, vecio.Config{})
		l := newLender(t)
		var got int
		in := quick(func() {
			got = segments(t, client, server, total, func() {
				must(t, w.Append(header), w.Own(l.lend(payload), l), w.Append(trailer), w.End())
			})
		})
		if least := fewest(t, client, total); in && (got != least) {
			t.Errorf("%d segments, needed are %d", got, least)
		}
		if s := w.Stats(); s.Calls != 3 || s.ZeroCopy.Calls != 1 {
			t.Errorf("%+v", s)
		}
		reaped(t, w)
		l.want(1, 0)
		return in
	})
}
