package balancer

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
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/dispatch"
	"github.com/penstock/penstock/proxy/episode"
	socketlistener "github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// A bound is a listening socket, for as long as a configuration names its address.
type bound struct {
	listener  *socketlistener.Listener // owned
	own       []netip.AddrPort         // where clients reach it; nil: a unix socket
	fd        int                      // the listener's
	listening *core.Listening          // nil until it is accepted from
	pauses    *episode.Episode
	door      atomic.Pointer[dispatch.Door] // its listener's, from before it is accepted from
	former    atomic.Bool                   // it was given up: its address may be another one's
	closed    chan struct{}                 // closed when its listener was, after it had been accepted from
	beside    []*bound                      // whose address, or a part of it, it has taken over
	deserted  atomic.Bool                   // it is closed, and has no sessions any more

	// Of the configuration in force, under the server's mu:
	owner   string // the listener's name
	cfg     *config.Listener
	service *core.Service
	adapts  bool              // its options are others than before
	before  []*core.Listening // those that it has taken over from, whose sessions are its own
	drops   int64             // see dropped
	heir    *bound            // that has taken over from it; nil: none, or it is deserted
	linger  *time.Timer       // of one that was replaced: when it is accepted from no more
	parted  *parted           // that it is of, once it is gone; nil: none, or it is deserted
}

