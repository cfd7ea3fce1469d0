// Package listener opens listening sockets, passes them on from one configuration to the next,
// and closes them. Event loops accept from them ([Listener.Detach]); the admin API is served on
// goroutines ([Listener.Serve]).
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Config sets up a [Listener]. A nil *Config means the defaults.
type Config struct {
	// Limit is how many connections are served at once, shared by the listeners
	// that have the same; nil means one of this listener's own without a bound
	// that matters.
	Limit *Limit

	// Options are the socket options that accepted sockets inherit.
	Options sockopt.Options

	// Backlog is how long the accept queue is asked to be; 0 means net.core.somaxconn,
	// which bounds it, see listen(2).
	Backlog int

	// Multipath has clients use several paths (Multipath TCP, net.ipv4.mptcp_enabled), if
	// the kernel can; the sockets of those that do cannot be spliced.
	Multipath bool

	// Own has the path of a unix socket be in a directory of root or of this user, in which not every user may put files.
	Own bool

	// Control sets further options before bind(2), as that of net.ListenConfig does; it may be
	// nil.
	Control func(network, address string, c syscall.RawConn) error
}

// noLimit is more connections than descriptors can be had.
const noLimit = 1 << 30

// pauseTime is how long accepting pauses.
const pauseTime = 100 * time.Millisecond

// A Listener is a listening socket. Make it with [Listen], [Bind] or [FromFD], and close it.
type Listener struct {
	cfg   Config
	addr  sockopt.Address
	sock  stream    // owns the descriptor, unless it was detached; closed by Close, once
	fd    int       // owned once it was detached; -1 before
	path  *unixPath // to be unlinked; nil for TCP and abstract sockets
	after func(time.Duration) <-chan time.Time

	backlog  int  // of the accept queue; read early, while there are descriptors
	onlyIPv6 bool // if its address is that of all of IPv6; otherwise IPv4's come in, too

	grouped bool // with one that has been started beside it
	closing sync.Once
	closed  chan struct{}
	err     error // of closing; read after closed
}

// stream is the common part of *net.TCPListener and *net.UnixListener.
type stream interface {
	net.Listener
	syscall.Conn
	SetDeadline(time.Time) error
}

// Listen listens on addr; for a name, on the first of its addresses. Without a host that is
// every address of this machine; 0.0.0.0 is every one of IPv4, [::] every one of IPv6. The
// error names the address, wraps the cause, and is one line.
//
// The path of a unix socket is taken over from a process that left it behind: if it does not
// answer there. It gets the address's mode, and never for a moment a wider one.
func Listen(ctx context.Context, addr sockopt.Address, cfg *Config) (*Listener, error) {
	l := newListener(addr, cfg)
	var err error
	if addr.Network == "unix" {
		err = l.listenUnix(ctx)
	} else {
		err = l.listenTCP(ctx)
	}
	if err == nil && l.cfg.Backlog > 0 {
		if err = l.resize(); err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, cause(err))
	}
	return l, nil
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

// FromFD makes a Listener of a socket that listens already, such as one that was passed to the
// process; it owns ln from now on, also if there is an error. The options are set on it as far
// as that is possible now. addr is its name.
func FromFD(ln net.Listener, cfg *Config) (*Listener, error) {
	sock, ok := ln.(stream)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: %T is no stream socket", ln.Addr(), ln), ln.Close())
	}
	l := newListener(sockopt.Address{}, cfg)
	l.sock = sock
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path belongs to the process that made it
		l.addr = sockopt.Address{Network: "unix", Name: ln.Addr().String()}
	} else {
		l.addr = sockopt.Address{Network: "tcp", Name: ln.Addr().String()}
	}
	raw, err := sock.SyscallConn()
	if err == nil {
		l.onlyIPv6 = l.TCP() && onlyIPv6(raw)
		err = l.control(ln.Addr().Network(), ln.Addr().String(), raw)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", l.addr, err), ln.Close())
	}
	return l, nil
}

// listenTCP listens without MPTCP unless it was asked for, which package net switches on
// by itself: an MPTCP socket cannot splice as TCP's can, and inherits less.
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

// network returns the name of the family of a TCP address in package net. By itself package
// net takes 0.0.0.0 and [::] for an address without a host.
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

// control sets all that is to be inherited.
func (l *Listener) control(network, address string, c syscall.RawConn) error {
	if err := l.cfg.Options.Control(network, address, c); err != nil || l.cfg.Control == nil {
		return err
	}
	return l.cfg.Control(network, address, c)
}

// cause strips package net's prefix, which names the address once more.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Addr returns where it listens, with the port that the kernel chose for port 0,
// in the form that [sockopt.Parse] takes.
func (l *Listener) Addr() string {
	if l.addr.Network == "unix" {
		return "unix:" + l.addr.Name
	}
	return l.sock.Addr().String()
}

// Own returns where clients reach it, without names: for all addresses of both families
// that is 0.0.0.0 and [::]. It is nil for a unix socket.
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

// Detach takes the listening socket from package net, for accepting in another way than by
// Serve, and returns its descriptor, which is non-blocking and stays the listener's:
// [Listener.Close] closes it.
func (l *Listener) Detach() (fd int, err error) {
	fd, err = loop.Take(l.sock)
	if err != nil {
		return -1, fmt.Errorf("listen on %s: %w", l.addr, err)
	}
	l.fd = fd
	return fd, nil
}

