package loop_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// collect runs the finalizers and cleanups of what is garbage.
func collect() {
	for range 3 {
		runtime.GC()
	}
}

// mustBe fails unless fd is a socket or another file that is open, non-blocking and
// that of the caller.
func mustBe(t *testing.T, fd int) {
	t.Helper()
	flags, err := sys.GetFl(fd)
	if err != nil || flags&sys.O_NONBLOCK == 0 {
		t.Fatalf("descriptor %d: flags %#x, %v", fd, flags, err)
	}
}

// TestTakeAndGive: a connection goes to a loop and back; its descriptor survives what
// the runtime does to the one it had, and all of them are closed once.
func TestTakeAndGive(t *testing.T) {
	t.Parallel()

	client, server := sockets.TCPPair(t)
	fd := must.Get(loop.Take(server))(t)
	must.Fail(server.Write([]byte("x")))(t, net.ErrClosed)
	server = nil
	collect()
	mustBe(t, fd)

	l := newLoop(t, nil)
	h := &scripted{}
	id := add(t, l, fd, 0, h)
	must.Get(client.Write([]byte("to the loop")))(t)
	turnUntil(t, l, "what was written", func() bool { return h.all()&loop.Readable != 0 })
	var b [32]byte
	if n, err := sys.Recv(fd, b[:], sys.MSG_DONTWAIT); err != nil || string(b[:n]) != "to the loop" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	must.Do(t, l.Detach(id))
	told := len(h.told)
	back := must.Get(loop.Give(fd))(t)
	defer back.Close()
	collect()
	must.Get(client.Write([]byte("back")))(t)
	if n, err := io.ReadFull(back, b[:4]); err != nil || string(b[:n]) != "back" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	turn(t, l)
	if len(h.told) != told {
		t.Fatal("the loop is told still")
	}
}

// TestTakeNothing: a connection that is nil, of a type or of none, is an error that says so.
func TestTakeNothing(t *testing.T) {
	t.Parallel()

	for _, c := range []syscall.Conn{nil, (*net.TCPConn)(nil), (*net.UnixListener)(nil), (*os.File)(nil)} {
		if _, err := loop.Take(c); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%T: %v", c, err)
		}
	}
}

// TestTakeInterruptsReaders: one that is reading is gone when Take returns.
func TestTakeInterruptsReaders(t *testing.T) {
	t.Parallel()

	_, server := sockets.TCPPair(t)
	ended := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 1))
		ended <- err
	}()
	fd := must.Get(loop.Take(server))(t)
	defer sys.Close(fd)
	must.Is(t, condition.Receive(t, "the end of the read", ended), net.ErrClosed)
	mustBe(t, fd)
}

func TestTakeListener(t *testing.T) {
	t.Parallel()

	path := filepath.Join(sockets.Dir(t), "s")
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		t.Run(network, func(t *testing.T) {
			ln := must.Get(net.Listen(network, address))(t)
			fd := must.Get(loop.Take(ln.(syscall.Conn)))(t)
			to := ln.Addr().String()
			collect()
			l := newLoop(t, nil)
			a := newAcceptor(t)
			listener := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
			c := must.Get(net.Dial(network, to))(t)
			defer c.Close()
			turnUntil(t, l, "a connection", func() bool { return len(a.fds) == 1 })
			must.Do(t, listener.Close())
			again := must.Get(loop.GiveListener(fd))(t)
			defer again.Close()
			collect()
			c2 := must.Get(net.Dial(network, to))(t)
			defer c2.Close()
			c3 := must.Get(again.Accept())(t)
			c3.Close()
		})
	}
}

// TestTakeFile: a pipe of package os, also one that is blocking.
func TestTakeFile(t *testing.T) {
	t.Parallel()

	r, w, err := os.Pipe()
	must.Do(t, err)
	defer w.Close()
	must.Do(t, syscall.SetNonblock(sockets.FD(t, r), false))
	fd := must.Get(loop.Take(r))(t)
	defer sys.Close(fd)
	collect()
	mustBe(t, fd)
	l := newLoop(t, nil)
	h := &scripted{}
	l.Drop(add(t, l, fd, 0, h))
	if again, err := loop.Take(r); err == nil {
		sys.Close(again)
		t.Fatal("taken twice")
	}
}

type notClosable struct{ syscall.Conn }

func TestTakeRefuses(t *testing.T) {
	t.Parallel()

	client, server := sockets.TCPPair(t)
	if _, err := loop.Take(notClosable{server}); err == nil {
		t.Fatal("taken from what cannot be closed")
	}
	must.Get(client.Write([]byte("x")))(t)
	must.Get(server.Read(make([]byte, 1)))(t)
	server.Close()
	must.Fail(loop.Take(server))(t, net.ErrClosed)
}

// TestGiveOwns: also what it refuses is closed.
func TestGiveOwns(t *testing.T) {
	t.Parallel()

	r, w, err := os.Pipe()
	must.Do(t, err)
	defer w.Close()
	fd := must.Get(loop.Take(r))(t)
	must.Fail(loop.Give(fd))(t, syscall.ENOTSOCK)
	if _, err := w.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) { // a test beside may have the number by now
		t.Fatalf("descriptor %d is open still: %v", fd, err)
	}
	must.Fail(loop.Give(-1))(t, syscall.EBADF)
	must.Fail(loop.GiveListener(-1))(t, syscall.EBADF)
}
