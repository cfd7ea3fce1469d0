package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags of recv(2) and send(2).
const (
	MSG_DONTWAIT = unix.MSG_DONTWAIT
	MSG_NOSIGNAL = unix.MSG_NOSIGNAL
	MSG_OOB      = unix.MSG_OOB
	MSG_PEEK     = unix.MSG_PEEK
	MSG_TRUNC    = unix.MSG_TRUNC
)

// Some states of a TCP socket in tcp_info.tcpi_state (include/net/tcp_states.h).
const (
	TCP_ESTABLISHED = unix.BPF_TCP_ESTABLISHED
	TCP_CLOSE       = unix.BPF_TCP_CLOSE
	TCP_CLOSE_WAIT  = unix.BPF_TCP_CLOSE_WAIT
	TCP_FIN_WAIT1   = unix.BPF_TCP_FIN_WAIT1
	TCP_FIN_WAIT2   = unix.BPF_TCP_FIN_WAIT2
	TCP_LAST_ACK    = unix.BPF_TCP_LAST_ACK
	TCP_CLOSING     = unix.BPF_TCP_CLOSING
)

// Recv receives by recvfrom(2) without an address. It returns 0 and no error at the end of the stream (and for
// an empty p on a stream that has data). With MSG_DONTWAIT it is a raw call, see the package's documentation.
func Recv(fd int, p []byte, flags int) (int, error) {
	var n uintptr
	var e syscall.Errno
	if flags&MSG_DONTWAIT != 0 {
		n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	} else {
		n, _, e = syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	}
	return count(n, e)
}

// Send sends by sendto(2) without an address. Pass MSG_NOSIGNAL to get EPIPE without a SIGPIPE. With
// MSG_DONTWAIT it is a raw call.
func Send(fd int, p []byte, flags int) (int, error) {
	var n uintptr
	var e syscall.Errno
	if flags&MSG_DONTWAIT != 0 {
		n, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	} else {
		n, _, e = syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	}
	return count(n, e)
}

// count returns the result of a call that moves bytes.
func count(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// SIOCOUTQ returns how many bytes of the send queue the peer has not acknowledged, sent or not (tcp(7)).
func SIOCOUTQ(fd int) (int, error) { return ioctlInt(fd, unix.SIOCOUTQ) }

// SIOCOUTQNSD returns how many bytes of the send queue have not been sent yet
// (include/uapi/linux/sockios.h; TCP only).
func SIOCOUTQNSD(fd int) (int, error) { return ioctlInt(fd, unix.SIOCOUTQNSD) }

// TCPState returns tcpi_state of getsockopt(2) TCP_INFO, such as TCP_CLOSE.
func TCPState(fd int) (uint8, error) {
	// tcpi_state is the first byte of struct tcp_info, and the kernel copies no more than was asked for.
	var state [4]uint8
	n := uint32(len(state))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&state)), uintptr(unsafe.Pointer(&n)), 0)
	return state[0], errnoErr(e)
}

// SocketPair makes two connected, non-blocking unix stream sockets by socketpair(2). The caller owns both.
func SocketPair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	return fds[0], fds[1], nil
}

// HasError reports whether a socket has an error that was not fetched yet, and leaves the error there. It
// retries after EINTR; if the state is unknown it returns true.
func HasError(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return err != nil || p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
		}
	}
}

// Socket options (socket(7), ip(7), tcp(7)).
const (
	SOL_SOCKET    = unix.SOL_SOCKET
	SO_KEEPALIVE  = unix.SO_KEEPALIVE
	SO_OOBINLINE  = unix.SO_OOBINLINE
	SO_PROTOCOL   = unix.SO_PROTOCOL
	IPPROTO_IP    = unix.IPPROTO_IP
	IPPROTO_TCP   = unix.IPPROTO_TCP
	TCP_NODELAY   = unix.TCP_NODELAY
	TCP_KEEPIDLE  = unix.TCP_KEEPIDLE
	TCP_KEEPINTVL = unix.TCP_KEEPINTVL
	TCP_KEEPCNT   = unix.TCP_KEEPCNT

	// TCP_USER_TIMEOUT is in milliseconds.
	TCP_USER_TIMEOUT = unix.TCP_USER_TIMEOUT
)

