package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CLONE_NEWNET is the flag of unshare(2) for a new network namespace.
const CLONE_NEWNET = unix.CLONE_NEWNET

// Unshare moves the calling thread, and no other, out of the namespaces that flags name into new ones
// (unshare(2)). The caller has locked its goroutine to the thread and must never unlock it: the runtime would
// run other goroutines there.
func Unshare(flags int) error { return unix.Unshare(flags) }

// Gettid returns the id of the calling thread (gettid(2)).
func Gettid() int { return unix.Gettid() }

// InterfaceUp sets IFF_UP of a network interface of the calling thread's
// network namespace, such as "lo" (netdevice(7), SIOCGIFFLAGS and
// SIOCSIFFLAGS). The error is EINVAL for a name that is too long.
func InterfaceUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return unix.EINVAL
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// LocalRoute reports whether packets of this machine to an address come back to the machine. It asks the kernel
// for the route (rtnetlink(7), RTM_GETROUTE), which the kernel looks up without a lock (net/ipv4/route.c,
// RTNL_FLAG_DOIT_UNLOCKED). An address without a route is not local.
func LocalRoute(to netip.Addr) (bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeRequest(to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, err
	}
	var answer [1024]byte // a route and its attributes take about 150 bytes
	n, _, err := unix.Recvfrom(fd, answer[:], 0)
	if err != nil {
		return false, err
	}
	return isLocalRoute(answer[:n])
}

// routeRequest asks for the route to an address: a header, a struct rtmsg, and RTA_DST.
func routeRequest(to netip.Addr) []byte {
	address := to.Unmap().AsSlice()
	family := byte(unix.AF_INET6)
	if len(address) == 4 {
		family = unix.AF_INET
	}
	const head = unix.SizeofNlMsghdr + unix.SizeofRtMsg + unix.SizeofRtAttr
	b := make([]byte, head, head+len(address))
	binary.NativeEndian.PutUint32(b, uint32(cap(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	b[unix.SizeofNlMsghdr], b[unix.SizeofNlMsghdr+1] = family, byte(8*len(address))
	attribute := b[unix.SizeofNlMsghdr+unix.SizeofRtMsg:]
	binary.NativeEndian.PutUint16(attribute, uint16(unix.SizeofRtAttr+len(address)))
	binary.NativeEndian.PutUint16(attribute[2:], unix.RTA_DST)
	return append(b, address...)
}

// isLocalRoute reads an answer: a route, or the error that there is none.
func isLocalRoute(b []byte) (bool, error) {
	const head = unix.SizeofNlMsghdr
	if len(b) < head+4 {
		return false, syscall.EBADMSG
	}
	switch what := binary.NativeEndian.Uint16(b[4:]); {
	case what == unix.NLMSG_ERROR:
		errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(b[head:])))
		if errno == syscall.ENETUNREACH || errno == syscall.EHOSTUNREACH {
			return false, nil
		}
		return false, errno
	case what != unix.RTM_NEWROUTE || len(b) < head+unix.SizeofRtMsg:
		return false, syscall.EBADMSG
	}
	kind := unsafe.Offsetof(unix.RtMsg{}.Type)
	return b[head+kind] == unix.RTN_LOCAL, nil
}
