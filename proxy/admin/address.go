package admin

import "github.com/penstock/penstock/proxy/sockopt"

// socketMode is the mode of a unix socket without ?mode= in its address. Any user with write
// permission for the socket may change everything.
const socketMode = 0o660

// ParseAddress parses the address of the admin API: unix:/path, unix:/path?mode=0600, or
// host:port of this machine alone. Over TCP every user of this machine may change everything.
// The error wraps [sockopt.ErrAddress], and names a valid address.
func ParseAddress(bind string) (sockopt.Address, error) {
	addr, err := sockopt.Parse(bind)
	if err == nil {
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
