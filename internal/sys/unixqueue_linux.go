package sys

import (
	"encoding/binary"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// What sock_diag(7) is asked for of a unix socket (include/uapi/linux/unix_diag.h).
const (
	unixShowQueue = 0x10 // UDIAG_SHOW_RQLEN
	unixQueue     = 4    // UNIX_DIAG_RQLEN
	unixNoCookie  = ^uint32(0)
)

// UnixListenQueue returns how many connections wait in the accept queue of a listening unix
// socket, and beyond how many further ones have to wait to be queued, or are refused with
// EAGAIN: udiag_rqueue and udiag_wqueue of sock_diag(7) (net/unix/diag.c, sk_diag_show_rqlen;
// net/unix/af_unix.c, unix_recvq_full). It asks by a socket of its own, which not every
// sandbox lets a process have.
func UnixListenQueue(fd int) (queued, backlog int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, os.NewSyscallError("fstat", err)
	}
	diag, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(diag)
	if err := unix.Sendto(diag, unixDiagRequest(uint32(st.Ino)), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, os.NewSyscallError("sendto", err)
	}
	// The kernel has answered by then (net/netlink/af_netlink.c, netlink_unicast_kernel).
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(diag, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, 0, os.NewSyscallError("recvfrom", err)
	}
	return unixDiagQueue(answer[:n])
}

// unixDiagRequest is a struct nlmsghdr and a struct unix_diag_req.
func unixDiagRequest(inode uint32) []byte {
	b := make([]byte, 0, unix.NLMSG_HDRLEN+24)
	b = binary.NativeEndian.AppendUint32(b, uint32(cap(b)))
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence number, port
	b = append(b, unix.AF_UNIX, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in whatever state
	b = binary.NativeEndian.AppendUint32(b, inode)
	b = binary.NativeEndian.AppendUint32(b, unixShowQueue)
	b = binary.NativeEndian.AppendUint32(b, unixNoCookie)
	return binary.NativeEndian.AppendUint32(b, unixNoCookie)
}

// unixDiagQueue reads the lengths out of an answer.
func unixDiagQueue(answer []byte) (queued, backlog int, err error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return 0, 0, err
	}
	const head = 16 // struct unix_diag_msg
	for _, m := range messages {
		switch {
		case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
			return 0, 0, os.NewSyscallError("sock_diag", syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data))))
		case m.Header.Type != unix.SOCK_DIAG_BY_FAMILY || len(m.Data) < head:
			continue
		}
		for attrs := m.Data[head:]; len(attrs) >= 4; {
			size, kind := int(binary.NativeEndian.Uint16(attrs)), binary.NativeEndian.Uint16(attrs[2:])
			if size < 4 || size > len(attrs) {
				break
			}
			if kind == unixQueue && size >= 12 {
				return int(binary.NativeEndian.Uint32(attrs[4:])), int(binary.NativeEndian.Uint32(attrs[8:])), nil
			}
			attrs = attrs[min((size+3)&^3, len(attrs)):]
		}
	}
	return 0, 0, os.NewSyscallError("sock_diag", syscall.ENOENT)
}
