package sys_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestSpliceSocket(t *testing.T) {
	r, w := newPipe(t)
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	n, err := sys.SpliceSocket(fd, w, fd, 10)
	want(t, "from an empty socket", n, err, 0, error(syscall.EAGAIN))
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	n, err = sys.SpliceSocket(fd, w, fd, 10)
	want(t, "from a socket", n, err, 3, nil)
	n, err = sys.SpliceSocket(r, fd, fd, 10)
	want(t, "to a socket", n, err, 3, nil)
	n, err = sys.SpliceSocket(-1, w, -1, 10)
	want(t, "from nothing", n, err, 0, error(syscall.EBADF))
	if n := testing.AllocsPerRun(50, func() { sys.SpliceSocket(fd, w, fd, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// await waits until fd has something to read.
func await(t *testing.T, fd int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if n, err := sys.FIONREAD(fd); err != nil || n > 0 {
			return
		}
	}
	t.Fatal("nothing arrived")
}

// TestSpliceSocketThatWaits: a socket that somebody has made blocking waits. A
// stop-the-world must go on meanwhile.
func TestSpliceSocketThatWaits(t *testing.T) {
	_, w := newPipe(t)
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	spliced := make(chan int, 1)
	go func() {
		n, _ := sys.SpliceSocket(fd, w, fd, 10)
		spliced <- n
	}()
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for range 20 { // one of them comes after the splice has begun to wait
			runtime.GC()
			runtime.Gosched()
		}
	}()
	select {
	case <-collected:
	case <-time.After(30 * time.Second):
		t.Error("a splice that waits keeps the world from stopping")
	}
	if _, err := far.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if n := <-spliced; n != 3 {
		t.Errorf("spliced %d bytes", n)
	}
}
