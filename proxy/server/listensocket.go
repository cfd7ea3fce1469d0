package server

import (
	"context"
	"errors"
	"fmt"
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
func (s *Server) bind(ctx context.Context, n *change, l *config.Listener, at config.Bind) (keys []string, err error) {
	if at.Systemd != "" {
		return s.bindPassed(n, l, at.Systemd)
	}
	key := bindKey(l, at)
	b := s.binds[key]
	if b != nil && b.stays(l) {
		n.binds[key] = b
		n.commits = append(n.commits, func() { s.logUnchanged(b, b.listener.SetMode(at.Address.Mode)) })
		return []string{key}, nil
	}
	if b != nil && strings.HasSuffix(at.Address.Name, ":0") {
		at.Address.Name = strings.TrimSuffix(at.Address.Name, "0") + portOf(b.listener.Addr())
	}
	ln, beside, err := s.listen(ctx, n, l, at.Address)
	if err != nil {
		return nil, s.explainTaken(n, at, err)
	}
	if err := s.bindNew(n, key, ln); err != nil {
		return nil, err
	}
	if n.binds[key].overlapping = beside; len(beside) > 0 {
		n.successors = append(n.successors, n.binds[key])
	}
	return []string{key}, nil
}

// stays reports whether its socket can serve a configuration; the protocol is settled when it
// is made.
func (b *listenSocket) stays(l *config.Listener) bool {
	return !b.listener.TCP() || b.cfg.Socket.MPTCP == l.Socket.MPTCP
}

func portOf(name string) string {
	_, port, _ := net.SplitHostPort(name)
	return port
}

// explainTaken adds that it is this process that has an address, if it is, and goes on
// having it.
func (s *Server) explainTaken(n *change, at config.Bind, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for b := range n.kept {
		if b.samePort(at.Address) {
			return fmt.Errorf("%w: already in use by this process: %s", err, b.listener.Addr())
		}
	}
	return err
}

// bindNew makes a bound of a listener, which it owns.
func (s *Server) bindNew(n *change, key string, ln *socketlistener.Listener) error {
	n.undo = append(n.undo, func() { ln.Close() })
	fd, err := ln.Detach()
	if err != nil {
		return err
	}
	addr := ln.Addr()
	n.binds[key] = &listenSocket{
		listener: ln, own: ln.Own(), fd: fd, closed: make(chan struct{}),
		pauses: episode.New(func() { s.log.Info("accepting resumed", "address", addr) }),
	}
	return nil
}

// bindPassed returns the sockets that systemd has passed under a name.
func (s *Server) bindPassed(n *change, l *config.Listener, name string) (keys []string, err error) {
	for key, b := range s.passed(name) {
		n.binds[key] = b
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
			err = s.bindNew(n, key, adopted)
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

// passed returns the sockets in force that systemd has passed under a name.
func (s *Server) passed(name string) map[string]*listenSocket {
	list := make(map[string]*listenSocket)
	for key, b := range s.binds {
		if strings.HasPrefix(key, passedKey(name, "")) {
			list[key] = b
		}
	}
	return list
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
func (s *Server) adapt(b *listenSocket) {
	if !b.listener.TCP() {
		return
	}
	err := socketOptions(b.cfg).Set(b.fd)
	if err == nil {
		err = unsetOptions(b.cfg, b.fd)
	}
	if err == nil {
		err = setOptions(b.cfg, b.fd)
	}
	if err == nil {
		err = os.NewSyscallError("listen", sys.Listen(b.fd, b.cfg.Socket.Backlog))
	}
	s.logUnchanged(b, err)
	s.logOpaque(b)
	if protocol, err := sys.GetsockoptInt(b.fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err == nil && b.cfg.Socket.MPTCP == (protocol == sys.IPPROTO_TCP) {
		s.log.Warn("socket.mptcp is not applied: the socket was made by systemd, or the kernel has no Multipath TCP",
			"listener", b.owner, "address", b.listener.Addr(), "mptcp", !b.cfg.Socket.MPTCP)
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
func (s *Server) logUnchanged(b *listenSocket, err error) {
	if err != nil {
		s.log.Warn("options of a listening socket not changed", "address", b.listener.Addr(), "error", err)
	}
}

// logOpaque logs that a transparent listener accepts less than it might.
func (s *Server) logOpaque(b *listenSocket) {
	if !b.cfg.Transparent {
		return
	}
	set, err := sys.GetsockoptInt(b.fd, syscall.SOL_IP, sys.IP_TRANSPARENT)
	if err != nil || set == 0 {
		s.log.Warn("no CAP_NET_ADMIN for IP_TRANSPARENT: a transparent listener accepts connections from REDIRECT or DNAT, and none from TPROXY",
			"listener", b.owner, "address", b.listener.Addr())
	}
}

var errListenerGone = errors.New("its listener is gone")

// closeSocket stops accepting at an address, after the clients in its queue. The sessions that
// came in there may go on for a while, see endSessions.
func (s *Server) closeSocket(key string, b *listenSocket) {
	delete(s.binds, key)
	b.former.Store(true)
	s.logUnclosed(b, b.listener.Unlink())
	if b.listener.TCP() {
		_ = b.listener.StopAccepting() // so that the queue does not fill while it is emptied; it may
	}
	s.log.Info("no longer listening", "listener", b.owner, "address", b.listener.Addr())
	s.drainQueue(b)
	s.endSessions(key, b)
}

// drainQueue closes a socket after the clients in its queue.
func (s *Server) drainQueue(b *listenSocket) {
	b.listening.Close()
	s.parting = append(slices.DeleteFunc(s.parting, (*listenSocket).gone), b)
}

// logUnclosed logs that closing a listener failed, if it did.
func (s *Server) logUnclosed(b *listenSocket, err error) {
	if err != nil {
		s.log.Warn("closing a listener failed", "address", b.listener.Addr(), "error", err)
	}
}

// gone reports whether its listener was closed.
func (b *listenSocket) gone() bool {
	select {
	case <-b.closed:
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
	for _, b := range s.parting {
		select {
		case <-b.closed:
		case <-ctx.Done():
		}
	}
	return len(s.parting) > 0
}
