package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Connection is a socket's knowledge of an established TCP connection with empty queues.
type Connection struct {
	Local, Remote netip.AddrPort
	// Send and Receive are the next sequence numbers of both directions.
	Send, Receive uint32
	// SendWindow is how many bytes the remote end takes, and ReceiveWindow how many it was promised.
	SendWindow, ReceiveWindow uint32
	// SendScale and ReceiveScale are the shifts of these windows in packets.
	SendScale, ReceiveScale uint8
	// SACK and Timestamps are options that both ends use.
	SACK, Timestamps bool
	// Timestamp is a timestamp in ms that the remote end has seen: the socket sends higher ones.
	Timestamp uint32
	// SegmentSize is the largest segment that the remote end takes, without options.
	SegmentSize uint16
}

// Restore makes a socket, in repair, for a connection that no socket has: after [Resume] it goes on where the
// last socket has ended. The caller owns the descriptor, which does not block. EADDRNOTAVAIL and EADDRINUSE:
// another socket has the connection. EPERM: CAP_NET_ADMIN is missing.
//
// ECN is not restored: the kernel has no option for it (net/ipv4/tcp.c, tcp_repair_options_est).
func Restore(c Connection) (fd int, err error) {
	fd, err = StreamSocket(c.Local.Addr())
	if err != nil {
		return -1, err
	}
	if err = restore(fd, &c); err != nil {
		_ = syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

func restore(fd int, c *Connection) error {
	// connect computes the segment size from this option, because the repair option comes after it
	// (tcp_connect_init). It takes at most MAX_TCP_WINDOW.
	const largest = 32767
	if err := Repair(fd, true); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, int(min(c.SegmentSize, largest))); err != nil {
		return err
	}
	if err := establish(fd, c.Local, c.Remote, c.Send, c.Receive); err != nil {
		return err
	}
	if err := unix.SetsockoptTCPRepairOpt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_OPTIONS, c.options()); err != nil {
		return err
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_WINDOW, c.window()); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, 0); err != nil || !c.Timestamps {
		return err
	}
	// The lowest bit asks for microseconds (Linux 6.7).
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_TIMESTAMP, int(int32((c.Timestamp+2)&^1)))
}

// options returns the options of both SYNs (RFC 9293, RFC 7323, RFC 2018) by kind.
func (c *Connection) options() []unix.TCPRepairOpt {
	o := []unix.TCPRepairOpt{{Code: 2, Val: uint32(c.SegmentSize)}, {Code: 3, Val: uint32(c.SendScale) | uint32(c.ReceiveScale)<<16}}
	if c.SACK {
		o = append(o, unix.TCPRepairOpt{Code: 4})
	}
	if c.Timestamps {
		o = append(o, unix.TCPRepairOpt{Code: 8})
	}
	return o
}

// window returns a struct tcp_repair_window (include/uapi/linux/tcp.h): snd_wl1, snd_wnd, max_window, rcv_wnd,
// rcv_wup.
func (c *Connection) window() string {
	var b []byte
	for _, v := range []uint32{c.Receive - 1, c.SendWindow, max(c.SendWindow, 1), c.ReceiveWindow, c.Receive} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return string(b)
}

// Resume ends the repair of a socket. The socket then probes the remote end, which acknowledges: its answer
// shows its window and what it has received.
func Resume(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF)
}

// ProbeWindow makes a connected socket send what Resume sends: an acknowledgement with its window, at the
// number before the next one. It needs CAP_NET_ADMIN. Repair clears SO_REUSEADDR, so ProbeWindow
// restores it.
func ProbeWindow(fd int) error {
	reuse, err := GetsockoptInt(fd, SOL_SOCKET, unix.SO_REUSEADDR)
	if err == nil {
		err = Repair(fd, true)
	}
	if err == nil {
		err = Resume(fd)
	}
	if err == nil {
		err = SetsockoptInt(fd, SOL_SOCKET, unix.SO_REUSEADDR, reuse)
	}
	return err
}
