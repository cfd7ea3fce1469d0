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
	fd, err := loop.Take(server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("the old owner can write still: %v", err)
	}
	server = nil
	collect()
	mustBe(t, fd)

	l := newLoop(t, nil)
	h := &scripted{}
	id := add(t, l, fd, 0, h)
	if _, err := client.Write([]byte("to the loop")); err != nil {
		t.Fatal(err)
	}
	turnUntil(t, l, "what was written", func() bool { return h.all()&loop.Readable != 0 })
	var b [32]byte
	if n, err := sys.Recv(fd, b[:], sys.MSG_DONTWAIT); err != nil || string(b[:n]) != "to the loop" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	if err := l.Detach(id); err != nil {
		t.Fatal(err)
	}
	told := len(h.told)
	back, err := loop.Give(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	collect()
	if _, err := client.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(back, b[:4]); err != nil || string(b[:n]) != "back" {
		t.Fatalf("read %q, %v", b[:n], err)
	}
	turn(t, l)
	if len(h.told) != told {
		t.Fatal("the loop is told still")
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
	fd, err := loop.Take(server)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if err := await(t, ended, "the end of the read"); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("the reader got %v", err)
	}
	mustBe(t, fd)
}

func TestTakeListener(t *testing.T) {
	t.Parallel()

	path := filepath.Join(sockets.Dir(t), "s")
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		t.Run(network, func(t *testing.T) {
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			fd, err := loop.Take(ln.(syscall.Conn))
			if err != nil {
				t.Fatal(err)
			}
			to := ln.Addr().String()
			collect()
			l := newLoop(t, nil)
			a := newAcceptor(t)
			listener := listen(t, l, fd, &loop.ListenerConfig{Acceptor: a})
			c, err := net.Dial(network, to) // the path is there still
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			turnUntil(t, l, "a connection", func() bool { return len(a.fds) == 1 })
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := loop.GiveListener(fd)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			collect()
			c2, err := net.Dial(network, to)
			if err != nil {
				t.Fatal(err)
			}
			defer c2.Close()
			c3, err := again.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c3.Close()
		})
	}
}

// TestTakeFile: a pipe of package os, also one that is blocking.
func TestTakeFile(t *testing.T) {
	t.Parallel()

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := syscall.SetNonblock(sockets.FD(t, r), false); err != nil {
		t.Fatal(err)
	}
	fd, err := loop.Take(r)
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it is not as it was: %v", err)
	}
	server.Close()
	if _, err := loop.Take(server); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("taken a closed one: %v", err)
	}
}

// TestGiveOwns: also what it refuses is closed.
func TestGiveOwns(t *testing.T) {
	t.Parallel()

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd, err := loop.Take(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Give(fd); !errors.Is(err, syscall.ENOTSOCK) {
		t.Fatalf("a pipe: %v, want ENOTSOCK", err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) { // a test beside may have the number by now
		t.Fatalf("descriptor %d is open still: %v", fd, err)
	}
	if _, err := loop.Give(-1); !errors.Is(err, syscall.EBADF) {
		t.Fatalf("no descriptor: %v, want EBADF", err)
	}
	if _, err := loop.GiveListener(-1); !errors.Is(err, syscall.EBADF) {
		t.Fatalf("no descriptor: %v, want EBADF", err)
	}
}
