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

// A listener can take the place of others of this process that have its address or a part of
// it (127.0.0.1:80 and :80), so that no client is refused between the two:
//
//	old.SetReusePort(true)
//	l, err := Bind(ctx, addr, cfg)  // no client is sent to it yet
//	l.Start(old)                    // and now some are
//	old.StopAccepting()             // and now all
//	l.ClearReusePort(); old.ClearReusePort()      // no other socket can join in
//
// Clients that have begun to connect when old yields still come to it.

// SetReusePort has the address of a TCP listener be had by others of the same user as well that
// allow it (SO_REUSEPORT), or not any more. The kernel looks at it when an address is bound
// (net/ipv4/inet_connection_sock.c, inet_bind_conflict).
func (l *Listener) SetReusePort(on bool) error {
	value := 0
	if on {
		value = 1
	}
	return l.set("share", sys.SO_REUSEPORT, value)
}

// set sets an option of its socket.
func (l *Listener) set(what string, option, value int) error {
	err := l.onSocket(func(fd int) error {
		return os.NewSyscallError("setsockopt", sys.SetsockoptInt(fd, sys.SOL_SOCKET, option, value))
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, l.Addr(), err)
	}
	return nil
}

// onSocket calls f with the descriptor.
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

// Overlaps reports whether there are addresses by which a client could reach either of two
// listeners.
func (l *Listener) Overlaps(other *Listener) bool { return Overlap(l.Own(), other.Own()) }

// Overlap is [Listener.Overlaps] of results of [Listener.Own].
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

// Bind is [Listen] for a TCP address that listeners have which share it; it listens from
// Start on.
func Bind(ctx context.Context, addr sockopt.Address, cfg *Config) (*Listener, error) {
	l := newListener(addr, cfg)
	if l.cfg.Backlog > 0 {
		l.backlog = min(l.cfg.Backlog, l.backlog)
	}
	if err := l.bindShared(ctx); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, cause(err))
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
	ln, err := loop.GiveListener(fd) // which closes fd in any case
	if err != nil {
		return err
	}
	l.sock = ln.(*net.TCPListener)
	return nil
}

// newSocket makes a socket of the family of an address.
func (l *Listener) newSocket(addr netip.Addr) (fd int, err error) {
	if l.cfg.Multipath {
		if fd, err = sys.MultipathSocket(addr); err == nil {
			return fd, nil
		}
	}
	return sys.StreamSocket(addr)
}

// bindTo gives a socket its options and its address, as package net does it, and shares it.
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
	return os.NewSyscallError("bind", sys.Bind(fd, at))
}

// A descriptor is a socket that package net does not know.
type descriptor int

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }

func (descriptor) Read(func(uintptr) bool) error { return syscall.ENOTSUP }

func (descriptor) Write(func(uintptr) bool) error { return syscall.ENOTSUP }

// resolve returns the address that package net would bind; both says that it is to be that
// of both families.
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
		return at, false, fmt.Errorf("%w: an address with a zone is not shared", syscall.EADDRINUSE)
	}
	return netip.AddrPortFrom(addr, uint16(port)), host == "", nil
}

// resolveHost returns the first address of IPv4, or else the first one.
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

// Start listens: clients come here unless another socket has a narrower address. The others
// are those that share it.
//
// One that has the very same address must not share it any more, or the two would be a group
// among whose members the kernel chooses without asking which of them have yielded. listen(2)
// does not find it in the way then, see [Listener.ClearReusePort]; if that was forgotten they
// are a group after all, and the other one has its part of the clients for as long as it is
// open.
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

func (l *Listener) start() error {
	err := l.onSocket(func(fd int) error { return os.NewSyscallError("listen", sys.Listen(fd, l.backlog)) })
	if err != nil {
		return fmt.Errorf("listen on %s: %w", l.addr, err)
	}
	return nil
}

// nowhere is the index of an interface that no machine has.
const nowhere = 1<<31 - 1

// StopAccepting has every client that connects from now on go to the listeners that have been
// started beside l, or be refused where they do not listen; clients that have begun to connect
// still come to l. It can only be closed afterwards. After an error clients may come to it
// until then.
//
// A listening socket is not found for a packet of another interface than its own, while the
// handshakes that have begun are (net/ipv4/inet_hashtables.c, compute_score).
func (l *Listener) StopAccepting() error {
	if l.grouped {
		return nil
	}
	return l.set("yield", sys.SO_BINDTOIFINDEX, nowhere)
}

// ClearReusePort ends Share for good. The kernel remembers that the last socket that was bound to a
// port shared it, and would let others of the same user that ask for it have the same address
// (net/ipv4/inet_connection_sock.c, sk_reuseport_match), until one is bound that does not:
// with CAP_NET_ADMIN such a one is bound.
func (l *Listener) ClearReusePort() error {
	err := l.SetReusePort(false)
	own := l.Own()
	fd, cause := sys.StreamSocket(own[0].Addr())
	if cause != nil {
		return err
	}
	defer sys.Close(fd)
	if sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_REPAIR, 1) == nil { // it is bound in spite of others
		_ = sys.Bind(fd, own[0])
	}
	return err
}
