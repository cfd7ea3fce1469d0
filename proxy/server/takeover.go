package server

import (
	"context"
	"errors"
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
func (s *Server) listen(ctx context.Context, n *change, l *config.Listener, at sockopt.Address) (ln *socketlistener.Listener, beside []*listenSocket, err error) {
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
	if beside = s.overlappingSockets(n, at); len(beside) == 0 {
		return nil, nil, err
	}
	for _, b := range beside {
		if err := b.listener.SetReusePort(true); err != nil {
			return nil, nil, err
		}
		n.reusePort = append(n.reusePort, b)
		n.undo = append(n.undo, func() { s.logUnchanged(b, b.listener.ClearReusePort()) })
	}
	ln, failed := socketlistener.Bind(ctx, at, s.socketConfig(l))
	if failed != nil {
		return nil, nil, failed
	}
	beside = slices.DeleteFunc(beside, func(b *listenSocket) bool { return !b.listener.Overlaps(ln) })
	if len(beside) == 0 { // it was another process, which has left by now
		return nil, nil, errors.Join(err, ln.Close())
	}
	return ln, beside, nil
}

// overlappingSockets returns the sockets that may be in the way of an address, and that a change
// gives up.
func (s *Server) overlappingSockets(n *change, at sockopt.Address) (list []*listenSocket) {
	if n.kept == nil {
		n.kept = s.keeps(n.cfg)
	}
	for _, b := range s.binds {
		if !n.kept[b] && b.samePort(at) {
			list = append(list, b)
		}
	}
	return list
}

func (b *listenSocket) samePort(at sockopt.Address) bool {
	return at.Network == "tcp" && b.listener.TCP() && portOf(b.listener.Addr()) == portOf(at.Name)
}

// keeps returns the sockets in force that a configuration goes on using.
func (s *Server) keeps(cfg *config.Config) map[*listenSocket]bool {
	kept := make(map[*listenSocket]bool)
	for _, l := range cfg.Listeners {
		for _, at := range l.Bind {
			if at.Systemd != "" {
				for _, b := range s.passed(at.Systemd) {
					kept[b] = true
				}
			} else if b := s.binds[bindKey(l, at)]; b != nil && b.stays(l) {
				kept[b] = true
			}
		}
	}
	return kept
}

// listen has the sockets listen that are bound beside others. It is the last that can fail,
// for want of memory, and only if it does has one of them perhaps got clients that are
// refused.
func (n *change) listen() error {
	for _, successor := range n.successors {
		others := make([]*socketlistener.Listener, len(successor.overlapping))
		for i, b := range successor.overlapping {
			others[i] = b.listener
		}
		if err := successor.listener.Start(others...); err != nil {
			return err
		}
	}
	return nil
}

// successorsOf returns the sockets that take the place of one.
func (n *change) successorsOf(b *listenSocket) (list []*listenSocket) {
	for _, successor := range n.successors {
		if slices.Contains(successor.overlapping, b) {
			list = append(list, successor)
		}
	}
	return list
}

// replaceSocket replaces a socket at an address by others, and closes it when the clients that
// have begun to connect to it are accepted. Its sessions stay: they belong to the replacement.
func (s *Server) replaceSocket(key string, b *listenSocket, successors []*listenSocket) {
	if s.binds[key] == b {
		delete(s.binds, key)
	}
	b.former.Store(true)
	addresses := make([]string, len(successors))
	for i, successor := range successors {
		addresses[i] = successor.listener.Addr()
	}
	s.logUnchanged(b, b.listener.StopAccepting())
	s.log.Info("listening socket replaced", "listener", b.owner, "address", b.listener.Addr(), "now", addresses)
	s.transferSessions(key, b, successors)
	if len(s.replaced) >= maxReplaced {
		s.closeOne(s.replaced[0])
	}
	s.replaced = append(s.replaced, b)
	b.closeTimer = s.runAfter(handshakeTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeOne(b)
	})
}

// transferSessions transfers the sessions of a socket to the one that takes its place, and the
// clients of its queue to the same listener as there. If sockets of several listeners take its
// place, these clients have the configuration that was in force when they began to connect,
// and the sessions stay with their listener, if that is one of them.
func (s *Server) transferSessions(key string, b *listenSocket, successors []*listenSocket) {
	i := slices.IndexFunc(successors, func(successor *listenSocket) bool { return successor.owner == b.owner })
	others := slices.ContainsFunc(successors, func(successor *listenSocket) bool { return successor.owner != successors[0].owner })
	if i < 0 && others {
		s.endSessions(key, b)
		return
	}
	successor := successors[max(i, 0)]
	successor.takeOver(b.sockets())
	if !others {
		b.owner, b.cfg, b.service = successor.owner, successor.cfg, successor.service
		b.state.Store(successor.state.Load())
		b.listening.Replace(successor.service)
	}
}

// closeOne closes a replaced socket, after the clients in its queue.
func (s *Server) closeOne(b *listenSocket) {
	if i := slices.Index(s.replaced, b); i >= 0 {
		s.replaced = slices.Delete(s.replaced, i, i+1)
		s.cancelTimer(b.closeTimer)
		s.drainQueue(b)
	}
}

// closeReplaced ends it for those that may be in the way of an address: a second change came
// so soon.
func (s *Server) closeReplaced(at sockopt.Address) {
	for _, b := range slices.Clone(s.replaced) {
		if b.samePort(at) {
			s.closeOne(b)
		}
	}
}

// clearReusePort prevents further sockets at the addresses of a change.
func (s *Server) clearReusePort(n *change) {
	for _, b := range n.reusePort {
		s.logUnchanged(b, b.listener.SetReusePort(false))
	}
	for _, successor := range n.successors {
		s.logUnchanged(successor, successor.listener.ClearReusePort())
	}
}
