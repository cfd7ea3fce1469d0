package sys

import "golang.org/x/sys/unix"

// Options of listening sockets: ip(7), ipv6(7), tcp(7).
const (
	IP_TRANSPARENT   = unix.IP_TRANSPARENT
	IPV6_TRANSPARENT = unix.IPV6_TRANSPARENT
	TCP_FASTOPEN     = unix.TCP_FASTOPEN
)
