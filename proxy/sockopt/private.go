package sockopt

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Private returns nil if a listener at a is reached from this machine alone. A unix socket is
// reached only by users that the mode of its path allows. Otherwise the error gives the reason
// and a valid alternative, and wraps [ErrAddress].
func (a Address) Private() error {
	switch {
	case a.Abstract():
		return invalid(a.String(), "an abstract socket is open to every user: write unix:/path")
	case a.Network != "unix" && !Loopback(a.Name):
		return invalid(a.String(), "the address would be open to other machines: write unix:/path, or 127.0.0.1:PORT")
	}
	return nil
}

// Localhost reports whether a host is the name localhost, in upper or lower case, with or
// without the root dot. It is the loopback and nothing else (RFC 6761, 6.3).
func Localhost(host string) bool {
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// Loopback reports whether a host, with or without a port, is this machine as seen from
// itself: an address of the loopback, in brackets or not, or [Localhost]. Any other name could
// be anything.
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
		return !strings.HasPrefix(hostport, "[") // brackets are for addresses
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}
