package sys

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Repair sets or ends TCP_REPAIR of a socket, which needs CAP_NET_ADMIN (net/ipv4/tcp.c, tcp_can_repair_sock).
// A socket that is closed in repair sends neither FIN nor RST. Ending repair sends nothing either
// (TCP_REPAIR_OFF_NO_WP, Linux 4.19).
func Repair(fd int, on bool) error {
	mode := unix.TCP_REPAIR_OFF_NO_WP
	if on {
		mode = unix.TCP_REPAIR_ON
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, mode)
}

// Established makes a socket, in repair, for a connection that already exists between two addresses, with the
// next number to send and the next to expect. No packet leaves for it, and it knows no window to send to.
// Another socket may be bound to the address and listen there. The caller owns the descriptor. EADDRNOTAVAIL:
// another socket has the connection.
func Established(local, remote netip.AddrPort, send, receive uint32) (fd int, err error) {
	fd, err = StreamSocket(local.Addr())
	if err != nil {
		return -1, err
	}
	err = Repair(fd, true)
	if err == nil {
		err = establish(fd, local, remote, send, receive)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}

func establish(fd int, local, remote netip.AddrPort, send, receive uint32) error {
	const receiveQueue, sendQueue = 1, 2 // TCP_RECV_QUEUE, TCP_SEND_QUEUE (include/uapi/linux/tcp.h)
	err := Bind(fd, local, 0)
	for _, q := range [][2]int{{sendQueue, int(int32(send))}, {receiveQueue, int(int32(receive))}} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, q[0])
		}
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ, q[1])
		}
	}
	if err != nil {
		return err
	}
	return Connect(fd, remote)
}

// GracePeriod returns when every CPU has left the kernel network code that it was running, and every running
// BPF program has returned. It uses membarrier(2) MEMBARRIER_CMD_GLOBAL, which waits for RCU
// (kernel/sched/membarrier.c), some tens of milliseconds. EINVAL: the kernel has CPUs without ticks
// (nohz_full).
func GracePeriod() error {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, e := syscall.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	return errnoErr(e)
}
