package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestSIOCATMARK(t *testing.T) {
	near, far := sockets.TCPPair(t)
	fd := sockets.FD(t, near)
	at, err := sys.SIOCATMARK(fd)
	want(t, "with nothing queued", at, err, false, nil)
	if _, err := sys.Send(sockets.FD(t, far), []byte("a!"), sys.MSG_OOB); err != nil {
		t.Fatal(err)
	}
	await(t, fd)
	at, err = sys.SIOCATMARK(fd)
	want(t, "before the mark", at, err, false, nil)
	n, err := sys.Recv(fd, make([]byte, 10), sys.MSG_DONTWAIT)
	want(t, "the byte before it", n, err, 1, nil)
	at, err = sys.SIOCATMARK(fd)
	want(t, "at the mark", at, err, true, nil)
	at, err = sys.SIOCATMARK(-1)
	want(t, "nowhere", at, err, false, error(syscall.EBADF))
	if n := testing.AllocsPerRun(50, func() { sys.SIOCATMARK(fd) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