// bindOptions are what a configuration says of its listening sockets themselves.
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
func (s *Server) bind(ctx context.Context, n *next, l *config.Listener, at config.Bind) (keys []string, err error) {
	if at.Systemd != "" {
		return s.bindPassed(n, l, at.Systemd)
	}
	key := bindKey(l, at)
	b := s.binds[key]
	if b != nil && b.stays(l) {
		n.binds[key] = b
		n.then = append(n.then, func() { s.tellUnchanged(b, b.listener.SetMode(at.Address.Mode)) })
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
	if n.binds[key].beside = beside; len(beside) > 0 {
		n.heirs = append(n.heirs, n.binds[key])
	}
	return []string{key}, nil
}

// stays reports whether its socket can do what a configuration says; the protocol is settled
// when it is made.
func (b *bound) stays(l *config.Listener) bool {
	return !b.listener.TCP() || b.cfg.Socket.MPTCP == l.Socket.MPTCP
}

func portOf(name string) string {
	_, port, _ := net.SplitHostPort(name)
	return port
}

// explainTaken adds that it is this process that has an address, if it is, and goes on
// having it.
func (s *Server) explainTaken(n *next, at config.Bind, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	for b := range n.kept {
		if b.samePort(at.Address) {
			return fmt.Errorf("%w: this process listens on %s, and goes on doing so", err, b.listener.Addr())
		}
	}
	return err
}

// bindNew makes a bound of a listener, which it owns.
func (s *Server) bindNew(n *next, key string, ln *socketlistener.Listener) error {
	n.undo = append(n.undo, func() { ln.Close() })
	fd, err := ln.Detach()
	if err != nil {
		return err
	}
	addr := ln.Addr()
	n.binds[key] = &bound{
		listener: ln, own: ln.Own(), fd: fd, closed: make(chan struct{}),
		pauses: episode.New(func() { s.log.Info("accepting resumed", "address", addr) }),
	}
	return nil
}

// bindPassed returns the sockets that systemd has passed under a name.
func (s *Server) bindPassed(n *next, l *config.Listener, name string) (keys []string, err error) {
	for key, b := range s.passed(name) {
		n.binds[key] = b
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		return keys, nil
	}
	list, err := s.sockets.Take(name)
	if err != nil {
		return nil, err
	}
	for i, ln := range list {
		key := passedKey(name, fmt.Sprint(i))
		adopted, err := socketlistener.Adopt(ln, s.socketConfig(l))
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
func (s *Server) passed(name string) map[string]*bound {
	list := make(map[string]*bound)
	for key, b := range s.binds {
		if strings.HasPrefix(key, passedKey(name, "")) {
			list[key] = b
		}
	}
	return list
}

func passedKey(name, index string) string { return "systemd:" + name + "#" + index }

// socketConfig is what is set on a listening socket.
func (s *Server) socketConfig(l *config.Listener) *socketlistener.Config {
	return &socketlistener.Config{
		Options: socketOptions(l), Backlog: l.Socket.Backlog, Multipath: l.Socket.MPTCP,
		Control: func(network, _ string, c syscall.RawConn) error { return control(l, network, c) },
	}
}

// socketOptions are those that a configuration names. There 0 is off.
func socketOptions(l *config.Listener) socket.Options {
	return socket.Options{KeepAlive: orOff(l.Socket.KeepAlive), UserTimeout: orOff(l.Socket.UserTimeout)}
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
	// capability is needed: tellOpaque says so.
	err := sys.SetsockoptInt(fd, syscall.SOL_IP, sys.IP_TRANSPARENT, 1)
	if err == syscall.ENOPROTOOPT {
		err = sys.SetsockoptInt(fd, syscall.SOL_IPV6, sys.IPV6_TRANSPARENT, 1)
	}
	if err == syscall.EPERM {
		return nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// adapt has a socket that stays give what it accepts the options of the configuration in
// force.
func (s *Server) adapt(b *bound) {
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
	s.tellUnchanged(b, err)
	s.tellOpaque(b)
	if protocol, err := sys.GetsockoptInt(b.fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err == nil && b.cfg.Socket.MPTCP == (protocol == sys.IPPROTO_TCP) {
		s.log.Warn("socket.mptcp is not as it should: the socket was made by systemd, or the kernel has no Multipath TCP",
			"listener", b.owner, "address", b.listener.Addr(), "mptcp", !b.cfg.Socket.MPTCP)
	}
}

// unsetOptions takes away what the configuration before had set.
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

// tellUnchanged tells that changing a listening socket failed, if it did.
func (s *Server) tellUnchanged(b *bound, err error) {
	if err != nil {
		s.log.Warn("options of a listening socket not changed", "address", b.listener.Addr(), "error", err)
	}
}

// tellOpaque tells that a transparent listener takes less than it might.
func (s *Server) tellOpaque(b *bound) {
	if !b.cfg.Transparent {
		return
	}
	set, err := sys.GetsockoptInt(b.fd, syscall.SOL_IP, sys.IP_TRANSPARENT)
	if err != nil || set == 0 {
		s.log.Warn("no CAP_NET_ADMIN for IP_TRANSPARENT: a transparent listener takes what REDIRECT or DNAT brings, and nothing from TPROXY",
			"listener", b.owner, "address", b.listener.Addr())
	}
}

var errListenerGone = errors.New("its listener is gone")

// closeBound stops accepting at an address, after those who wait there. The sessions that
// came in there may go on for a while, see endSessions.
func (s *Server) closeBound(key string, b *bound) {
	delete(s.binds, key)
	b.former.Store(true)
	s.tellUnclosed(b, b.listener.Unlink())
	if b.listener.TCP() {
		_ = b.listener.Yield() // so that the queue does not fill while it is emptied; it may
	}
	s.log.Info("no longer listening", "listener", b.owner, "address", b.listener.Addr())
	s.empty(b)
	s.endSessions(key, b)
}

// empty closes a socket after those who wait there.
func (s *Server) empty(b *bound) {
	b.listening.Close()
	s.parting = append(slices.DeleteFunc(s.parting, (*bound).gone), b)
}

// tellUnclosed tells that closing a listener failed, if it did.
func (s *Server) tellUnclosed(b *bound, err error) {
	if err != nil {
		s.log.Warn("closing a listener failed", "address", b.listener.Addr(), "error", err)
	}
}

// gone reports whether its listener was closed.
func (b *bound) gone() bool {
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
