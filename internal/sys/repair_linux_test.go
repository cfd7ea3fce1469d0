package sys_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestRepair: a socket that is closed in repair sends nothing, and one that is made anew at its
// numbers has the connection: its reset is taken.
func TestRepair(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var numbers [3]int // 0, and those of the two queues
	_ = raw.Control(func(fd uintptr) {
		if err = sys.Repair(int(fd), true); err != nil {
			return
		}
		for _, queue := range []int{1, 2} { // TCP_RECV_QUEUE, TCP_SEND_QUEUE
			const repairQueue, queueSequence = 20, 21 // TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ
			err = errors.Join(err, sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, repairQueue, queue))
			numbers[queue], _ = sys.GetsockoptInt(int(fd), sys.IPPROTO_TCP, queueSequence)
		}
	})
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		t.Skip("TCP_REPAIR takes CAP_NET_ADMIN:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	fd, err := sys.Established(local, remote, uint32(numbers[2]), uint32(numbers[1]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sys.Established(local, remote, 1, 1); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("the same connection once more: %v", err)
	}
	if err := errors.Join(sys.Repair(fd, false), sys.AbortOnClose(fd), syscall.Close(fd)); err != nil {
		t.Fatal(err)
	}
	_ = far.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) { // and no end of file before
		t.Errorf("the far end reads %v, want a reset", err)
	}
}

func TestGracePeriod(t *testing.T) {
	if err := sys.GracePeriod(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOSYS) {
		t.Error(err)
	}
}