// Events of poll(2). POLLERR and POLLHUP are reported unasked.
const (
	POLLIN    = unix.POLLIN
	POLLERR   = unix.POLLERR
	POLLHUP   = unix.POLLHUP
	POLLRDHUP = unix.POLLRDHUP
)

// SetsockoptInt sets an integer option by setsockopt(2).
func SetsockoptInt(fd, level, option, value int) error {
	return unix.SetsockoptInt(fd, level, option, value)
}

// GetsockoptInt returns an integer option by getsockopt(2).
func GetsockoptInt(fd, level, option int) (int, error) {
	return unix.GetsockoptInt(fd, level, option)
}

// Poll returns which of the events are ready on fd now, by a poll(2) that does not wait. On a listening socket
// POLLIN means that its accept queue is not empty (include/net/inet_connection_sock.h, inet_csk_listen_poll).
func Poll(fd int, events int16) (int16, error) {
	set := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	_, err := unix.Poll(set[:], 0)
	return set[0].Revents, err
}

// Fchmod sets the mode of fd's open file by fchmod(2). For a unix socket that is not bound yet this is the mode
// that bind(2) gives the path, less the umask (net/unix/af_unix.c, unix_bind_bsd).
func Fchmod(fd int, mode uint32) error { return unix.Fchmod(fd, mode) }

// LOCK_EX asks Flock for the exclusive lock.
const LOCK_EX = unix.LOCK_EX

// Flock locks fd by flock(2), and waits for the lock unless how has LOCK_NB. The lock ends with the last
// descriptor of the open file.
func Flock(fd, how int) error { return unix.Flock(fd, how) }

// Socket options that decide when TCP sends queued bytes (tcp(7)).
const (
	// TCP_CORK keeps bytes that do not fill a segment, for at most 200 ms. It outranks TCP_NODELAY; setting it
	// to 0 sends at once.
	TCP_CORK = unix.TCP_CORK

	// TCP_MAXSEG is the largest segment to send and to offer, in bytes.
	TCP_MAXSEG = unix.TCP_MAXSEG
)

// TCPInfo is struct tcp_info (include/uapi/linux/tcp.h). A kernel with fewer fields leaves the others as they
// were.
type TCPInfo = unix.TCPInfo

// GetTCPInfo fills info by getsockopt(2) TCP_INFO. EOPNOTSUPP or ENOPROTOOPT: fd is no TCP socket.
func GetTCPInfo(fd int, info *TCPInfo) error {
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	return errnoErr(e)
}

// ReadTCPInfo is [GetTCPInfo] that returns how many bytes of info the kernel has filled. The others stay as
// they were.
func ReadTCPInfo(fd int, info *TCPInfo) (filled int, err error) {
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	return int(n), errnoErr(e)
}

// TCPInfoWithBytes is how many bytes a kernel fills if it knows tcpi_rcv_ooopack and all fields before it
// (Linux 5.4).
const TCPInfoWithBytes = int(unsafe.Offsetof(TCPInfo{}.Snd_wnd))

// ReceiveMemory returns the memory of the packets that a socket has received and nobody has read, in order or
// not, by SO_MEMINFO (SK_MEMINFO_RMEM_ALLOC, include/uapi/linux/sock_diag.h; Linux 4.12).
func ReceiveMemory(fd int) (bytes uint32, err error) {
	var all [9]uint32
	n := uint32(unsafe.Sizeof(all))
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&n)), 0)
	return all[0], errnoErr(e)
}

// AppLimited returns tcpi_delivery_rate_app_limited: the lowest bit of the byte before tcpi_rto, for which
// TCPInfo has no field. Bit fields begin at the other end on big-endian machines.
func AppLimited(info *TCPInfo) bool {
	b := *(*byte)(unsafe.Add(unsafe.Pointer(info), unsafe.Offsetof(info.Rto)-1))
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return b&1 != 0
	}
	return b&0x80 != 0
}

