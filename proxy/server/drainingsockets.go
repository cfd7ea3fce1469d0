package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A socket that is given up is kept for as long as it has sessions, and they for as long as
// their upstreams allow. Its state goes with the last of them, and at once if there is none: a
// process that is reloaded often does not grow.

// A drainingSockets is sockets that are closed and whose sessions have their time to drain.
type drainingSockets struct {
	key, owner string
	cause      error  // of the end of the sessions
	bind       string // where the last of them has listened
	of         []*worker.Listening
	left       int // of those, that have sessions, or may get some
	cut        *cutJob
	over       atomic.Bool // all of them are cut
	n          int         // that were; under cut's turn
}

// endSessions cuts the sessions of a socket that is gone, and of those that it had taken over
// from, when they have had the time to drain that their upstreams give.
func (s *Server) endSessions(key string, socket *listenSocket, cause error) {
	p := &drainingSockets{key: key, owner: socket.owner, cause: cause, bind: socket.listener.Addr(), of: socket.sockets()}
	if p.left = len(p.of); p.left == 0 {
		return
	}
	of := p.of
	cut := func(chosen func() bool, last bool) {
		p.over.Store(last)
		p.n += s.group.CutMatching(func(l *worker.Listening, _ worker.Binding) bool { return slices.Contains(of, l) && chosen() }, cause)
		if last {
			s.logDrainingSockets(p)
		}
	}
	within := s.drainTime(socket.cfg)
	if within <= 0 {
		s.goTracked(func() { cut(func() bool { return true }, true) })
		return
	}
	p.cut = s.cutAfter(within, cut)
	s.logWaits(p.cut, p.waits)
	s.draining[key] = append(s.draining[key], p)
	for _, l := range p.of {
		l.Of.(*listenSocket).draining = p
	}
}

// waits returns the line of p's cutting.
func (p *drainingSockets) waits() *monitor.Line {
	sessions := int64(0)
	for _, l := range p.of {
		sessions += l.Clients()
	}
	if sessions == 0 {
		return nil
	}
	return &monitor.Line{Listener: p.owner, Name: p.bind, Count: sessions, Attrs: []any{"listener", p.owner, "address", p.bind}}
}

// logDrainingSockets logs how many sessions were cut.
func (s *Server) logDrainingSockets(p *drainingSockets) {
	if p.n > 0 {
		s.log.Info("sessions cut", "listener", p.owner, "sessions", p.n, "cause", p.cause)
		p.n = 0
	}
}

// sockets returns the sockets whose sessions are b's, its own and those that it has taken
// over, as far as any has sessions or may get some. b has none of others afterwards.
func (socket *listenSocket) sockets() []*worker.Listening {
	of := append(socket.before, socket.listening)
	socket.before = nil
	return slices.DeleteFunc(of, func(l *worker.Listening) bool { return l.Of.(*listenSocket).deserted.Load() })
}

// takeOver makes the sessions of sockets b's.
func (socket *listenSocket) takeOver(listenings []*worker.Listening) {
	for _, l := range listenings {
		if from := l.Of.(*listenSocket); !from.deserted.Load() {
			from.draining, from.successor = nil, socket
			socket.before = append(socket.before, l)
		}
	}
}

// rejoin gives a socket that listens at an address again the sessions of those that did so
// before for the same listener, and that are not to be cut any more.
func (s *Server) rejoin(key string, socket *listenSocket) {
	for _, p := range slices.Clone(s.draining[key]) {
		if p.owner == socket.owner {
			s.forgetParted(p)
			if !p.over.Load() {
				socket.takeOver(p.of)
			}
		}
	}
}

// forgetParted has nothing kept of sockets that are closed, nor their sessions cut.
func (s *Server) forgetParted(p *drainingSockets) {
	s.callOff(p.cut)
	s.draining[p.key] = slices.DeleteFunc(s.draining[p.key], func(other *drainingSockets) bool { return other == p })
	if len(s.draining[p.key]) == 0 {
		delete(s.draining, p.key)
	}
}

// abandonments are sockets that are closed and have no sessions any more, found by any loop:
// their state is released elsewhere.
type abandonments struct {
	mu   sync.Mutex
	list []*listenSocket
}

// abandonSockets notes one.
func (s *Server) abandonSockets(socket *listenSocket) {
	socket.deserted.Store(true)
	s.deserted.mu.Lock()
	s.deserted.list = append(s.deserted.list, socket)
	s.deserted.mu.Unlock()
	s.wakeDrainDown()
}

// forgetDeserted has nothing kept of those.
func (s *Server) forgetDeserted() {
	s.deserted.mu.Lock()
	list := s.deserted.list
	s.deserted.list = nil
	s.deserted.mu.Unlock()
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	replaced := false
	for _, socket := range list {
		if p := socket.draining; p != nil {
			if p.left--; p.left == 0 {
				s.forgetParted(p)
				s.goTracked(func() { p.cut.settled(func() { s.logDrainingSockets(p) }) })
			}
		}
		if h := socket.successor; h != nil {
			replaced = true
			h.before = slices.DeleteFunc(h.before, func(l *worker.Listening) bool { return l == socket.listening })
		}
		socket.draining, socket.successor = nil, nil
	}
	s.parting = slices.DeleteFunc(s.parting, (*listenSocket).gone)
	s.givenUp = slices.DeleteFunc(s.givenUp, func(o *listenSocket) bool { return o.deserted.Load() })
	if replaced {
		s.refreshView()
	}
}

// drainTime is how long the sessions of a listener may go on without it.
func (s *Server) drainTime(cfg *config.Listener) time.Duration {
	return cfg.DrainTime(func(name string) *config.Upstream {
		if u := s.upstreams[name]; u != nil {
			return u.cfg
		}
		return nil
	})
}
