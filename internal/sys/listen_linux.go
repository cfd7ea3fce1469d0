package sys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options of sockets that listen or are not bound yet (socket(7), ip(7)).
const (
	SO_REUSEPORT            = unix.SO_REUSEPORT
	IP_BIND_ADDRESS_NO_PORT = unix.IP_BIND_ADDRESS_NO_PORT
)

// Listen makes a bound socket listen by listen(2), or changes the backlog of a listening socket.
func Listen(fd, backlog int) error { return unix.Listen(fd, backlog) }

// ListenQueue returns how many connections wait in the accept queue of a listening TCP socket, and how many may
// wait there (the backlog in force): tcpi_unacked and tcpi_sacked of TCP_INFO (net/ipv4/tcp.c, tcp_get_info).
func ListenQueue(fd int) (queued, backlog int, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0, err
	}
	return int(info.Unacked), int(info.Sacked), nil
}

// Bind gives a socket its local address by bind(2); port 0 lets the kernel choose a port. scope is the index of the
// interface for a link-local IPv6 address; the zone of the address is ignored.
func Bind(fd int, to netip.AddrPort, scope uint32) error {
	if to.Addr().Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	return unix.Bind(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: scope})
}

// Options of sockets that share their address with others (socket(7), tcp(7)).
const (
	// SO_BINDTOIFINDEX takes the index of an interface, which need not exist (Linux
	// 5.1; without CAP_NET_RAW once for each socket, since 5.7).
	SO_BINDTOIFINDEX = unix.SO_BINDTOIFINDEX
	// TCP_REPAIR needs CAP_NET_ADMIN.
	TCP_REPAIR   = unix.TCP_REPAIR
	IPPROTO_IPV6 = unix.IPPROTO_IPV6
	IPV6_V6ONLY  = unix.IPV6_V6ONLY
)

// MultipathSocket is [StreamSocket] for Multipath TCP. EPROTONOSUPPORT, ENOPROTOOPT: the kernel does not have
// it, or it is switched off.
func MultipathSocket(address netip.Addr) (int, error) {
	return streamSocket(address, unix.IPPROTO_MPTCP)
}

// Options of listening sockets: ip(7), ipv6(7), tcp(7).
const (
	IP_TRANSPARENT   = unix.IP_TRANSPARENT
	IPV6_TRANSPARENT = unix.IPV6_TRANSPARENT
	TCP_FASTOPEN     = unix.TCP_FASTOPEN
)

// Flags of accept4(2).
const (
	SOCK_CLOEXEC  = unix.SOCK_CLOEXEC
	SOCK_NONBLOCK = unix.SOCK_NONBLOCK
)

// Accept4 takes a connection out of the queue of a listening socket (accept4(2)). The caller owns the new
// descriptor. Unlike on other systems it does not inherit O_NONBLOCK from the listener: without SOCK_NONBLOCK
// it blocks.
func Accept4(fd, flags int) (int, error) {
	nfd, _, err := unix.Accept4(fd, flags)
	if err != nil {
		return -1, err
	}
	return nfd, nil
}

// ShutdownBoth ends both directions by shutdown(2) SHUT_RDWR; a blocked receive on the socket gets an end of
// file.
func ShutdownBoth(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) }

// AcceptSocket is Accept4 with SOCK_NONBLOCK and SOCK_CLOEXEC that also returns the address of the peer: IPv4
// addresses mapped into IPv6 as IPv4, and an invalid address for a unix socket. The kernel has the address even
// if the connection was reset in the queue (net/socket.c, do_accept, asks inet_getname in net/ipv4/af_inet.c
// with peer 2), while getpeername(2) then fails with ENOTCONN. It allocates nothing.
//
// It goes through the scheduler, although it does not wait if the listener is non-blocking: the flag belongs to
// the open file, and other processes that share the file may make it blocking (os.File's Fd does so).
func AcceptSocket(fd int) (int, netip.AddrPort, error) {
	var raw unix.RawSockaddrInet6 // a longer address is cut off
	size := uint32(unsafe.Sizeof(raw))
	nfd, _, e := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, netip.AddrPort{}, e
	}
	at, err := addressOf(&raw)
	if err != nil {
		return int(nfd), netip.AddrPort{}, nil
	}
	return int(nfd), netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// ListenDrops returns how many connections and segments a listening TCP socket has dropped: connections for
