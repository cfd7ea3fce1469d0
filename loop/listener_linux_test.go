package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// An acceptor notes what it got, and closes it when the test ends.
type acceptor struct {
	fds    []int
	peers  []netip.AddrPort
	errs   []error
	then   func(fd int)
	paused func(err error)
}

func (a *acceptor) Accepted(fd int, peer netip.AddrPort) {
	a.fds, a.peers = append(a.fds, fd), append(a.peers, peer)
	if a.then != nil {
		a.then(fd)
	}
}

func (a *acceptor) Paused(err error) {
	a.errs = append(a.errs, err)
	if a.paused != nil {
		a.paused(err)
	}
}

func newAcceptor(t testing.TB) *acceptor {
	a := &acceptor{}
	t.Cleanup(func() {
		for _, fd := range a.fds {
			sys.Close(fd)
		}
	})
	return a
}

// socket is a listening TCP socket of package net, and its descriptor.
func socket(t testing.TB) (ln *net.TCPListener, fd int) {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l := must.Get(lc.Listen(context.Background(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	ln = l.(*net.TCPListener)
	return ln, sockets.FD(t, ln)
}

// dial makes n connections, which wait in the queue. On a busy machine they are there
// some time after connect(2) has returned: the last segment of the handshake is on its way.
func dial(t testing.TB, ln *net.TCPListener, n int) {
	t.Helper()
	fd := sockets.FD(t, ln)
	queued := func() int {
		queued, _, err := sys.ListenQueue(fd)
		must.Do(t, err)
		return queued
	}
	before := queued()
	connect(t, ln, n)
	condition.Await(t, fmt.Sprintf("%d connections are in the queue", before+n), func() bool { return queued() >= before+n })
}

// connect makes n connections, which may be accepted meanwhile.
func connect(t testing.TB, ln net.Listener, n int) {
	t.Helper()
	for range n {
		c := must.Get(net.Dial("tcp", ln.Addr().String()))(t)
		t.Cleanup(func() { c.Close() })
	}
}

func listen(t testing.TB, l *loop.Loop, fd int, cfg *loop.ListenerConfig) *loop.Listener {
	t.Helper()
	ln := must.Get(l.Listen(fd, cfg))(t)
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	})
	return ln
}

func TestListen(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	for n := 1; n <= 3; n++ {
		dial(t, s, 1)
		turn(t, l)
		if len(a.fds) != n {
			t.Fatalf("accepted %d, want %d", len(a.fds), n)
		}
	}
	dial(t, s, 40)
	for range 12 {
		turn(t, l)
	}
	if len(a.fds) != 43 {
		t.Fatalf("accepted %d, want 43", len(a.fds))
	}
	for _, fd := range a.fds {
		flags, err := sys.GetFl(fd)
		if err != nil || flags&sys.O_NONBLOCK == 0 {
			t.Fatalf("%d has flags %#x, %v: blocking", fd, flags, err)
		}
		info := must.Get(os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)))(t)
		_, octal, _ := strings.Cut(string(info), "flags:")
		if f, err := strconv.ParseInt(strings.Fields(octal)[0], 8, 64); err != nil || f&syscall.O_CLOEXEC == 0 {
			t.Fatalf("%d is inherited by other programs: %s, %v", fd, info, err)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	a := newAcceptor(t)
	s, fd := socket(t)
	for _, cfg := range []*loop.ListenerConfig{nil, {}, {Acceptor: a, PauseTime: -1}} {
		if _, err := l.Listen(fd, cfg); !errors.Is(err, loop.ErrConfig) {
			t.Errorf("%+v: %v, want ErrConfig", cfg, err)
		}
	}
	must.Fail(l.Listen(-1, &loop.ListenerConfig{Acceptor: a}))(t, syscall.EBADF)
	f := must.Get(s.File())(t)
	defer f.Close()
	must.Do(t, syscall.SetNonblock(fd, false))
	if _, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: a}); err == nil {
		t.Error("a blocking listener was taken")
	}
	must.Do(t, syscall.SetNonblock(fd, true))
}

