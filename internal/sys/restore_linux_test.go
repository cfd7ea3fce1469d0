package sys_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
)

// ended closes a connection in silence, and returns what a socket needs to go on with it.
func ended(t *testing.T, c *net.TCPConn) sys.Connection {
	t.Helper()
	was := sys.Connection{
		Local: c.LocalAddr().(*net.TCPAddr).AddrPort(), Remote: c.RemoteAddr().(*net.TCPAddr).AddrPort(),
		SendWindow: 4000, ReceiveWindow: 1000, SACK: true, Timestamps: true,
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if err = sys.Repair(int(fd), true); err != nil {
			return
		}
		get := func(option int) uint32 {
			n, e := sys.GetsockoptInt(int(fd), sys.IPPROTO_TCP, option)
			err = errors.Join(err, e)
			return uint32(n)
		}
		for queue, number := range map[int]*uint32{1: &was.Receive, 2: &was.Send} {
			const repairQueue, queueSequence = 20, 21 // TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ
			err = errors.Join(err, sys.SetsockoptInt(int(fd), sys.IPPROTO_TCP, repairQueue, queue))
			*number = get(queueSequence)
		}
		const timestamp = 24 // TCP_TIMESTAMP
		was.Timestamp = get(timestamp)
		var info sys.TCPInfo
		err = errors.Join(err, sys.GetTCPInfo(int(fd), &info))
		scales := (*[8]byte)(unsafe.Pointer(&info))[6] // tcpi_snd_wscale, tcpi_rcv_wscale
		was.SendScale, was.ReceiveScale, was.SegmentSize = scales&15, scales>>4, uint16(info.Snd_mss)
	})
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		t.Skip("TCP_REPAIR takes CAP_NET_ADMIN:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	return was
}

// TestRestore: a connection goes on with another socket, both ways and to its end, with the segments
// that the far end takes.
func TestRestore(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		far, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		near, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = far.SetDeadline(time.Now().Add(condition.Patience))
		was := ended(t, near.(*net.TCPConn))
		fd, err := sys.Restore(was)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sys.Restore(was); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("the same connection once more: %v", err)
		}
		if err := sys.Resume(fd); err != nil {
			t.Fatal(err)
		}
		var info sys.TCPInfo
		if err := sys.GetTCPInfo(fd, &info); err != nil || info.Snd_mss+40 < min(uint32(was.SegmentSize), 32767) || info.Options&3 != 3 {
			t.Errorf("segments of %d, want %d; options %#x, want timestamps and SACK; %v", info.Snd_mss, was.SegmentSize, info.Options, err)
		}
		f := os.NewFile(uintptr(fd), "restored")
		if near, err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		_ = near.SetDeadline(time.Now().Add(condition.Patience))
		for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			message, got := make([]byte, 100_000), make([]byte, 100_000)
			go func() { _, _ = ends[0].Write(message) }()
			if _, err := io.ReadFull(ends[1], got); err != nil {
				t.Fatal(err)
			}
		}
		near.Close()
		if n, err := far.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
	}
}

// TestRepair: a socket that is closed in repair sends nothing, and one that is made again at
// its numbers has the connection: its reset is taken.
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
	_ = far.SetReadDeadline(time.Now().Add(condition.Patience))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) { // and no end of file before
		t.Errorf("the far end reads %v, want a reset", err)
	}
}

func TestGracePeriod(t *testing.T) {
	if err := sys.GracePeriod(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOSYS) {
		t.Error(err)
	}
}
