//go:build linux

package upstream

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// SetLookup makes g resolve names by f.
func (g *Group) SetLookup(f func(ctx context.Context, network, host string) ([]netip.Addr, error)) {
	g.lookup = f
}

// AddControl makes g call f for each socket, before it connects.
func (g *Group) AddControl(f func(network, address string, c syscall.RawConn) error) {
	set := g.dialer.Control
	g.dialer.Control = func(network, address string, c syscall.RawConn) error {
		if err := set(network, address, c); err != nil {
			return err
		}
		return f(network, address, c)
	}
}

// SetSource makes g's sockets connect from addr.
func (g *Group) SetSource(addr netip.AddrPort) { g.dialer.LocalAddr = net.TCPAddrFromAddrPort(addr) }

// SetNow replaces the clock.
func (g *Group) SetNow(f func() time.Time) { g.now = f }