// TestSuspend: a listener that was suspended from within Accepted stops at once, and
// leaves the others in the queue; a suspended one costs no turn.
func TestSuspend(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	var ln *loop.Listener
	a.then = func(int) { ln.Suspend() }
	ln = listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	dial(t, s, 5)
	for range 5 {
		turn(t, l)
	}
	if len(a.fds) != 1 {
		t.Fatalf("accepted %d, want 1", len(a.fds))
	}
	if events := l.Stats().Events; events > 6 { // five posts, one connection
		t.Errorf("%d events: the suspended listener goes on telling", events)
	}
	ln.Retry() // nothing: there is no pause
	turn(t, l)
	if len(a.fds) != 1 {
		t.Fatalf("accepted %d while suspended", len(a.fds)-1)
	}
	a.then = nil
	ln.Resume()
	for range 5 {
		turn(t, l)
	}
	if len(a.fds) != 5 {
		t.Fatalf("accepted %d, want 5", len(a.fds))
	}
}

func TestEmptyAndClose(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	ln := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	dial(t, s, 7)
	ln.Suspend()
	if n := ln.Empty(3); n != 3 || len(a.fds) != 3 {
		t.Fatalf("%d, accepted %d, want 3", n, len(a.fds))
	}
	if n := ln.Empty(100); n != 4 || len(a.fds) != 7 {
		t.Fatalf("%d, accepted %d, want 4 more", n, len(a.fds))
	}
	dial(t, s, 1)
	for range 2 {
		must.Do(t, ln.Close())
	}
	ln.Resume()
	ln.Retry()
	if n := ln.Empty(100); n != 0 {
		t.Fatalf("a closed one accepted %d", n)
	}
	turn(t, l)
	if len(a.fds) != 7 {
		t.Fatalf("a closed one accepted %d", len(a.fds)-7)
	}
	dialAccept(t, s)
}

// dialAccept: the socket is still its owner's.
func dialAccept(t *testing.T, s *net.TCPListener) {
	t.Helper()
	c := must.Get(s.Accept())(t)
	c.Close()
}

// script lets accept4 answer what the script says, and then what the kernel does.
func script(ln *loop.Listener, errs ...error) (calls *int) {
	calls = new(int)
	ln.SetAccept(func(fd int) (int, netip.AddrPort, error) {
		*calls++
		if len(errs) > 0 {
			err := errs[0]
			errs = errs[1:]
			return -1, netip.AddrPort{}, err
		}
		return sys.AcceptSocket(fd)
	})
	return calls
}

// TestPeerOfAcceptedConnections: the acceptor gets the address of each, also of one that has
// sent something and was reset in the queue; a unix socket has none.
func TestPeerOfAcceptedConnections(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	var want []netip.AddrPort
	for i := range 4 {
		c := must.Get(net.Dial("tcp", s.Addr().String()))(t)
		defer c.Close()
		want = append(want, c.LocalAddr().(*net.TCPAddr).AddrPort())
		if i%2 == 1 {
			must.Get(c.Write([]byte("x")))(t)
			must.Do(t, c.(*net.TCPConn).SetLinger(0), c.Close())
		}
	}
	turnUntil(t, l, "all are accepted", func() bool { return len(a.peers) == len(want) })
	if !slices.Equal(a.peers, want) {
		t.Errorf("from %v, want %v", a.peers, want)
	}
	path := sockets.Dir(t) + "/s"
	ln := must.Get(net.Listen("unix", path))(t)
	fd = must.Get(loop.Take(ln.(syscall.Conn)))(t)
	t.Cleanup(func() { sys.Close(fd) })
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	c := must.Get(net.Dial("unix", path))(t)
	defer c.Close()
	turnUntil(t, l, "one more is accepted", func() bool { return len(a.peers) > len(want) })
	if a.peers[len(want)].IsValid() {
		t.Errorf("a client of a unix socket comes from %v", a.peers[len(want)])
	}
}

// TestFailedInQueue: connections that failed in the queue are gone; nobody pauses.
func TestFailedInQueue(t *testing.T) {
	t.Parallel()

	for _, errno := range []syscall.Errno{
		syscall.ECONNABORTED, syscall.EPROTO, syscall.ENETDOWN, syscall.ENOPROTOOPT, syscall.EHOSTDOWN,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT, syscall.ECONNRESET, syscall.EINTR,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			l := newLoop(t, nil)
			s, fd := socket(t)
			a := newAcceptor(t)
			ln := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
			calls := script(ln, errno, errno)
			dial(t, s, 1)
			turn(t, l)
			if len(a.fds) != 1 || len(a.errs) != 0 || *calls != 3 || ln.Pauses() != 0 {
				t.Fatalf("accepted %d by %d calls, paused for %v", len(a.fds), *calls, a.errs)
			}
		})
	}
}

