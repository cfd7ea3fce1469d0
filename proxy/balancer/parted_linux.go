package balancer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/monitor"
)

// A socket that is given up is kept for as long as it has sessions, and they for as long as
// their upstreams give them. What is kept of it goes with the last of them, and at once if
// there is none: a process that is reloaded often keeps nothing of what it has had.

// A parted is sockets that are closed and whose sessions have their time to drain.
type parted struct {
	key, owner string
	bind       string // where the last of them has listened
	of         []*core.Listening
	left       int // of those, that have sessions, or may get some
	cut        *cutting
	over       atomic.Bool // all of them are cut
	n          int         // that were; under cut's turn
}

// endSessions cuts the sessions of a socket that is gone, and of those that it had taken over
// from, when they have had the time to drain that their upstreams give.
func (s *Server) endSessions(key string, b *bound) {
	p := &parted{key: key, owner: b.owner, bind: b.listener.Addr(), of: b.sockets()}
	if p.left = len(p.of); p.left == 0 {
		return
	}
	of := p.of
	cut := func(chosen func() bool, last bool) {
		p.over.Store(last)
		p.n += s.group.CutMatching(func(l *core.Listening, _ core.Bond) bool { return slices.Contains(of, l) && chosen() }, errListenerGone)
		if last {
			s.tellParted(p)
		}
	}
	within := s.drainTime(b.cfg)
	if within <= 0 {
		s.aside(func() { cut(func() bool { return true }, true) })
		return
	}
	p.cut = s.cutAfter(within, cut)
	s.tellWaits(p.cut, p.waits)
	s.parted[key] = append(s.parted[key], p)
	for _, l := range p.of {
		l.Of.(*bound).parted = p
	}
}

// waits is what p's cutting waits for.
func (p *parted) waits() *monitor.Line {
	sessions := int64(0)
	for _, l := range p.of {
		sessions += l.Clients()
	}
	if sessions == 0 {
		return nil
	}
	return &monitor.Line{Listener: p.owner, Name: p.bind, Count: sessions, Attrs: []any{"listener", p.owner, "address", p.bind}}
}

// tellParted logs how many sessions were cut.
func (s *Server) tellParted(p *parted) {
	if p.n > 0 {
		s.log.Info("sessions cut", "listener", p.owner, "sessions", p.n, "cause", errListenerGone)
		p.n = 0
	}
}

// sockets gives away the sockets whose sessions are b's, its own and those that it has taken
// over from, as far as any has sessions or may get some.
func (b *bound) sockets() []*core.Listening {
	of := append(b.before, b.listening)
	b.before = nil
	return slices.DeleteFunc(of, func(l *core.Listening) bool { return l.Of.(*bound).deserted.Load() })
}

// takeOver makes the sessions of sockets b's.
func (b *bound) takeOver(of []*core.Listening) {
	for _, l := range of {
		if from := l.Of.(*bound); !from.deserted.Load() {
			from.parted, from.heir = nil, b
			b.before = append(b.before, l)
		}
	}
}

// rejoin gives a socket that listens at an address again the sessions of those that did so
// before for the same listener, and that are not to be cut any more.
func (s *Server) rejoin(key string, b *bound) {
	for _, p := range slices.Clone(s.parted[key]) {
		if p.owner == b.owner {
			s.forgetParted(p)
			if !p.over.Load() {
				b.takeOver(p.of)
			}
		}
	}
}

// forgetParted has nothing kept of sockets that are closed, nor their sessions cut.
func (s *Server) forgetParted(p *parted) {
	s.callOff(p.cut)
	s.parted[p.key] = slices.DeleteFunc(s.parted[p.key], func(other *parted) bool { return other == p })
	if len(s.parted[p.key]) == 0 {
		delete(s.parted, p.key)
	}
}

// desertions are sockets that are closed and have no sessions any more, found out by whichever
// loop: what is kept of them goes elsewhere.
type desertions struct {
	mu   sync.Mutex
	list []*bound
}

// desert notes one.
func (s *Server) desert(b *bound) {
	b.deserted.Store(true)
	s.deserted.mu.Lock()
	s.deserted.list = append(s.deserted.list, b)
	s.deserted.mu.Unlock()
	s.wakeTend()
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
	for _, b := range list {
		if p := b.parted; p != nil {
			if p.left--; p.left == 0 {
				s.forgetParted(p)
				s.aside(func() { p.cut.settled(func() { s.tellParted(p) }) })
			}
		}
		if h := b.heir; h != nil {
			replaced = true
			h.before = slices.DeleteFunc(h.before, func(l *core.Listening) bool { return l == b.listening })
		}
		b.parted, b.heir = nil, nil
	}
	s.parting = slices.DeleteFunc(s.parting, (*bound).gone)
	if replaced {
		s.look()
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
