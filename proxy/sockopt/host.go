package sockopt

import (
	"net/netip"
	"strings"
)

// NoHost returns why an IP address is no host's address, so that no list of servers has it. It returns "" if a host may
// have it. An unspecified address is no host's: connect(2) takes it for this machine's loopback, but whoever lists such
// an endpoint means another.
func NoHost(ip netip.Addr) string {
	switch ip = ip.Unmap(); {
	case ip.IsUnspecified():
		return ip.String() + " is not the address of a host"
	case ip.IsMulticast():
		return ip.String() + " is a multicast address"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return ip.String() + " is the broadcast address"
	case ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "":
		return ip.String() + " is link-local, and has no zone"
	}
	return ""
}

// IsHostname reports whether a text may be a host name: letters, digits and hyphens in labels of at most 63 (RFC 1123,
// 2.1). Underscores are allowed too, which DNS names have in practice. A dot at the end is not allowed.
func IsHostname(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			return false
		}
	}
	return true
}