// TestPause: accepting that failed is not tried again before its time, by an injected
// clock, or Retry; and there is no turn in which it is told of meanwhile.
func TestPause(t *testing.T) {
	t.Parallel()

	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			c := clock{now: 1}
			l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
			s, fd := socket(t)
			a := newAcceptor(t)
			ln := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a, PauseTime: time.Second})
			calls := script(ln, errno, errno, errno)
			dial(t, s, 1)
			for range 10 {
				turn(t, l)
			}
			var syscallErr interface{ Unwrap() error }
			if *calls != 1 || len(a.errs) != 1 || !errors.As(a.errs[0], &syscallErr) || syscallErr.Unwrap() != errno {
				t.Fatalf("%d calls, paused for %v", *calls, a.errs)
			}
			c.now += int64(time.Second) - 1
			turn(t, l)
			turn(t, l)
			if *calls != 1 {
				t.Fatal("it was tried again before its time")
			}
			c.now += 1e6
			turn(t, l)
			turn(t, l)
			if *calls != 2 || ln.Pauses() != 2 {
				t.Fatalf("%d calls, %d pauses, want 2 when the time was over", *calls, ln.Pauses())
			}
			ln.Retry()
			ln.Retry()
			turn(t, l)
			if *calls != 3 || ln.Pauses() != 3 {
				t.Fatalf("%d calls, %d pauses, want 3 after Retry", *calls, ln.Pauses())
			}
			ln.Suspend()
			c.now += 2e9
			turn(t, l)
			turn(t, l)
			if *calls != 3 {
				t.Fatal("it accepts although it is suspended")
			}
			ln.Resume()
			turn(t, l)
			if len(a.fds) != 1 || *calls != 4 {
				t.Fatalf("accepted %d by %d calls, want 1 in the end", len(a.fds), *calls)
			}
		})
	}
}

// TestBefore: it is called before each attempt, and its failure pauses.
func TestBefore(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	before, fail := 0, errors.New("nothing to be had")
	ln := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a, PauseTime: time.Hour, Before: func() error {
		if before++; before == 3 {
			return fail
		}
		return nil
	}})
	ln.Empty(1) // finds nobody; Before has been called
	dial(t, s, 2)
	turn(t, l)
	turn(t, l)
	turn(t, l)
	if len(a.fds) != 1 || before != 3 || len(a.errs) != 1 || a.errs[0] != fail {
		t.Fatalf("accepted %d after %d calls, paused for %v", len(a.fds), before, a.errs)
	}
	ln.Retry()
	turn(t, l)
	if len(a.fds) != 2 || before != 4 {
		t.Fatalf("accepted %d after %d calls, want 2 after 4", len(a.fds), before)
	}
}

// TestEmptyPauses: emptying that failed says so and does not go on.
func TestEmptyPauses(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	s, fd := socket(t)
	a := newAcceptor(t)
	ln := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	script(ln, syscall.EMFILE)
	dial(t, s, 2)
	if n := ln.Empty(10); n != 0 || len(a.errs) != 1 {
		t.Fatalf("accepted %d, paused for %v", n, a.errs)
	}
	if n := ln.Empty(10); n != 2 {
		t.Fatalf("accepted %d, want 2", n)
	}
}

// TestCloseAfterTheLoop: a listener that is closed later than its loop leaves another
// loop alone, which has the number of the first one's epoll instance by now.
func TestCloseAfterTheLoop(t *testing.T) {
	t.Parallel()

	socket, fd := socket(t)
	first := must.Get(loop.New(nil))(t)
	old := must.Get(first.Listen(fd, &loop.ListenerConfig{Acceptor: newAcceptor(t)}))(t)
	must.Do(t, first.Close())
	l, a := newLoop(t, nil), newAcceptor(t)
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
	must.Is(t, old.Close(), syscall.EBADF)
	dial(t, socket, 1)
	if turn(t, l); len(a.fds) != 1 {
		t.Errorf("%d were accepted, want 1", len(a.fds))
	}
}

// exhaust uses up the descriptors of this process, which get a low limit. spare is
// one of them; undo closes the rest.
func exhaust(t testing.TB) (spare int, undo func()) {
	t.Helper()
	soft, hard, err := sys.RlimitNoFileRange()
	must.Do(t, err)
	must.Do(t, sys.SetRlimitNoFile(64, hard))
	var fds []int
	for {
		fd, err := sys.Dup(0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	if len(fds) < 2 {
		t.Fatalf("%d descriptors could be had", len(fds))
	}
	return fds[0], func() {
		for _, fd := range fds[1:] {
			sys.Close(fd)
		}
		if err := sys.SetRlimitNoFile(soft, hard); err != nil {
			t.Error(err)
		}
	}
}