// which its accept queue was full (net/ipv4/tcp_input.c, tcp_conn_request; net/ipv4/tcp_ipv4.c,
// tcp_v4_syn_recv_sock: tcp_listendrop), after which clients try again, and segments that belong to no
// connection (tcp_v4_do_rcv: discard), which any peer can send. [ListenOverflows] does not count the segments.
// It is SK_MEMINFO_DROPS of getsockopt(2) SO_MEMINFO (net/core/sock.c, sk_get_meminfo), and wraps at 2^32.
// EOPNOTSUPP: drops are not counted, for instance with Multipath TCP, which has separate sockets for subflows.
func ListenDrops(fd int) (uint32, error) {
	switch protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); {
	case err != nil:
		return 0, err
	case protocol != unix.IPPROTO_TCP:
		return 0, syscall.EOPNOTSUPP
	}
	var info [9]uint32 // SK_MEMINFO_VARS (include/uapi/linux/sock_diag.h)
	size := uint32(unsafe.Sizeof(info))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case e != 0:
		return 0, e
	case size < uint32(unsafe.Sizeof(info)):
		return 0, syscall.EOPNOTSUPP
	}
	return info[8], nil
}

// ErrNoListenOverflows means that the kernel's table lacks ListenOverflows.
var ErrNoListenOverflows = errors.New("no TcpExt ListenOverflows")

// netstat is the kernel's table of counters of the calling thread's network namespace (proc_pid_net(5)).
const netstat = "/proc/thread-self/net/netstat"

// ListenOverflows returns how often an accept queue of any TCP socket in the calling thread's network namespace
// has overflowed (LINUX_MIB_LISTENOVERFLOWS, net/ipv4/proc.c). The kernel counts an overflow before a drop of
// [ListenDrops]. Errors wrap the cause of a failed read of the table, or ErrNoListenOverflows. It is safe for
// concurrent use.
func ListenOverflows() (uint64, error) {
	f, err := os.Open(netstat)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	text := netstatTexts.Get().(*bytes.Buffer)
	defer netstatTexts.Put(text)
	text.Reset()
	if _, err := text.ReadFrom(f); err != nil {
		return 0, err
	}
	n, err := netstatCounter(text.Bytes(), "TcpExt:", "ListenOverflows")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", netstat, err)
	}
	return n, nil
}

// netstatTexts spare a process that reads the table several times a second most of its garbage.
var netstatTexts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// netstatCounter returns a counter from the text of the table, which has two lines for each protocol: names,
// and values in the same order.
func netstatCounter(text []byte, protocol, name string) (uint64, error) {
	at := -1 // of the name in its line
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(protocol)) {
			continue
		}
		i := 0
		for field := range bytes.FieldsSeq(line) {
			if at < 0 && string(field) == name {
				at = i
				break
			}
			if i == at {
				return strconv.ParseUint(string(field), 10, 64)
			}
			i++
		}
	}
	return 0, ErrNoListenOverflows
}

// Questions to sock_diag(7) about a unix socket (include/uapi/linux/unix_diag.h).
const (
	unixShowQueue = 0x10 // UDIAG_SHOW_RQLEN
	unixQueue     = 4    // UNIX_DIAG_RQLEN
	unixNoCookie  = ^uint32(0)
)

// UnixListenQueue returns how many connections wait in the accept queue of a listening unix socket, and the
// backlog: while more than that wait, further ones have to wait to be queued, or are refused with EAGAIN.
// These are udiag_rqueue and udiag_wqueue of sock_diag(7) (net/unix/diag.c, sk_diag_show_rqlen;
// net/unix/af_unix.c, unix_recvq_full). It makes a socket for the question, which some sandboxes refuse.
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

func unixDiagRequest(inode uint32) []byte {
	b := make([]byte, 0, unix.NLMSG_HDRLEN+24)
	b = binary.NativeEndian.AppendUint32(b, uint32(cap(b)))
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence number, port
	b = append(b, unix.AF_UNIX, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.NativeEndian.AppendUint32(b, inode)
	b = binary.NativeEndian.AppendUint32(b, unixShowQueue)
	b = binary.NativeEndian.AppendUint32(b, unixNoCookie)
	return binary.NativeEndian.AppendUint32(b, unixNoCookie)
}

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
