package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A listener can replace other listeners of this process that have the same address, or a part of it (127.0.0.1:80
// and :80), so that no client is refused in between:
//
//	old.SetReusePort(true)
//	l, err := Bind(ctx, addr, cfg)  // no client is sent to it yet
//	l.Start(old)                    // from now on some clients are
//	old.StopAccepting()             // from now on all clients are
//	l.ClearReusePort(); old.ClearReusePort()      // no other socket can share the address
//
// Clients that have begun to connect when old stops still come to old.

// SetReusePort allows or forbids other TCP listeners of the same user that also allow it to have the same address
// (SO_REUSEPORT). The kernel checks it when an address is bound (net/ipv4/inet_connection_sock.c,
// inet_bind_conflict).
func (l *Listener) SetReusePort(on bool) error {
	value := 0
	if on {
		value = 1
	}
	return l.set("share", sys.SO_REUSEPORT, value)
}

// set sets an option of the socket.
func (l *Listener) set(what string, option, value int) error {
	err := l.onSocket(func(fd int) error {
		return os.NewSyscallError("setsockopt", sys.SetsockoptInt(fd, sys.SOL_SOCKET, option, value))
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, l.Addr(), err)
	}
	return nil
}

// onSocket calls f with the descriptor of the socket.
func (l *Listener) onSocket(f func(fd int) error) error {
	if l.fd >= 0 {
		return f(l.fd)
	}
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return err
	}
	if cause := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cause != nil {
		return cause
	}
	return err
}

// Overlaps reports whether there are addresses at which a client could reach either listener.
func (l *Listener) Overlaps(other *Listener) bool { return Overlap(l.Own(), other.Own()) }

// Overlap is [Listener.Overlaps] for results of [Listener.Own].
func Overlap(one, other []netip.AddrPort) bool {
	for _, a := range one {
		for _, b := range other {
			if a == b || a.Port() == b.Port() && a.Addr().Is4() == b.Addr().Is4() && (a.Addr().IsUnspecified() || b.Addr().IsUnspecified()) {
				return true
			}
		}
	}
	return false
}

// Bind is [Listen] for a TCP address that other listeners have, and share by SetReusePort. It does not listen before
// [Listener.Start].
func Bind(ctx context.Context, addr sockopt.Address, cfg *Config) (*Listener, error) {
	l := newListener(addr, cfg)
	if l.cfg.Backlog > 0 {
		l.backlog = min(l.cfg.Backlog, l.backlog)
	}
	if err := l.bindShared(ctx); err != nil {
		return nil, fault(addr, err)
	}
	return l, nil
}

func (l *Listener) bindShared(ctx context.Context) error {
	at, both, err := resolve(ctx, l.addr.Name)
	if err != nil {
		return err
	}
	fd, err := l.newSocket(at.Addr())
	if both && errors.Is(err, syscall.EAFNOSUPPORT) { // there is no IPv6
		at, both = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), false
		fd, err = l.newSocket(at.Addr())
	}
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	l.onlyIPv6 = at.Addr().Is6() && !both
	if err := l.bindTo(fd, at); err != nil {
		return errors.Join(err, closeDescriptor(fd))
	}
	ln, err := loop.GiveListener(fd) // closes fd, even after an error
	if err != nil {
		return err
	}
	l.sock = ln.(*net.TCPListener)
	return nil
}

// newSocket makes a socket for the family of an address.
func (l *Listener) newSocket(addr netip.Addr) (fd int, err error) {
	if l.cfg.Multipath {
		if fd, err = sys.MultipathSocket(addr); err == nil {
			return fd, nil
		}
	}
	return sys.StreamSocket(addr)
}

// bindTo sets the options of a socket and binds it, as package net does, with SO_REUSEPORT.
func (l *Listener) bindTo(fd int, at netip.AddrPort) error {
	options := [][3]int{{sys.SOL_SOCKET, syscall.SO_REUSEADDR, 1}, {sys.SOL_SOCKET, sys.SO_REUSEPORT, 1}}
	if at.Addr().Is6() {
		only := 0
		if l.onlyIPv6 {
			only = 1
		}
		options = append(options, [3]int{sys.IPPROTO_IPV6, sys.IPV6_V6ONLY, only})
	}
	for _, o := range options {
		if err := sys.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if err := l.control("tcp", at.String(), descriptor(fd)); err != nil {
		return err
	}
	return os.NewSyscallError("bind", sys.Bind(fd, at, 0))
}

// A descriptor is a socket that package net does not know about.
type descriptor int

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }

