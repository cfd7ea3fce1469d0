package admin

import "github.com/penstock/penstock/proxy/socket"

// socketMode is the mode of a unix socket whose address names none: whoever may write to
// it may change everything.
const socketMode = 0o660

// ParseAddress reads where to listen, or where somebody listens: unix:/path,
// unix:/path?mode=0600, or host:port of this machine alone, where everybody who is on it
// may change everything. The error wraps [socket.ErrAddress], and says what to write
// instead.
func ParseAddress(bind string) (socket.Address, error) {
	addr, err := socket.Parse(bind)
	if err == nil {
		err = addr.Private()
	}
	if err != nil {
		return socket.Address{}, err
	}
	if addr.Network == "unix" && addr.Mode == 0 {
		addr.Mode = socketMode
	}
	return addr, nil
}
