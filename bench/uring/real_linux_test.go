package uring

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// open makes a ring that is this thread's, and closes it when the test ends.
func open(t testing.TB, submissions, completions uint32) *Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := Open(submissions, completions, Deferred)
	if err != nil {
		t.Skip("needs io_uring of Linux 6.1:", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, r.Enable())
	return r
}

// TestCancelAllReleasesFiles: the other end of a pair whose end was closed sees that only when no request
// holds the file.
func TestCancelAllReleasesFiles(t *testing.T) {
	r := open(t, 8, 8)
	a, b, err := sys.SocketPair()
	must.Do(t, err)
	defer sys.Close(b)
	r.Push(&SQE{Opcode: sys.IORING_OP_POLL_ADD, Fd: int32(a), Len: sys.IORING_POLL_ADD_MULTI, OpFlags: sys.EPOLLIN, UserData: 1})
	must.Do(t, r.Submit())
	sys.Close(a)
	buf := make([]byte, 1)
	if _, err := sys.Recv(b, buf, sys.MSG_DONTWAIT); err != syscall.EAGAIN {
		t.Fatalf("while the request holds it: %v, want EAGAIN", err)
	}
	must.Do(t, r.CancelAll())
	if n, err := sys.Recv(b, buf, sys.MSG_DONTWAIT); n != 0 || err != nil {
		t.Fatalf("after that: %d, %v, want an end of file", n, err)
	}
}
