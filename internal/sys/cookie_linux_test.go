package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestSocketCookie(t *testing.T) {
	client, server := sockets.TCPPair(t)
	a, err := sys.SocketCookie(sockets.FD(t, client))
	if err != nil {
		t.Fatal(err)
	}
	again, err := sys.SocketCookie(sockets.FD(t, client))
	want(t, "the same socket", again, err, a, nil)
	if b, err := sys.SocketCookie(sockets.FD(t, server)); err != nil || b == a || a == 0 {
		t.Errorf("cookies %d and %d, %v; want two", a, b, err)
	}
	_, err = sys.SocketCookie(-1)
	want(t, "no socket", 0, err, 0, error(syscall.EBADF))
}
