package balancer

import (
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/dispatch"
)

// SetAfter has another function than time.AfterFunc call what is to be done after a time.
func (s *Server) SetAfter(after func(time.Duration, func()) *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}

// What is made of parts of a configuration.
var (
	OutlierConfig = outlierConfig
	BreakerConfig = breakerConfig
	BudgetConfig  = budgetConfig
	CheckConfig   = checkConfig
	SetConfig     = setConfig
)

// InForce returns what a listener and an upstream that are in force were made of.
func (s *Server) InForce(listener, upstream string) (*config.Listener, *dispatch.ListenerConfig, *config.Upstream, dispatch.ViewConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, u := s.listeners[listener], s.upstreams[upstream]
	return l.cfg, l.now.Config(), u.cfg, u.view.ViewConfig
}

// Backlog returns what the listening sockets of a listener are asked for.
func (s *Server) Backlog(l *config.Listener) int { return s.socketConfig(l).Backlog }

// Kept returns how many sockets are kept that are not those of the configuration in force,
// and how much is to be done after a time.
func (s *Server) Kept() (sockets, timers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.parted {
		for _, p := range list {
			sockets += p.left
		}
	}
	for _, b := range s.binds {
		sockets += len(b.before)
	}
	return sockets, len(s.timers)
}

// TellDrains logs what parts of the process wait for, as it does when so much time has passed.
func (s *Server) TellDrains(in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellDrains(s.now() + int64(in))
}

// Former returns how many upstreams are remembered that are gone.
func (s *Server) Former() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.former)
}
