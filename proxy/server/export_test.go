package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/router"
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
func (s *Server) InForce(listener, upstream string) (*config.Listener, *router.ListenerConfig, *config.Upstream, router.SnapshotConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, u := s.listeners[listener], s.upstreams[upstream]
	return l.cfg, l.now.Config(), u.cfg, u.view.SnapshotConfig
}

// Backlog returns what the listening sockets of a listener are asked for.
func (s *Server) Backlog(l *config.Listener) int { return s.socketConfig(l).Backlog }

// Kept returns how many sockets are kept that are not those of the configuration in force,
// and how much is to be done after a time.
func (s *Server) Kept() (sockets, timers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.draining {
		for _, p := range list {
			sockets += p.left
		}
	}
	for _, b := range s.binds {
		sockets += len(b.before)
	}
	return sockets, len(s.timers)
}

// ReadOverflows has the overflows of the network namespace read in another way.
func (s *Server) ReadOverflows(read func() (uint64, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watcher.namespace = namespaceCount{read: read}
}

// SocketDrops returns what the listening sockets themselves have counted, as of the last look.
func (s *Server) SocketDrops() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.binds {
		sum += int64(b.overflows.drops)
	}
	return sum
}

// TellDrains logs what parts of the process wait for, as it does when so much time has passed.
func (s *Server) TellDrains(in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logDrains(s.now() + int64(in))
}

// Former returns how many upstreams are remembered that are gone.
func (s *Server) Former() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.former)
}

// WatchStalls is stallWatch for tests.
func WatchStalls(log *slog.Logger, alive func(ctx context.Context) error, stop <-chan struct{}) {
	(&stallWatch{log, alive}).run(stop)
}

// ChecksFailed returns how many checks of endpoints have failed.
func (s *Server) ChecksFailed() int64 { return int64(s.checker.Stats().Failed) }
