// Package listener opens listening sockets, passes them on from one configuration to the next, and closes them. Event
// loops accept from them ([Listener.Detach]); the admin API is served by goroutines ([Listener.Serve]).
//
// The options of accepted sockets are set once, on the listening socket, and inherited.
package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Config sets up a [Listener]. A nil *Config means the defaults.
type Config struct {
	// Limit limits how many connections Serve handles at once. Listeners may share a Limit. nil means a limit of this
	// listener's own, too high to matter.
	Limit *Limit

	// Options are the socket options that accepted sockets inherit.
	Options sockopt.Options

	// Backlog is the length of the accept queue; 0 means net.core.somaxconn, which is also the maximum, see
	// listen(2).
	Backlog int

	// Multipath lets clients use several paths (Multipath TCP, net.ipv4.mptcp_enabled) if the kernel supports it. The
	// sockets of clients that do cannot be spliced.
	Multipath bool

	// Own requires that the directory of a unix socket belongs to root or to this user, and that not everybody may
	// put files there.
	Own bool

	// Control sets further options before bind(2), like the field Control of net.ListenConfig. It may be nil.
	Control func(network, address string, c syscall.RawConn) error
}

// noLimit is more connections than there can be descriptors.
const noLimit = 1 << 30

// pauseTime is how long accepting pauses after an error.
const pauseTime = 100 * time.Millisecond

// A Listener is a listening socket. Make it with [Listen], [Bind] or [FromFD], and close it.
type Listener struct {
	cfg   Config
	addr  sockopt.Address
	sock  stream    // owns the descriptor until it is detached; closed by Close, once
	fd    int       // owned after Detach; -1 before
	path  *unixPath // to unlink; nil for TCP and abstract sockets
	after func(time.Duration) <-chan time.Time

	backlog  int  // of the accept queue; read early, while descriptors are available
	onlyIPv6 bool // if the address is [::], IPv4 connections are not taken

	grouped  bool        // with a listener that was started beside it
	passed   bool        // FromFD made it: other processes have the same socket, and go on with it
	unlinked atomic.Bool // Unlink was called
	closing  sync.Once
	closed   chan struct{}
	err      error // of closing; read after closed
}

// stream is what *net.TCPListener and *net.UnixListener have in common.
type stream interface {
	net.Listener
	syscall.Conn
	SetDeadline(time.Time) error
}

// Listen listens on addr. For a name it takes the first of its addresses. Without a host it listens on every address
// of this machine, with 0.0.0.0 on every IPv4 address, with [::] on every IPv6 address. The error names the address,
// wraps the cause, and is one line.
//
// If a process left the path of a unix socket behind, and does not answer there, Listen takes the path over. The path
// gets the mode of addr, and never has wider permissions before.
func Listen(ctx context.Context, addr sockopt.Address, cfg *Config) (*Listener, error) {
	l := newListener(addr, cfg)
	var err error
	if addr.Network == "unix" {
		err = l.listenUnix(ctx)
	} else {
		err = l.listenTCP(ctx)
	}
	if err == nil && l.cfg.Backlog > 0 {
		l.backlog = min(l.cfg.Backlog, l.backlog)
		if err = l.listen(); err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, fault(addr, err)
	}
	return l, nil
}

// fault returns the error of an address that cannot be listened on.
func fault(addr sockopt.Address, err error) error {
	err = fmt.Errorf("listen on %s: %w", addr, cause(err))
	if port := portOf(addr); errors.Is(err, syscall.EACCES) && port > 0 && port < 1024 {
		return fmt.Errorf("%w: a port below 1024 needs CAP_NET_BIND_SERVICE: write AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit, or a port from 1024, or run sysctl net.ipv4.ip_unprivileged_port_start=%d", err, port)
	}
	return err
}

// portOf returns the port of an address, or 0.
func portOf(addr sockopt.Address) int {
	if addr.Network != "tcp" {
		return 0
	}
	_, port, _ := net.SplitHostPort(addr.Name)
	number, _ := strconv.Atoi(port)
	return number
}

// ExplainTaken adds to the error of [Listen] how to find the process that has the address, if one has it. The caller
// knows that it is not the caller's own.
func ExplainTaken(addr sockopt.Address, err error) error {
	port := portOf(addr)
	if !errors.Is(err, syscall.EADDRINUSE) || port == 0 {
		return err
	}
	return fmt.Errorf("%w: another socket has it: ss -tanp sport = :%d shows the process", err, port)
}

func newListener(addr sockopt.Address, cfg *Config) *Listener {
	l := &Listener{addr: addr, fd: -1, after: time.After, backlog: backlog(), closed: make(chan struct{})}
	if cfg != nil {
		l.cfg = *cfg
	}
	if l.cfg.Limit == nil {
		l.cfg.Limit = NewLimit(noLimit)
	}
	return l
}