// SetMode changes the permissions of a unix socket's path, as long as that is still the
// listener's: no other file in its place is changed. 0 is all permissions less the umask, as
// for one that is bound without a mode. It must not be called concurrently.
func (l *Listener) SetMode(mode fs.FileMode) error {
	if l.path == nil || mode == l.addr.Mode {
		return nil
	}
	err := l.path.chmod(mode)
	if err == nil {
		l.addr.Mode = mode
	}
	return err
}

// Unlink removes the path of a unix socket, unless it belongs to another process by now: no
// further client finds the listener. Close does it as well.
func (l *Listener) Unlink() error { return l.path.remove() }

// Gone reports whether the path of a unix socket was removed: no client finds the listener any more.
func (l *Listener) Gone() bool { return l.path.gone() }

// TCP reports whether it listens on TCP, and not on a unix socket.
func (l *Listener) TCP() bool { return l.addr.Network != "unix" }

// Close closes the listening socket, and resets the connections that were not accepted; a
// Serve that runs returns when its handlers have. Calling it again does nothing. It may be
// called at any time by any goroutine.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.err = errors.Join(l.path.remove(), l.closeSocket())
		close(l.closed)
	})
	return l.err
}

// Closed returns a channel that is closed once the socket is: another socket can have the
// address.
func (l *Listener) Closed() <-chan struct{} { return l.closed }

func (l *Listener) closeSocket() error {
	if l.fd >= 0 {
		return closeDescriptor(l.fd)
	}
	return l.sock.Close()
}

// Serve accepts connections until ctx ends, and calls handle for each, in a goroutine of its own. handle owns the
// connection; release must be called, once, when the connection has ended. At the limit accepting pauses, with one
// connection more that waits unserved for its turn, and others in the kernel's accept queue.
//
// When ctx ends, the path of a unix socket is unlinked, the connections in the accept queue are served as far as the limit
// has room, and the listener is closed. Serve returns once every connection has been released, with the error of Close. It
// may be called once.
func (l *Listener) Serve(ctx context.Context, handle func(conn net.Conn, release func())) error {
	var handlers sync.WaitGroup
	release := func() {
		<-l.cfg.Limit.slots
		handlers.Done()
	}
	serve := func(conn net.Conn) { // which has a slot
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
		<-interrupted // lest it interrupts the following accepts
	}
	_ = l.path.remove() // Close says if it failed
	for range l.backlog + 1 {
		if !l.queued() || !l.cfg.Limit.acquire(ctx) {
			break
		}
		// A deadline that has passed would keep package net from asking the kernel.
		l.sock.SetDeadline(time.Now().Add(patience))
		conn := l.accept(ctx)
		if conn == nil {
			<-l.cfg.Limit.slots
			break
		}
		serve(conn)
	}
	err := l.Close()
	handlers.Wait()
	return err
}

// accept returns the next connection, or nil when ctx has ended or the listener was closed. It
// skips connections that failed in the queue, and pauses on every other error: its cause may
// go away, and cannot be removed from here.
func (l *Listener) accept(ctx context.Context) net.Conn {
	for {
		conn, err := l.sock.Accept()
		switch {
		case err == nil:
			return conn
		case failedInQueue(err):
			continue
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

// queueFailures are errors of connections that failed before they were accepted,
// and that are gone with them: "Error handling" in accept(2).
var queueFailures = []syscall.Errno{
	syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.ETIMEDOUT, syscall.ENOPROTOOPT,
	syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
}

func failedInQueue(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(queueFailures, errno)
}

// A Limit is how many connections the listeners that share it serve at once. It
// is safe for concurrent use.
type Limit struct {
	slots chan struct{} // one element for each connection served
}

// NewLimit returns a Limit of n connections, at least one.
func NewLimit(n int) *Limit { return &Limit{slots: make(chan struct{}, max(n, 1))} }

// acquire takes a slot, as soon as there is one. It reports false if ctx ended first and there is none.
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

// patience bounds one accept of a connection that the kernel said is there. It
// is there: the bound is for a kernel that errs.
const patience = time.Second

// defaultBacklog is net.core.somaxconn since Linux 5.4.
const defaultBacklog = 4096

// backlog returns the length of accept queue that package net asks for.
func backlog() int {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return defaultBacklog
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return defaultBacklog
	}
	return n
}

// resize gives the accept queue the length that was asked for.
func (l *Listener) resize() error {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return err
	}
	if cause := raw.Control(func(fd uintptr) { err = sys.Listen(int(fd), l.cfg.Backlog) }); cause != nil {
		return cause
	}
	l.backlog = min(l.cfg.Backlog, l.backlog)
	return os.NewSyscallError("listen", err)
}

// queued reports whether a connection waits in the accept queue; not if the
// listener was closed.
func (l *Listener) queued() bool {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return false
	}
	var events int16
	err = raw.Control(func(fd uintptr) {
		for {
			var err error
			if events, err = sys.Poll(int(fd), sys.POLLIN); err != syscall.EINTR {
				return
			}
		}
	})
	return err == nil && events&sys.POLLIN != 0
}

// onlyIPv6 reports whether a socket takes connections of IPv6 alone.
func onlyIPv6(c syscall.RawConn) bool {
	only := 0
	_ = c.Control(func(fd uintptr) { only, _ = sys.GetsockoptInt(int(fd), sys.IPPROTO_IPV6, sys.IPV6_V6ONLY) })
	return only != 0
}

func closeDescriptor(fd int) error { return os.NewSyscallError("close", sys.Close(fd)) }

// Local returns the address that every client has connected to, as far as this host is
// asked; invalid if the socket is a unix one, or takes those of several addresses.
func (l *Listener) Local() netip.AddrPort {
	at, err := netip.ParseAddrPort(l.Addr())
	if err != nil || at.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
