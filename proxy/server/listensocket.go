package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/episode"
	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// A listenSocket is a listening socket, for as long as a configuration names its address.
type listenSocket struct {
	listener    *socketlistener.Listener // owned
	own         []netip.AddrPort         // where clients reach it; nil: a unix socket
	fd          int                      // the listener's
	listening   *worker.Listening        // nil until it is accepted from
	pauses      *episode.Episode
	state       atomic.Pointer[router.ListenerState] // its listener's, from before it is accepted from
	former      atomic.Bool                          // it was given up: its address may be another one's
	later       atomic.Pointer[[]*listenSocket]      // that had a part of its address after it and were given up, the last one last
	closed      chan struct{}                        // closed when its listener was, after it had been accepted from
	overlapping []*listenSocket                      // whose address, or a part of it, it has taken over
	deserted    atomic.Bool                          // it is closed, and has no sessions any more

	// Of the configuration in force, under the server's mu:
	owner      string // the listener's name
	cfg        *config.Listener
	service    *worker.Service
	adapts     bool                // its options are others than before
	before     []*worker.Listening // sockets that it has taken over, whose sessions are its own
	overflows  overflowCount
	congestion string           // congestion control that this process has set; "": none
	successor  *listenSocket    // that has taken over from it; nil: none, or it is deserted
	closeTimer *time.Timer      // of one that was replaced: when it is accepted from no more
	draining   *drainingSockets // that it is of, once it is gone; nil: none, or it is deserted
}

// bindOptions are the options of listening sockets themselves.
type bindOptions struct {
	config.Socket
	transparent bool
}

func optionsOf(l *config.Listener) bindOptions {
	o := bindOptions{l.Socket, l.Transparent}
	o.Pos = config.Pos{}
	return o
}

// bindKey is the same for the same address of a listener, however its mode changes; not for
// sockets of systemd, of which a name may have several.
func bindKey(l *config.Listener, at config.Bind) string {
	at.Address.Mode = 0
	switch {
	case at.Address.Network == "unix" && !at.Address.Abstract():
		if path, err := filepath.Abs(at.Address.Name); err == nil {
			at.Address.Name = path
		}
	case strings.HasSuffix(at.Address.Name, ":0"): // of those there may be many
		return l.Name + "#" + fmt.Sprint(slices.Index(l.Bind, at)) + "#" + at.String()
	}
	return at.String()
}

// bind returns the sockets of an address: those that there are, or else new ones.
func (s *Server) bind(ctx context.Context, c *change, l *config.Listener, at config.Bind) (keys []string, err error) {
	if at.Systemd != "" {
		return s.bindPassed(c, l, at.Systemd)
	}
	key := bindKey(l, at)
	socket := s.binds[key]
	if socket != nil && socket.stays(l) {
		c.binds[key] = socket
		c.commits = append(c.commits, func() { s.logUnchanged(socket, socket.listener.SetMode(at.Address.Mode)) })
		return []string{key}, nil
	}
	if socket != nil && strings.HasSuffix(at.Address.Name, ":0") {
		at.Address.Name = strings.TrimSuffix(at.Address.Name, "0") + portOf(socket.listener.Addr())
	}
	ln, beside, err := s.listen(ctx, c, l, at.Address)
	if err != nil {
		return nil, s.explainTaken(c, at, err)
	}
	if err := s.bindNew(c, key, ln); err != nil {
		return nil, err
	}
	if c.binds[key].overlapping = beside; len(beside) > 0 {
		c.successors = append(c.successors, c.binds[key])
	}
	return []string{key}, nil
}

// stays reports whether its socket can serve a configuration; the protocol is settled when it
// is made.
func (socket *listenSocket) stays(l *config.Listener) bool {
	return !socket.listener.TCP() || socket.cfg.Socket.MPTCP == l.Socket.MPTCP
}

func portOf(name string) string {
	_, port, _ := net.SplitHostPort(name)
	return port
}

// explainTaken adds that a listener of this process has an address, or a part of it, and keeps it.
func (s *Server) explainTaken(c *change, at config.Bind, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for socket := range c.kept {
		if socket.overlaps(at.Address) {
			return fmt.Errorf("%w: listener %s of this process has %s", err, socket.owner, socket.listener.Addr())
		}
	}
	if at.Address.Network != "tcp" {
		return err
	}
	return fmt.Errorf("%w: another process has it: ss -ltnp sport = :%s shows which", err, portOf(at.Address.Name))
}

