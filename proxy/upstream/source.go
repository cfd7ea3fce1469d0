package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/penstock/penstock/proxy/socket"
)

// ErrSourceFamily is the error of an address that the source address cannot reach,
// because one is of IPv4 and the other of IPv6. It is a syscall.EAFNOSUPPORT.
var ErrSourceFamily = fmt.Errorf("%w (the source address is of the other family)", syscall.EAFNOSUPPORT)

// ErrSource is the error of a source address that this machine does not have. It is a
// syscall.EADDRNOTAVAIL.
var ErrSource = fmt.Errorf("this machine does not have the source address: %w", syscall.EADDRNOTAVAIL)

// checkSource finds out whether sockets can be bound to the source. A datagram socket
// takes no TCP port for that.
func checkSource(source netip.Addr) error {
	if !source.IsValid() {
		return nil
	}
	if source.IsUnspecified() || source.IsMulticast() || source.Zone() != "" {
		return fmt.Errorf("source address %s: give one that this machine has, without a zone", source)
	}
	conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", netip.AddrPortFrom(source, 0).String())
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("source address %s: %w", source, ErrSource)
	case err != nil:
		return fmt.Errorf("source address %s: %w", source, err)
	}
	return conn.Close()
}

// checkFamily says which target the source cannot reach. What a name stands for is
// not known yet.
func (g *Group) checkFamily(t *target) error {
	for _, a := range t.fixed {
		if g.otherFamily(a) {
			return fmt.Errorf("%w %q: the source address, %s, is of the other family: give one of the target's, or none",
				socket.ErrAddress, t.addr, g.cfg.Source)
		}
	}
	return nil
}

// otherFamily reports whether an address cannot be reached from the source.
func (g *Group) otherFamily(a Address) bool {
	return g.cfg.Source.IsValid() && a.Path == "" && a.AddrPort.Addr().Unmap().Is4() != g.cfg.Source.Is4()
}

// Source returns the address to connect from; it is not valid if there is none.
func (g *Group) Source() netip.Addr { return g.cfg.Source }

// setDialers makes the dialers, one of which knows the source: a unix socket has none.
func (g *Group) setDialers() {
	g.dialer = net.Dialer{KeepAlive: socket.NetKeepAlive, Control: g.cfg.Options.Control}
	g.dialer.SetMultipathTCP(false)
	g.unixDialer = g.dialer
	if g.cfg.Source.IsValid() {
		g.dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(g.cfg.Source, 0))
		g.dialer.Control = g.lateControl
	}
}

// lateControl has the port chosen when the peer is known, and sets the options.
func (g *Group) lateControl(network, address string, c syscall.RawConn) error {
	if err := bindLate(c); err != nil {
		return err
	}
	return g.cfg.Options.Control(network, address, c)
}
