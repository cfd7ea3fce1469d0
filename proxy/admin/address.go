package admin

import (
	"strings"

	"github.com/penstock/penstock/proxy/sockopt"
)

// Modes of a unix socket without ?mode= in its address. With groupMode every user may connect: the user
// and the groups of the client decide what it may do.
const (
	socketMode = 0o660
	groupMode  = 0o666
)

// ParseAddress parses the address of the admin API: unix:/path, unix:/path?mode=0600, or host:port. The
// error wraps [sockopt.ErrAddress], and names a valid address.
func ParseAddress(bind string) (sockopt.Address, error) {
	addr, err := sockopt.Parse(bind)
	if err == nil && addr.Network == "unix" {
		err = addr.Private()
	}
	if err != nil {
		return sockopt.Address{}, err
	}
	if addr.Network == "unix" && addr.Mode == 0 {
		addr.Mode = socketMode
	}
	return addr, nil
}

// hasMode reports whether an address has a mode.
func hasMode(bind string) bool { return strings.Contains(bind, "?mode=") }
