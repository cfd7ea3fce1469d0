package sockopt

import (
	"net"
	"net/netip"
	"strings"
)

// Connectable returns nil if a may be the address of a server: a unix socket, or a host and a
// port. A host is an IP address, or text that may be a DNS name. Otherwise the error names a
// valid alternative, and wraps [ErrAddress]. Connectable sends no query.
func (a Address) Connectable() error {
	if a.Network == "unix" {
		if a.Mode != 0 {
			return invalid(a.String(), "a socket to connect to has no mode: write unix:%s", a.Name)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(a.Name)
	switch {
	case err != nil:
		return invalid(a.Name, "write host:port")
	case host == "":
		return invalid(a.Name, "it has no host: write 127.0.0.1:%s for this machine", port)
	case port == "0":
		return invalid(a.Name, "it has no port: write one from 1 to 65535")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	name := strings.TrimSuffix(host, ".")
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }):
		return invalid(a.Name, "names of DNS are ASCII: write Punycode (xn--…)")
	case !IsHostname(name):
		return invalid(a.Name, "%q is neither an IP address nor a name: write 10.0.0.12:%s, [2001:db8::12]:%[2]s or db.example:%[2]s", host, port)
	case strings.Trim(name[strings.LastIndexByte(name, '.')+1:], "0123456789") == "":
		return invalid(a.Name, "%q is not an IP address: write the four numbers of one, from 0 to 255", host)
	}
	return nil
}

// NoHost returns why an IP address is not that of a host, so that no list of servers has it.
// It returns "" if it may be one. connect(2) takes an unspecified address for this machine's
// loopback, which is not meant by such an endpoint.
func NoHost(ip netip.Addr) string {
	switch ip = ip.Unmap(); {
	case ip.IsUnspecified():
		return ip.String() + " is the address of no host"
	case ip.IsMulticast():
		return ip.String() + " is a multicast address"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return ip.String() + " is the broadcast address"
	case ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "":
		return ip.String() + " is link-local, and has no zone"
	}
	return ""
}

// IsHostname reports whether a text may be a host name: letters, digits and hyphens in labels
// of at most 63 (RFC 1123, 2.1). Underscores are allowed too, which DNS names have in
// practice. It has no dot at its end.
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