// SO_RCVLOWAT is how many bytes must be queued before a socket counts as readable (socket(7)). It changes what
// poll and epoll report, but not recv.
const SO_RCVLOWAT = unix.SO_RCVLOWAT

// SO_PEEK_OFF is where the next MSG_PEEK begins; -1 means at the first byte (socket(7)).
const SO_PEEK_OFF = unix.SO_PEEK_OFF

// CompleteChecksums makes the kernel compute the checksums of TCP segments that leave by a network interface of
// the calling thread's network namespace (ETHTOOL_STXCSUM of include/uapi/linux/ethtool.h). Otherwise veth(4)
// leaves them to the interface, and its other end verifies none. EINVAL: the name is too long; EPERM:
// CAP_NET_ADMIN is missing there.
func CompleteChecksums(name string) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data *[2]uint32
		_    [16]byte
	}{data: &[2]uint32{unix.ETHTOOL_STXCSUM}}
	if copy(request.name[:], name) == len(request.name) {
		return unix.EINVAL
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errnoErr(e)
}

// Credentials are a process's user, group and process ID. A user or group ID without a mapping in the caller's
// user namespace is the overflow ID, usually 65534 (user_namespaces(7)); PID is 0 for a process that the
// caller's PID namespace does not show.
type Credentials struct {
	UID, GID uint32
	PID      int32
}

// PeerCredentials returns the credentials that the peer of a unix stream socket had when it called connect(2)
// or made the pair, by SO_PEERCRED (unix(7)). The kernel keeps them until the socket is closed, even after the
// peer has closed its own. ENOTCONN: the socket has no credentials. It allocates nothing.
func PeerCredentials(fd int) (Credentials, error) {
	var c unix.Ucred
	size := uint32(unix.SizeofUcred)
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERCRED,
		uintptr(unsafe.Pointer(&c)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case e != 0:
		return Credentials{}, e
	case c.Uid == ^uint32(0): // not the ID of a user (net/core/sock.c, cred_to_ucred)
		return Credentials{}, syscall.ENOTCONN
	}
	return Credentials{UID: c.Uid, GID: c.Gid, PID: c.Pid}, nil
}

// PeerGroups returns the supplementary groups that the peer of a unix stream socket had when it called
// connect(2), by SO_PEERGROUPS (Linux 4.13). A group without an ID in the caller's user namespace is the
// overflow ID, usually 65534.
func PeerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch n := int(size / 4); {
		case e == 0:
			return groups[:n], nil
		case e == unix.ERANGE && n > len(groups): // the kernel returns the size that it needs
			groups = make([]uint32, n)
		default:
			return nil, e
		}
	}
}

// OriginalDestination returns where a TCP connection went before netfilter redirected it to this socket, by
// getsockopt(2) SO_ORIGINAL_DST (include/uapi/linux/netfilter_ipv4.h), which has the same number for IPv6
// (netfilter_ipv6/ip6_tables.h). ipv4 says that the peer has an IPv4 address, of whatever family the socket is. ENOENT: the
// connection is not tracked; ENOPROTOOPT: no connection is.
func OriginalDestination(fd int, ipv4 bool) (netip.AddrPort, error) {
	const originalDst = 80 // SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST
	var raw unix.RawSockaddrInet6
	level, size := unix.IPPROTO_IPV6, uint32(unix.SizeofSockaddrInet6)
	if ipv4 {
		level, size = unix.IPPROTO_IP, unix.SizeofSockaddrInet4
	}
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), originalDst,
		uintptr(unsafe.Pointer(&raw)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return netip.AddrPort{}, e
	}
	return addressOf(&raw)
}

// addressOf reads an address of either family; IPv6 has room for both.
func addressOf(raw *unix.RawSockaddrInet6) (netip.AddrPort, error) {
	switch raw.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(raw))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), hostOrder(in.Port)), nil
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(raw.Addr), hostOrder(raw.Port)), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}
