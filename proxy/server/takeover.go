package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/config"
	socketlistener "github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An address can be in the way of one that a change asks for although the change gives it
// up: 127.0.0.1:80 of :80. The new socket is bound beside the old one then, and listens once
// nothing else of the change can fail. At the swap the old one yields. It is accepted from
// for as long as clients may have begun to connect to it, and closed like any that is gone.

// handshakeTime is how long a socket that was replaced is accepted from: a handshake of which
// two packets in a row were lost is over by then (tcp_syn_linger is a second, then two).
const handshakeTime = 5 * time.Second

// maxReplaced bounds how many there are of those, whatever is changed how often.
const maxReplaced = 64

// listen listens on an address; beside are the sockets that this change takes out of service
// and that have the address, or a part of it. If there are any it does not listen yet.
func (s *Server) listen(ctx context.Context, c *change, l *config.Listener, at sockopt.Address) (ln *socketlistener.Listener, beside []*listenSocket, err error) {
	ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ln, nil, err
	}
	if s.closeReplaced(at); s.awaitClosed(ctx) {
		ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, nil, err
		}
	}
	if beside = s.overlappingSockets(c, at); len(beside) == 0 {
		return nil, nil, err
	}
	for _, socket := range beside {
		if err := socket.listener.SetReusePort(true); err != nil {
			return nil, nil, err
		}
		c.reusePort = append(c.reusePort, socket)
		c.undo = append(c.undo, func() { s.logUnchanged(socket, socket.listener.ClearReusePort()) })
	}
	ln, failed := socketlistener.Bind(ctx, at, s.socketConfig(l))
	if failed != nil {
		return nil, nil, failed
	}
	beside = slices.DeleteFunc(beside, func(socket *listenSocket) bool { return !socket.listener.Overlaps(ln) })
	if len(beside) == 0 { // it was another process, which has left by now
		return nil, nil, errors.Join(err, ln.Close())
	}
	return ln, beside, nil
}

// overlappingSockets returns the sockets that may be in the way of an address, and that a change
// gives up.
func (s *Server) overlappingSockets(c *change, at sockopt.Address) (list []*listenSocket) {
	if c.kept == nil {
		c.kept = s.keeps(c.cfg)
	}
	for _, socket := range s.binds {
		if !c.kept[socket] && socket.samePort(at) {
			list = append(list, socket)
		}
	}
	return list
}

func (socket *listenSocket) samePort(at sockopt.Address) bool {
	return at.Network == "tcp" && socket.listener.TCP() && portOf(socket.listener.Addr()) == portOf(at.Name)
}

// overlaps reports whether the socket has an address or a part of it.
func (socket *listenSocket) overlaps(at sockopt.Address) bool {
	if !socket.samePort(at) {
		return false
	}
	host, _, _ := net.SplitHostPort(at.Name)
	wanted, err := netip.ParseAddr(host)
	own, err2 := netip.ParseAddrPort(socket.listener.Addr())
	if err != nil || err2 != nil { // without a host, or with a name: any address of this machine
		return true
	}
	return wanted.IsUnspecified() || own.Addr().IsUnspecified() || wanted.Unmap() == own.Addr().Unmap()
}

// keeps returns the sockets in force that a configuration goes on using.
func (s *Server) keeps(cfg *config.Config) map[*listenSocket]bool {
	kept := make(map[*listenSocket]bool)
	for _, l := range cfg.Listeners {
		for _, at := range l.Bind {
			for _, socket := range s.binds.of(l, at) {
				if at.Systemd != "" || socket.stays(l) {
					kept[socket] = true
				}
			}
		}
	}
	return kept
}

// listen has the sockets listen that are bound beside others. It is the last that can fail,
// for want of memory, and only if it does has one of them perhaps got clients that are
// refused.
func (c *change) listen() error {
	for _, successor := range c.successors {
		others := make([]*socketlistener.Listener, len(successor.overlapping))
		for i, socket := range successor.overlapping {
			others[i] = socket.listener
		}
		if err := successor.listener.Start(others...); err != nil {
			return err
		}
	}
	return nil
}

// successorsOf returns the sockets that take the place of one.
func (c *change) successorsOf(socket *listenSocket) (list []*listenSocket) {
	for _, successor := range c.successors {
		if slices.Contains(successor.overlapping, socket) {
			list = append(list, successor)
		}
	}
	return list
}

// replaceSocket replaces a socket at an address by others, and closes it when the clients that
// have begun to connect to it are accepted. Its sessions stay: they belong to the replacement.
func (s *Server) replaceSocket(key string, socket *listenSocket, successors []*listenSocket, cause error) {
	if s.binds[key] == socket {
		delete(s.binds, key)
	}
	s.noteGivenUp(socket)
	addresses := make([]string, len(successors))
	for i, successor := range successors {
		addresses[i] = successor.listener.Addr()
	}
	s.logUnchanged(socket, socket.listener.StopAccepting())
	s.log.Info("listening socket replaced", "listener", socket.owner, "address", socket.listener.Addr(), "now", addresses)
	s.transferSessions(key, socket, successors, cause)
	if len(s.replaced) >= maxReplaced {
		s.closeOne(s.replaced[0])
	}
	s.replaced = append(s.replaced, socket)
	socket.closeTimer = s.runAfter(handshakeTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeOne(socket)
	})
}

// transferSessions transfers the sessions of a socket to the one that takes its place, and the
// clients of its queue to the same listener as there. If sockets of several listeners take its
// place, or those of another one that has not all of its addresses, these clients have the configuration
// that was in force when they began to connect, and the sessions stay with their listener, if that is one of them.
func (s *Server) transferSessions(key string, socket *listenSocket, successors []*listenSocket, cause error) {
	i := slices.IndexFunc(successors, func(successor *listenSocket) bool { return successor.owner == socket.owner })
	others := slices.ContainsFunc(successors, func(successor *listenSocket) bool { return successor.owner != successors[0].owner })
	if i < 0 && others {
		s.endSessions(key, socket, cause)
		return
	}
	successor := successors[max(i, 0)]
	successor.takeOver(socket.sockets())
	if !others && (i >= 0 || haveAll(successors, socket)) {
		socket.owner, socket.cfg, socket.service = successor.owner, successor.cfg, successor.service
		socket.state.Store(successor.state.Load())
		socket.listening.Replace(successor.service)
	}
}

// haveAll reports whether successors have all addresses of a socket.
func haveAll(successors []*listenSocket, socket *listenSocket) bool {
	for _, own := range socket.own {
		if !slices.ContainsFunc(successors, func(o *listenSocket) bool { return slices.Contains(o.own, own) }) {
			return false
		}
	}
	return true
}

// closeOne closes a replaced socket, after the clients in its queue.
func (s *Server) closeOne(socket *listenSocket) {
	if i := slices.Index(s.replaced, socket); i >= 0 {
		s.replaced = slices.Delete(s.replaced, i, i+1)
		s.cancelTimer(socket.closeTimer)
		s.drainQueue(socket)
	}
}

// closeReplaced ends it for those that may be in the way of an address: a second change came
// so soon.
func (s *Server) closeReplaced(at sockopt.Address) {
	for _, socket := range slices.Clone(s.replaced) {
		if socket.samePort(at) {
			s.closeOne(socket)
		}
	}
}

// clearReusePort prevents further sockets at the addresses of a change.
func (s *Server) clearReusePort(c *change) {
	for _, socket := range c.reusePort {
		s.logUnchanged(socket, socket.listener.SetReusePort(false))
	}
	for _, successor := range c.successors {
		s.logUnchanged(successor, successor.listener.ClearReusePort())
	}
}
