package balancer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/episode"
	socketlistener "github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// A bound is a listening socket, for as long as a configuration names its address.
type bound struct {
	listener  *socketlistener.Listener // owned
	fd        int                      // the listener's
	listening *core.Listening          // nil until it is accepted from
	pauses    *episode.Episode

	// Of the configuration in force, under the server's mu:
	owner   string // the listener's name
	cfg     *config.Listener
	service *core.Service
}

// bind returns the sockets of an address: those that there are, or else new ones.
func (s *Server) bind(ctx context.Context, n *next, l *config.Listener, at config.Bind) (keys []string, err error) {
	if at.Systemd != "" {
		return s.bindPassed(n, l, at.Systemd)
	}
	key := at.String()
	if strings.HasSuffix(at.Address.Name, ":0") {
		key = l.Name + "#" + fmt.Sprint(slices.Index(l.Bind, at)) + "#" + key // of those there may be many
	}
	if b := s.binds[key]; b != nil {
		n.binds[key] = b
		return []string{key}, nil
	}
	ln, err := socketlistener.Listen(ctx, at.Address, s.socketConfig(l))
	if err != nil {
		return nil, err
	}
	return []string{key}, s.bindNew(n, key, ln)
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
		listener: ln, fd: fd,
		pauses: episode.New(func() { s.log.Info("accepting resumed", "address", addr) }),
	}
	return nil
}

// bindPassed returns the sockets that systemd has passed under a name.
func (s *Server) bindPassed(n *next, l *config.Listener, name string) (keys []string, err error) {
	for key, b := range s.binds {
		if strings.HasPrefix(key, passedKey(name, "")) {
			n.binds[key] = b
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
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
	// Without it only connections that a NAT rule has redirected come (and no capability
	// is needed): that TPROXY has to have it is found out when none comes.
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
		err = setOptions(b.cfg, b.fd)
	}
	if err == nil {
		err = os.NewSyscallError("listen", sys.Listen(b.fd, b.cfg.Socket.Backlog))
	}
	if err != nil {
		s.log.Warn("options of a listening socket not changed", "address", b.listener.Addr(), "error", err)
	}
}

var errListenerGone = errors.New("its listener is gone")

// closeBound stops accepting at an address, after those who wait there. The sessions that
// came in there may go on for as long as when the process drains.
func (s *Server) closeBound(key string, b *bound) {
	delete(s.binds, key)
	s.tellUnclosed(b, b.listener.Unlink())
	s.log.Info("no longer listening", "listener", b.owner, "address", b.listener.Addr())
	b.listening.Close()
	if within := s.options.DrainTimeout; within > 0 {
		s.later(within, func() {
			s.group.CutMatching(func(l *core.Listening, _ core.Bond) bool { return l == b.listening }, errListenerGone)
		})
	}
}

// tellUnclosed tells that closing a listener failed, if it did.
func (s *Server) tellUnclosed(b *bound, err error) {
	if err != nil {
		s.log.Warn("closing a listener failed", "address", b.listener.Addr(), "error", err)
	}
}