func (descriptor) Read(func(uintptr) bool) error { return syscall.ENOTSUP }

func (descriptor) Write(func(uintptr) bool) error { return syscall.ENOTSUP }

// resolve returns the address that package net would bind. both means the addresses of both families.
func resolve(ctx context.Context, name string) (at netip.AddrPort, both bool, err error) {
	host, service, err := net.SplitHostPort(name)
	if err != nil {
		return at, false, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return at, false, err
	}
	addr, err := resolveHost(ctx, host)
	if err != nil {
		return at, false, err
	}
	if addr.Zone() != "" {
		return at, false, fmt.Errorf("%w: an address with a zone cannot be shared", syscall.EADDRINUSE)
	}
	return netip.AddrPortFrom(addr, uint16(port)), host == "", nil
}

// resolveHost returns the first IPv4 address of a host, or else its first address.
func resolveHost(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.IPv6Unspecified(), nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap(), nil
	}
	list, err := sockopt.Resolve(ctx, host)
	if err != nil {
		return netip.Addr{}, err
	}
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Unmap().Is4() })
	return list[max(i, 0)].Unmap(), nil
}

// Start listens: clients come here unless another socket has a narrower address. The others are the listeners that
// share the address.
//
// A listener with exactly the same address must stop sharing first. Otherwise the two sockets would be a group, and
// the kernel would choose a member for each client even if it has stopped accepting. After [Listener.ClearReusePort]
// listen(2) succeeds beside the other socket. Without it the two become a group after all, and the other listener
// gets its part of the clients as long as it is open.
func (l *Listener) Start(others ...*Listener) error {
	i := slices.IndexFunc(others, func(other *Listener) bool { return slices.Equal(other.Own(), l.Own()) })
	if i < 0 {
		return l.start()
	}
	same := others[i]
	if err := same.SetReusePort(false); err != nil {
		return err
	}
	err := l.start()
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	same.grouped = true
	if err := same.SetReusePort(true); err != nil {
		return err
	}
	return l.start()
}

// listen makes the socket listen, or changes the length of its accept queue.
func (l *Listener) listen() error {
	return l.onSocket(func(fd int) error { return os.NewSyscallError("listen", sys.Listen(fd, l.backlog)) })
}

func (l *Listener) start() error {
	if err := l.listen(); err != nil {
		return fmt.Errorf("listen on %s: %w", l.addr, err)
	}
	return nil
}

// nowhere is the index of a network interface that no machine has.
const nowhere = 1<<31 - 1

// StopAccepting sends all new clients to the listeners that were started beside l, or refuses them if these do not
// listen on the address. Clients that have begun to connect still come to l. Then l can no longer accept, and must be
// closed. After an error, l may receive clients until Close. A passed listener goes on: its socket is also another
// process's, such as systemd's, and the option cannot be taken back without CAP_NET_RAW. So does a unix socket, which clients find
// by its path.
//
// For a packet from an interface other than its own the kernel does not find a listening socket, but does find
// handshakes that have begun (net/ipv4/inet_hashtables.c, compute_score).
func (l *Listener) StopAccepting() error {
	if l.grouped || l.passed || !l.TCP() {
		return nil
	}
	return l.set("yield", sys.SO_BINDTOIFINDEX, nowhere)
}

// ClearReusePort ends sharing for good. The kernel remembers that the socket that was bound to a port last shared it,
// and would give the address to other sockets of the same user that ask for it (net/ipv4/inet_connection_sock.c,
// sk_reuseport_match), until a socket that does not share is bound. With CAP_NET_ADMIN, ClearReusePort binds such a
// socket.
func (l *Listener) ClearReusePort() error {
	err := l.SetReusePort(false)
	own := l.Own()
	fd, cause := sys.StreamSocket(own[0].Addr())
	if cause != nil {
		return err
	}
	defer sys.Close(fd)
	if sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_REPAIR, 1) == nil { // the socket can be bound in spite of others
		_ = sys.Bind(fd, own[0], 0)
	}
	return err
}