// FromFD makes a Listener of a socket that listens already, for example because it was passed to the process. It owns
// ln from now on, even after an error. It sets the options as far as a listening socket allows, and resets options that
// connections inherit and that would stall them: SO_LINGER makes close(2) wait even on a non-blocking socket
// (socket(7)), SO_RCVLOWAT hides small messages, SO_PEEK_OFF hides the first bytes.
func FromFD(ln net.Listener, cfg *Config) (*Listener, error) {
	sock, ok := ln.(stream)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: %T is not a stream socket", ln.Addr(), ln), ln.Close())
	}
	l := newListener(sockopt.Address{}, cfg)
	l.sock, l.passed, l.addr = sock, true, sockopt.Address{Network: "tcp", Name: ln.Addr().String()}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path belongs to the process that bound it
		l.addr.Network = "unix"
	}
	raw, err := sock.SyscallConn()
	if err == nil {
		err = errors.Join(l.onSocket(func(fd int) error {
			only, _ := sys.GetsockoptInt(fd, sys.IPPROTO_IPV6, sys.IPV6_V6ONLY)
			l.onlyIPv6 = l.TCP() && only != 0
			return resetInherited(fd)
		}), l.control(ln.Addr().Network(), ln.Addr().String(), raw))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", l.addr, err), ln.Close())
	}
	return l, nil
}

func resetInherited(fd int) error {
	err := errors.Join(
		syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, new(syscall.Linger)),
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, sys.SO_RCVLOWAT, 1),
	)
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, sys.SO_PEEK_OFF, -1) // TCP before Linux 6.9 has none: EOPNOTSUPP
	return os.NewSyscallError("setsockopt", err)
}

// Passed reports whether [FromFD] made the listener: other processes have the same socket.
func (l *Listener) Passed() bool { return l.passed }

// listenTCP switches off MPTCP unless the configuration wants it. Package net switches it on by itself, but an MPTCP
// socket cannot splice like a TCP socket, and inherits less.
func (l *Listener) listenTCP(ctx context.Context) error {
	lc := net.ListenConfig{KeepAlive: sockopt.NetKeepAlive, Control: l.control}
	lc.SetMultipathTCP(l.cfg.Multipath)
	network := network(l.addr)
	ln, err := lc.Listen(ctx, network, l.addr.Name)
	if err != nil {
		return err
	}
	l.sock, l.onlyIPv6 = ln.(*net.TCPListener), network == "tcp6"
	return nil
}

// network returns package net's name for the family of a TCP address. Without it package net would treat 0.0.0.0 and
// [::] like an address without a host.
func network(a sockopt.Address) string {
	host, _, _ := net.SplitHostPort(a.Name)
	switch addr, err := netip.ParseAddr(host); {
	case err != nil:
		return "tcp"
	case addr.Unmap().Is4():
		return "tcp4"
	default:
		return "tcp6"
	}
}

// control sets everything that accepted sockets inherit.
func (l *Listener) control(network, address string, c syscall.RawConn) error {
	if err := l.cfg.Options.Control(network, address, c); err != nil || l.cfg.Control == nil {
		return err
	}
	return l.cfg.Control(network, address, c)
}

// cause strips package net's prefix, which repeats the address.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Addr returns the address in the form that [sockopt.Parse] takes, with the port that the kernel chose for port 0.
func (l *Listener) Addr() string {
	if l.addr.Network == "unix" {
		return "unix:" + l.addr.Name
	}
	return l.sock.Addr().String()
}

// Own returns the addresses at which clients reach the listener, without names: 0.0.0.0 and [::] if it listens on all
// addresses of both families. It is nil for a unix socket.
func (l *Listener) Own() []netip.AddrPort {
	if !l.TCP() {
		return nil
	}
	at, err := netip.ParseAddrPort(l.Addr())
	if err != nil {
		return nil
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if at.Addr() == netip.IPv6Unspecified() && !l.onlyIPv6 {
		return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()), at}
	}
	return []netip.AddrPort{at}
}

// Detach takes the listening socket from package net, for callers that accept without Serve, and returns its
// descriptor. The descriptor is non-blocking, and still belongs to the listener: [Listener.Close] closes it.
func (l *Listener) Detach() (fd int, err error) {
	fd, err = loop.Take(l.sock)
	if err != nil {
		return -1, fmt.Errorf("listen on %s: %w", l.addr, err)
	}
	l.fd = fd
	return fd, nil
}

// SetMode changes the permissions of a unix socket's path, unless another file has taken the path. 0 means all
// permissions less the umask, as for a socket that is bound without a mode. It must not be called concurrently.
func (l *Listener) SetMode(mode fs.FileMode) error {
	if l.path == nil || mode == l.addr.Mode {
		return nil
	}
	err := l.change(func() error { return l.path.chmod(mode) }, nil)
	if err == nil {
		l.addr.Mode = mode
	}
	return err
}

