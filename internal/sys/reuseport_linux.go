package sys

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

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

// MultipathSocket is [StreamSocket] for Multipath TCP. EPROTONOSUPPORT, ENOPROTOOPT: the
// kernel has none, or it is switched off.
func MultipathSocket(address netip.Addr) (int, error) {
	return streamSocket(address, unix.IPPROTO_MPTCP)
}
