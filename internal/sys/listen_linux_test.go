package sys_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestListenQueue(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd := sockets.FD(t, l.(syscall.Conn))
	if err := sys.Listen(fd, 7); err != nil {
		t.Fatal(err)
	}
	queued, backlog, err := sys.ListenQueue(fd)
	want(t, "backlog", backlog, err, 7, nil)
	want(t, "queued", queued, err, 0, nil)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The client is connected as soon as the kernel has answered; the queue is
	// filled by its acknowledgement, a moment later.
	for start := time.Now(); queued != 1 && time.Since(start) < 10*time.Second; {
		queued, _, err = sys.ListenQueue(fd)
	}
	want(t, "queued", queued, err, 1, nil)
}
