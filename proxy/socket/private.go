package socket

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Private returns nil if whoever listens at a is reached from this machine alone, and, where
// that is by a unix socket, by those alone whom the mode of its path lets in. Otherwise it
// says why not and what to write instead, and wraps [ErrAddress].
func (a Address) Private() error {
	switch {
	case a.Abstract():
		return invalid(a.String(), "an abstract socket is everybody's: write unix:/path")
	case a.Network != "unix" && !Loopback(a.Name):
		return invalid(a.String(), "it would be open to other machines: write unix:/path, or 127.0.0.1:PORT")
	}
	return nil
}

// Localhost reports whether a host is the name localhost, in capitals or not and with the dot of the
// root or not, which is the loopback and nothing else (RFC 6761, 6.3).
func Localhost(host string) bool {
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// Loopback reports whether a host, with or without a port, is this machine as seen from
// itself: an address of the loopback, in brackets or not, or [Localhost]. Any other name could be
// anything.
func Loopback(hostport string) bool {
	host, port, err := net.SplitHostPort(hostport)
	if _, bad := strconv.ParseUint(port, 10, 16); err == nil && bad != nil {
		return false
	}
	if err != nil {
		host = hostport
		if in, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(in, "]") {
			host = strings.TrimSuffix(in, "]")
		}
	}
	if Localhost(host) {
		return !strings.HasPrefix(hostport, "[") // brackets are of addresses
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}