// bindNew makes a bound of a listener, which it owns.
func (s *Server) bindNew(c *change, key string, ln *socketlistener.Listener) error {
	c.undo = append(c.undo, func() { ln.Close() })
	fd, err := ln.Detach()
	if err != nil {
		return err
	}
	addr := ln.Addr()
	c.binds[key] = &listenSocket{
		listener: ln, own: ln.Own(), fd: fd, closed: make(chan struct{}),
		pauses: episode.New(func() { s.log.Info("accepting resumed", "address", addr) }),
	}
	return nil
}

// bindPassed returns the sockets that systemd has passed under a name.
func (s *Server) bindPassed(c *change, l *config.Listener, name string) (keys []string, err error) {
	for key, socket := range s.binds.passed(name) {
		c.binds[key] = socket
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		return keys, nil
	}
	list, err := s.options.Sockets.Take(name)
	if err != nil {
		return nil, err
	}
	for i, ln := range list {
		key := passedKey(name, fmt.Sprint(i))
		adopted, err := socketlistener.FromFD(ln, s.socketConfig(l))
		if err == nil {
			err = s.bindNew(c, key, adopted)
		}
		if err != nil {
			for _, rest := range list[i+1:] {
				rest.Close()
			}
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// binds are listening sockets by their keys.
type binds map[string]*listenSocket

// passed returns the sockets that systemd has passed under a name.
func (b binds) passed(name string) binds {
	list := make(binds)
	for key, socket := range b {
		if strings.HasPrefix(key, passedKey(name, "")) {
			list[key] = socket
		}
	}
	return list
}

// of returns the sockets of one of a listener's binds.
func (b binds) of(l *config.Listener, at config.Bind) []*listenSocket {
	if at.Systemd != "" {
		return slices.Collect(maps.Values(b.passed(at.Systemd)))
	}
	if socket := b[bindKey(l, at)]; socket != nil {
		return []*listenSocket{socket}
	}
	return nil
}

func passedKey(name, index string) string { return "systemd:" + name + "#" + index }

// socketConfig returns the options of a listening socket.
func (s *Server) socketConfig(l *config.Listener) *socketlistener.Config {
	return &socketlistener.Config{
		Options: socketOptions(l), Backlog: l.Socket.Backlog, Multipath: l.Socket.MPTCP,
		Control: func(network, _ string, c syscall.RawConn) error { return control(l, network, c) },
	}
}

// socketOptions are those that a configuration names. There 0 is off.
func socketOptions(l *config.Listener) sockopt.Options {
	return sockopt.Options{KeepAlive: orOff(l.Socket.KeepAlive), UserTimeout: orOff(l.Socket.UserTimeout)}
}

func orOff(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// control sets the options that package socket does not have.
func control(l *config.Listener, network string, c syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	cause := c.Control(func(fd uintptr) { err = setOptions(l, int(fd)) })
	if cause != nil {
		return cause
	}
	return err
}

func setOptions(l *config.Listener, fd int) error {
	if name := l.Socket.Congestion; name != "" {
		_ = sys.SetCongestion(fd, name) // without it the socket has that of the system: logCongestion says so
	}
	if l.Socket.FastOpen {
		// The argument is how many connections without a finished handshake may wait.
		err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_FASTOPEN, l.Socket.Backlog)
		if err != nil && err != syscall.ENOPROTOOPT {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if !l.Transparent {
		return nil
	}
	// Without it only connections that a NAT rule has redirected come, for which no
	// capability is needed: logOpaque says so.
	err := sys.SetsockoptInt(fd, syscall.SOL_IP, sys.IP_TRANSPARENT, 1)
	if err == syscall.ENOPROTOOPT {
		err = sys.SetsockoptInt(fd, syscall.SOL_IPV6, sys.IPV6_TRANSPARENT, 1)
	}
	if err == syscall.EPERM {
		return nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// adapt gives the connections that a socket accepts from now on the options of the
// configuration in force.
func (s *Server) adapt(socket *listenSocket) {
	if !socket.listener.TCP() {
		return
	}
	err := socketOptions(socket.cfg).Set(socket.fd)
	if err == nil {
		err = unsetOptions(socket.cfg, socket.fd)
	}
	if err == nil {
		err = setOptions(socket.cfg, socket.fd)
	}
	if err == nil {
		err = os.NewSyscallError("listen", sys.Listen(socket.fd, socket.cfg.Socket.Backlog))
	}
	s.logUnchanged(socket, err)
	s.logOpaque(socket)
	s.adaptCongestion(socket)
	if protocol, err := sys.GetsockoptInt(socket.fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err == nil && socket.cfg.Socket.MPTCP == (protocol == sys.IPPROTO_TCP) {
		s.log.Warn("socket.mptcp is not applied: the socket was made by systemd, or the kernel has no Multipath TCP",
			"listener", socket.owner, "address", socket.listener.Addr(), "mptcp", !socket.cfg.Socket.MPTCP)
	}
}

// unsetOptions resets the options of the configuration before.
func unsetOptions(l *config.Listener, fd int) error {
	for _, o := range []struct {
		level, name int
		wanted      bool
	}{{sys.IPPROTO_TCP, sys.TCP_FASTOPEN, l.Socket.FastOpen}, {syscall.SOL_IP, sys.IP_TRANSPARENT, l.Transparent}} {
		if set, err := sys.GetsockoptInt(fd, o.level, o.name); o.wanted || err != nil || set == 0 {
			continue
		}
		if err := sys.SetsockoptInt(fd, o.level, o.name, 0); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// logUnchanged logs that changing a listening socket failed, if it did.
func (s *Server) logUnchanged(socket *listenSocket, err error) {
	if err != nil {
		s.log.Warn("options of a listening socket not changed", "address", socket.listener.Addr(), "error", err)
	}
}

// logOpaque logs that a transparent listener accepts less than it might.
func (s *Server) logOpaque(socket *listenSocket) {
	if !socket.cfg.Transparent {
		return
	}
	set, err := sys.GetsockoptInt(socket.fd, syscall.SOL_IP, sys.IP_TRANSPARENT)
	if err != nil || set == 0 {
		s.log.Warn("no CAP_NET_ADMIN for IP_TRANSPARENT: a transparent listener accepts connections from REDIRECT or DNAT, and none from TPROXY",
			"listener", socket.owner, "address", socket.listener.Addr())
	}
}

// Causes of the end of sessions whose socket is closed.
var (
	errListenerGone    = errors.New("its listener is gone")
	errListenerDrained = errors.New("its listener was drained")
	errListenerMoved   = errors.New("its listener has left the address")
)

// closedFor returns the cause for a socket that the configuration of a change has not: what has become of its listener.
func (c *change) closedFor(socket *listenSocket) error {
	switch l := c.listeners[socket.owner]; {
	case l == nil:
		return errListenerGone
	case l.drained:
		return errListenerDrained
	}
	return errListenerMoved
}

// closeSocket stops accepting at an address, after the clients in its queue. The sessions that
// came in there may go on for a while, see endSessions, and end with the cause.
func (s *Server) closeSocket(key string, socket *listenSocket, cause error) {
	delete(s.binds, key)
	s.noteGivenUp(socket)
	s.logUnclosed(socket, socket.listener.Unlink())
	if socket.listener.TCP() {
		_ = socket.listener.StopAccepting() // so that the queue does not fill while it is emptied; it may
	}
	s.log.Info("no longer listening", "listener", socket.owner, "address", socket.listener.Addr())
	s.drainQueue(socket)
	s.endSessions(key, socket, cause)
}

// drainQueue closes a socket after the clients in its queue.
func (s *Server) drainQueue(socket *listenSocket) {
	socket.listening.Close()
	s.parting = append(slices.DeleteFunc(s.parting, (*listenSocket).gone), socket)
}

// logUnclosed logs that closing a listener failed, if it did.
func (s *Server) logUnclosed(socket *listenSocket, err error) {
	if err != nil {
		s.log.Warn("closing a listener failed", "address", socket.listener.Addr(), "error", err)
	}
}

// gone reports whether its listener was closed.
func (socket *listenSocket) gone() bool {
	select {
	case <-socket.closed:
		return true
	default:
		return false
	}
}

// partingTime is how long a change waits for the sockets that a change before has given up,
// whose queues the loops are emptying.
const partingTime = time.Second

// awaitClosed waits until those are closed, and reports whether there were any.
func (s *Server) awaitClosed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	for _, socket := range s.parting {
		select {
		case <-socket.closed:
		case <-ctx.Done():
		}
	}
	return len(s.parting) > 0
}