// Unlink removes the path of a unix socket, unless it belongs to another process now: no more clients find the
// listener. Close does it as well. If the file system does not answer, the path stays until it does. Further calls do nothing,
// and do not wait.
func (l *Listener) Unlink() error {
	if l.path == nil || l.unlinked.Swap(true) {
		return nil
	}
	return file.Remove(l.addr.Name, l.path.remove)
}

// Gone reports whether the path of a unix socket was removed, or leads to another file: no client finds the listener any
// more. It is false if the file system does not answer.
func (l *Listener) Gone() bool {
	if l.path == nil {
		return false
	}
	gone, _ := file.Within(l.Addr(), l.path.gone)
	return gone
}

// TCP reports whether it listens on TCP, not on a unix socket.
func (l *Listener) TCP() bool { return l.addr.Network != "unix" }

// Close closes the listening socket, and resets the connections that were not accepted. A running Serve returns when
// its handlers have. Further calls do nothing. It may be called at any time by any goroutine.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.err = errors.Join(l.Unlink(), l.closeSocket())
		close(l.closed)
	})
	return l.err
}

// Closed returns a channel that is closed when the socket is: then another socket can have the address.
func (l *Listener) Closed() <-chan struct{} { return l.closed }

func (l *Listener) closeSocket() error {
	if l.fd >= 0 {
		return closeDescriptor(l.fd)
	}
	return l.sock.Close()
}

// Serve accepts connections until ctx ends, and calls handle for each in a new goroutine. handle owns the connection,
// and must call release once when the connection has ended. At the limit accepting pauses: one accepted connection
// waits for its turn, the others wait in the kernel's accept queue.
//
// When ctx ends, Serve unlinks the path of a unix socket, serves the connections in the accept queue as far as the
// limit has room, and closes the listener. It returns once every connection is released, with the error of Close. It
// may be called once.
func (l *Listener) Serve(ctx context.Context, handle func(conn net.Conn, release func())) error {
	var handlers sync.WaitGroup
	release := func() {
		<-l.cfg.Limit.slots
		handlers.Done()
	}
	serve := func(conn net.Conn) { // conn has a slot
		handlers.Add(1)
		go handle(conn, release)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.sock.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	for conn := l.accept(ctx); conn != nil; conn = l.accept(ctx) {
		if !l.cfg.Limit.acquire(ctx) {
			conn.Close()
			break
		}
		serve(conn)
	}
	if !stop() {
		<-interrupted // or it could interrupt the following accepts
	}
	unlinked := l.Unlink()
	for range l.backlog + 1 {
		if !l.queued() || !l.cfg.Limit.acquire(ctx) {
			break
		}
		// After a deadline in the past package net would not ask the kernel.
		l.sock.SetDeadline(time.Now().Add(patience))
		conn := l.accept(ctx)
		if conn == nil {
			<-l.cfg.Limit.slots
			break
		}
		serve(conn)
	}
	err := errors.Join(unlinked, l.Close())
	handlers.Wait()
	return err
}

// accept returns the next connection, or nil when ctx has ended or the listener was closed. It pauses after any other
// error, since its cause cannot be removed here but may go away.
func (l *Listener) accept(ctx context.Context) net.Conn {
	for {
		conn, err := l.sock.Accept()
		switch {
		case err == nil:
			return conn
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		}
		select {
		case <-l.after(pauseTime):
		case <-ctx.Done():
			return nil
		case <-l.closed:
			return nil
		}
	}
}

// A Limit limits how many connections the listeners that share it serve at once. It is safe for concurrent use.
type Limit struct {
	slots chan struct{} // one element for each served connection
}

// NewLimit returns a Limit of n connections, at least one.
func NewLimit(n int) *Limit { return &Limit{slots: make(chan struct{}, max(n, 1))} }

// acquire takes a slot as soon as there is one. It returns false if ctx ends first.
func (l *Limit) acquire(ctx context.Context) bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// patience limits one accept after the kernel has reported a connection. The connection should be there: the limit is
// for a kernel that errs.
const patience = time.Second

// backlog returns the length of the accept queue that package net asks for.
func backlog() int {
	text, _ := os.ReadFile("/proc/sys/net/core/somaxconn")
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return n
	}
	return 4096 // the default since Linux 5.4
}

// queued reports whether a connection waits in the accept queue. It returns false if the listener was closed.
func (l *Listener) queued() bool {
	var events int16
	err := l.onSocket(func(fd int) error {
		err := error(syscall.EINTR)
		for err == syscall.EINTR {
			events, err = sys.Poll(fd, sys.POLLIN)
		}
		return err
	})
	return err == nil && events&sys.POLLIN != 0
}

func closeDescriptor(fd int) error { return os.NewSyscallError("close", sys.Close(fd)) }

// Local returns the address that all clients connect to, as this host sees it. It is invalid for a unix socket, and
// if clients may connect to several addresses.
func (l *Listener) Local() netip.AddrPort {
	at, err := netip.ParseAddrPort(l.Addr())
	if err != nil || at.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
