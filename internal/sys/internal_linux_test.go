package sys

import (
	"net"
	"syscall"
	"testing"
)

func TestGetrusage(t *testing.T) {
	before, err := Getrusage(RUSAGE_SELF)
	if err != nil {
		t.Fatal(err)
	}
	// One that waits for the other is a context switch each time, as the pipe
	// is empty.
	r, w, err := Pipe2(O_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(r)
	go func() {
		defer Close(w)
		for range 100 {
			_, _ = Write(w, []byte{1})
		}
	}()
	for n := 1; n > 0; {
		if n, err = Read(r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		after, err := Getrusage(RUSAGE_SELF)
		if err != nil {
			t.Fatal(err)
		}
		if after.Utime+after.Stime > before.Utime+before.Stime && after.Nvcsw+after.Nivcsw > before.Nvcsw+before.Nivcsw {
			return
		}
	}
}

// listeningFD returns the descriptor of a listener that blocks.
func listeningFD(t *testing.T) (fd int, address string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd()), l.Addr().String()
}

func TestAccept4Blocks(t *testing.T) {
	listener, address := listeningFD(t)
	for _, flags := range []int{SOCK_CLOEXEC, SOCK_CLOEXEC | SOCK_NONBLOCK} {
		c, err := net.Dial("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := Accept4(listener, flags)
		_ = c.Close()
		if err != nil {
			t.Fatal(err)
		}
		fl, err := GetFl(fd)
		_ = Close(fd)
		if err != nil || (fl&O_NONBLOCK != 0) != (flags&SOCK_NONBLOCK != 0) {
			t.Errorf("flags %#x became %#x, %v", flags, fl, err)
		}
	}
}

func TestShutdownBothEndsAnAccept(t *testing.T) {
	listener, _ := listeningFD(t)
	ended := make(chan error)
	go func() {
		_, err := Accept4(listener, SOCK_CLOEXEC)
		ended <- err
	}()
	if err := ShutdownBoth(listener); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != syscall.EINVAL {
		t.Errorf("got %v, want EINVAL", err)
	}
}
