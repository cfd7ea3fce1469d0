package balancer

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/config"
	socketlistener "github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/proxy/socket"
)

// An address can be in the way of one that a change asks for although the change gives it
// up: 127.0.0.1:80 of :80. The new socket is bound beside the old one then, and listens once
// nothing else of the change can fail. At the swap the old one yields. It is accepted from
// for as long as clients may have begun to connect to it, and closed like any that is gone.

// handshakeTime is how long a socket that was replaced is accepted from: a handshake of which
// two packets in a row were lost is over by then (tcp_syn_linger is a second, then two).
const handshakeTime = 5 * time.Second

// mostLingering bounds how many there are of those, whatever is changed how often.
const mostLingering = 64

// listen listens on an address; beside are the sockets that this change takes out of service
// and that have the address, or a part of it. If there are any it does not listen yet.
func (s *Server) listen(ctx context.Context, n *next, l *config.Listener, at socket.Address) (ln *socketlistener.Listener, beside []*bound, err error) {
	ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ln, nil, err
	}
	if s.stopLingering(at); s.awaitClosed(ctx) {
		ln, err = socketlistener.Listen(ctx, at, s.socketConfig(l))
		if !errors.Is(err, syscall.EADDRINUSE) {
			return ln, nil, err
		}
	}
	if beside = s.inTheWay(n, at); len(beside) == 0 {
		return nil, nil, err
	}
	for _, b := range beside {
		if err := b.listener.Share(true); err != nil {
			return nil, nil, err
		}
		n.shared = append(n.shared, b)
		n.undo = append(n.undo, func() { s.tellUnchanged(b, b.listener.Unshare()) })
	}
	ln, failed := socketlistener.Bind(ctx, at, s.socketConfig(l))
	if failed != nil {
		return nil, nil, failed
	}
	beside = slices.DeleteFunc(beside, func(b *bound) bool { return !b.listener.Overlaps(ln) })
	if len(beside) == 0 { // it was somebody else, who has left by now
		return nil, nil, errors.Join(err, ln.Close())
	}
	return ln, beside, nil
}

// inTheWay returns the sockets that may be in the way of an address, and that a change
// gives up.
func (s *Server) inTheWay(n *next, at socket.Address) (list []*bound) {
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

func (b *bound) samePort(at socket.Address) bool {
	return at.Network == "tcp" && b.listener.TCP() && portOf(b.listener.Addr()) == portOf(at.Name)
}

// keeps returns the sockets in force that a configuration goes on using.
func (s *Server) keeps(cfg *config.Config) map[*bound]bool {
	kept := make(map[*bound]bool)
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
func (n *next) listen() error {
	for _, heir := range n.heirs {
		others := make([]*socketlistener.Listener, len(heir.beside))
		for i, b := range heir.beside {
			others[i] = b.listener
		}
		if err := heir.listener.Start(others...); err != nil {
			return err
		}
	}
	return nil
}

// heirsOf returns the sockets that take the place of one.
func (n *next) heirsOf(b *bound) (list []*bound) {
	for _, heir := range n.heirs {
		if slices.Contains(heir.beside, b) {
			list = append(list, heir)
		}
	}
	return list
}

// replaceBound has others accept at an address instead of a socket, and closes that when
// those who have begun to connect to it are there. Its sessions stay: they are the heir's.
func (s *Server) replaceBound(key string, b *bound, heirs []*bound) {
	if s.binds[key] == b {
		delete(s.binds, key)
	}
	b.former.Store(true)
	addresses := make([]string, len(heirs))
	for i, heir := range heirs {
		addresses[i] = heir.listener.Addr()
	}
	s.tellUnchanged(b, b.listener.Yield())
	s.log.Info("another socket listens instead", "listener", b.owner, "address", b.listener.Addr(), "now", addresses)
	s.bequeath(key, b, heirs)
	if len(s.lingering) >= mostLingering {
		s.part(s.lingering[0])
	}
	s.lingering = append(s.lingering, b)
	b.linger = s.later(handshakeTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.part(b)
	})
}

// bequeath gives the sessions of a socket to the one that takes its place, and those who
// come to it still the same listener as they would have there. If it is several listeners'
// who take its place, those who come have the configuration that was in force when they
// began to connect, and the sessions stay with their listener, if that is one of them.
func (s *Server) bequeath(key string, b *bound, heirs []*bound) {
	i := slices.IndexFunc(heirs, func(heir *bound) bool { return heir.owner == b.owner })
	others := slices.ContainsFunc(heirs, func(heir *bound) bool { return heir.owner != heirs[0].owner })
	if i < 0 && others {
		s.endSessions(key, b)
		return
	}
	heir := heirs[max(i, 0)]
	heir.takeOver(b.sockets())
	if !others {
		b.owner, b.cfg, b.service = heir.owner, heir.cfg, heir.service
		b.door.Store(heir.door.Load())
		b.listening.Replace(heir.service)
	}
}

// part closes a socket that lingers, after those who wait there.
func (s *Server) part(b *bound) {
	if i := slices.Index(s.lingering, b); i >= 0 {
		s.lingering = slices.Delete(s.lingering, i, i+1)
		s.forgo(b.linger)
		s.empty(b)
	}
}

// stopLingering ends it for those that may be in the way of an address: a second change came
// so soon.
func (s *Server) stopLingering(at socket.Address) {
	for _, b := range slices.Clone(s.lingering) {
		if b.samePort(at) {
			s.part(b)
		}
	}
}

// unshare has the addresses of a change be had by nobody else any more.
func (s *Server) unshare(n *next) {
	for _, b := range n.shared {
		s.tellUnchanged(b, b.listener.Share(false))
	}
	for _, heir := range n.heirs {
		s.tellUnchanged(heir, heir.listener.Unshare())
	}
}
