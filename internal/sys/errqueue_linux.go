package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ZerocopyNotice tells of calls of send(2) with MSG_ZEROCOPY on one socket of
// whose memory the kernel needs nothing any more. The calls that took at least one
// byte are numbered from 0 on, and 0 follows 1<<32 - 1; the notice is of those from Lo to Hi,
// both included (Documentation/networking/msg_zerocopy.rst).
type ZerocopyNotice struct {
	Lo, Hi uint32
	Copied bool // SO_EE_CODE_ZEROCOPY_COPIED: the kernel has copied after all
}

// RecvZerocopyNotice takes the next message from a socket's error queue with
// recvmsg(2) and MSG_ERRQUEUE, which never waits. EAGAIN: there is none; EBADMSG:
// it was about something else, and is lost.
func RecvZerocopyNotice(fd int) (ZerocopyNotice, error) {
	var control struct {
		_ [0]unix.Cmsghdr // aligned like one
		b [128]byte       // for one with a sock_extended_err and an address
	}
	var msg unix.Msghdr
	msg.Control = &control.b[0]
	msg.SetControllen(len(control.b))
	_, _, e := syscall.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if e != 0 {
		return ZerocopyNotice{}, e
	}
	return parseNotice(control.b[:min(int(msg.Controllen), len(control.b))])
}

// parseNotice looks for IP_RECVERR or IPV6_RECVERR among control messages, and
// in it for a struct sock_extended_err of zero-copy sends.
func parseNotice(b []byte) (ZerocopyNotice, error) {
	for len(b) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			break
		}
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR {
			return extendedErr(data)
		}
		b = rest
	}
	return ZerocopyNotice{}, syscall.EBADMSG
}

func extendedErr(data []byte) (ZerocopyNotice, error) {
	var e unix.SockExtendedErr
	if copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), data) < int(unsafe.Sizeof(e)) ||
		e.Origin != unix.SO_EE_ORIGIN_ZEROCOPY || e.Errno != 0 {
		return ZerocopyNotice{}, syscall.EBADMSG
	}
	return ZerocopyNotice{e.Info, e.Data, e.Code&unix.SO_EE_CODE_ZEROCOPY_COPIED != 0}, nil
}

// Disconnect undoes a TCP connection with connect(2) to AF_UNSPEC: the peer gets a
// reset, what was queued is dropped, and the descriptor stays open, so that its error
// queue can be read (net/ipv4/tcp.c, tcp_disconnect).
func Disconnect(fd int) error {
	address := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, e := syscall.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address))
	return errnoErr(e)
}
