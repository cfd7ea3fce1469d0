package sys_test

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestZerocopyDone(t *testing.T) {
	client, server := sockets.TCPPair(t)
	fd := sockets.FD(t, client)
	if err := sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
		t.Skipf("this kernel has none: %v", err)
	}
	_, err := sys.ZerocopyDone(fd)
	want(t, "notice of nothing", 0, err, 0, error(syscall.EAGAIN))
	b := make([]byte, 8192)
	n, err := sys.Send(fd, b, sys.MSG_ZEROCOPY|sys.MSG_NOSIGNAL)
	want(t, "send", n, err, len(b), nil)
	if _, err := io.ReadFull(server, make([]byte, len(b))); err != nil {
		t.Fatal(err)
	}
	copied, err := sys.ZerocopyDone(fd)
	for start := time.Now(); err == syscall.EAGAIN && time.Since(start) < 10*time.Second; {
		copied, err = sys.ZerocopyDone(fd)
	}
	want(t, "copied over loopback", copied, err, true, nil)
}
