package upstream

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/socket"
)

// A target is one address to connect to; a name may have several IP addresses.
type target struct {
	addr  socket.Address
	host  string
	port  uint16
	fixed []Address // what to connect to, if nothing is to be resolved
	state health
}

func newTarget(addr socket.Address) (*target, error) {
	t := &target{addr: addr}
	if addr.Network == "unix" {
		if addr.Mode != 0 {
			return nil, fmt.Errorf("%w %q: a target has no mode: write unix:%s", socket.ErrAddress, addr, addr.Name)
		}
		t.fixed = []Address{{Path: addr.Name}}
		return t, nil
	}
	var err error
	var port string
	t.host, port, err = net.SplitHostPort(addr.Name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w %q: write host:port", socket.ErrAddress, addr)
	case t.host == "":
		return nil, fmt.Errorf("%w %q: a target needs a host: write 127.0.0.1:%s for this machine", socket.ErrAddress, addr, port)
	case port == "0":
		return nil, fmt.Errorf("%w %q: a target needs the port that it listens on", socket.ErrAddress, addr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w %q: write the port as a number from 1 to 65535", socket.ErrAddress, addr)
	}
	if err := addr.Connectable(); err != nil {
		return nil, err
	}
	t.port = uint16(n)
	if ip, err := netip.ParseAddr(t.host); err == nil {
		t.fixed = []Address{{AddrPort: netip.AddrPortFrom(ip, t.port)}}
	}
	return t, nil
}

// settled is how long a target must have been down or up before the opposite is
// worth telling.
const settled = time.Second

// health says when to tell that a target went down or came back. A target that
// answers some of the time is told of at most once a second.
type health struct {
	isDown atomic.Bool // written under mu
	mu     sync.Mutex
	since  time.Time // of the last change that was told
}

// turn notes what a target did, and reports whether it is news.
func (h *health) turn(down bool, now func() time.Time) bool {
	if down == h.isDown.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if down == h.isDown.Load() || now().Sub(h.since) < settled {
		return false
	}
	h.isDown.Store(down)
	h.since = now()
	return true
}
