package sys_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func TestWritev(t *testing.T) {
	r, w := newPipe(t)
	n, err := sys.Writev(w, [][]byte{[]byte("he"), nil, []byte("llo")})
	want(t, "writev", n, err, 5, nil)
	b := make([]byte, 10)
	n, err = sys.Read(r, b)
	want(t, "read", string(b[:n]), err, "hello", nil)
	n, err = sys.Writev(-1, [][]byte{b})
	want(t, "writev", n, err, 0, error(syscall.EBADF))
}

func TestTheTimeOfAThreadRises(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sum := func() time.Duration {
		used, err := sys.Getrusage(sys.RUSAGE_THREAD)
		if err != nil {
			t.Fatal(err)
		}
		return used.Utime + used.Stime
	}
	begin, deadline := sum(), time.Now().Add(10*time.Second)
	for sum() <= begin {
		if time.Now().After(deadline) {
			t.Fatal("a busy thread used no time")
		}
	}
}
