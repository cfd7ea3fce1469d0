package server

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// CollectorTLS is collectorTLS.
var CollectorTLS = collectorTLS

// SetAfter replaces time.AfterFunc for the server's timers.
func (s *Server) SetAfter(after func(time.Duration, func()) *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = after
}

// SetWall replaces time.Now for denials.
func (s *Server) SetWall(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denials.clock = now
}

// LogHealth logs a transition of so long ago. today replaces time.Now as the machine's clock; step is called when the server has
// started.
func LogHealth(log *slog.Logger, ago time.Duration, today func() time.Time, step func()) {
	um := &upstreamManager{core: &core{clock: newClock(today), lines: monitor.NewLines(log)}}
	step()
	um.logHealth(health.Transition{Subject: "endpoint u/a", State: "down", Time: um.now() - int64(ago)})
}

// Conversions of parts of a configuration.
var (
	OutlierConfig = outlierConfig
	BreakerConfig = breakerConfig
	BudgetConfig  = budgetConfig
	CheckConfig   = checkConfig
	ProbeConfig   = probeConfig
	SetConfig     = setConfig
)

// InForce returns the configuration of a listener and an upstream that are in force.
func (s *Server) InForce(listener, upstream string) (*config.Listener, *router.ListenerConfig, *config.Upstream, router.SnapshotConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, u := s.listeners[listener], s.upstreams[upstream]
	return l.cfg, l.now.Config(), u.cfg, u.snapshot.SnapshotConfig
}

// Backlog returns the configured backlog of a listener's sockets.
func (s *Server) Backlog(l *config.Listener) int { return s.sockets.socketConfig(l).Backlog }

// Kept returns the number of sockets kept beyond the configuration in force, and the number of
// pending timers.
func (s *Server) Kept() (sockets, timers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.removed.drainingSockets("") {
		sockets += p.left
	}
	for _, socket := range s.binds {
		sockets += len(socket.before)
	}
	return sockets, len(s.timers)
}

// AgeAnswers makes the answers of discovery that are kept older.
func (s *Server) AgeAnswers(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.upstreamManager.lastAnswers {
		a := &s.upstreamManager.lastAnswers[i]
		a.until = a.until.Add(-by)
	}
}

// CutAfter begins a drain. cut gets whether the drain is over for sessions that begin during the step.
func (s *Server) CutAfter(within time.Duration, cut func(over, last bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var k *cutJob
	k = s.drains.cutAfter(within, func(_ func() bool, last bool) { cut(k.over.Load(), last) }, func() *monitor.Line { return nil })
}

// ReadOverflows replaces the reading of the network namespace's overflow count.
func (s *Server) ReadOverflows(read func() (uint64, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets.overflow = namespaceCount{read: read}
}

// SocketDrops returns the drops that the listening sockets themselves counted, as of the last
// look.
func (s *Server) SocketDrops() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, socket := range s.binds {
		sum += int64(socket.overflows.drops)
	}
	return sum
}

// TellDrains logs which sessions the draining parts of the process wait for, as if the time had
// passed.
func (s *Server) TellDrains(in time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drains.logDrains(s.now() + int64(in))
}

// Observe looks at the counters as if the time had passed.
func (s *Server) Observe(in time.Duration) { s.watcher.observe(s.now()+int64(in), false) }

// Former returns how many removed upstreams are remembered.
func (s *Server) Former() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.removed.upstreams)
}

// WatchStalls is watchStalls.
var WatchStalls = watchStalls

// ApplyWith is Apply, and calls a function when clients find the endpoints of the change, before the sockets serve
// by its listeners.
func (s *Server) ApplyWith(ctx context.Context, cfg *config.Config, between func()) error {
	return s.applyAt(ctx, cfg, swappedUpstreams, between)
}

// ApplyCommitted is Apply, and calls a function when the listeners of the change are in force, and the sockets have
// those before.
func (s *Server) ApplyCommitted(ctx context.Context, cfg *config.Config, between func()) error {
	return s.applyAt(ctx, cfg, committedListeners, between)
}

// LookForRoom has all sockets that wait for room look whether there is some, and returns when they have.
func (s *Server) LookForRoom(ctx context.Context) error {
	s.group.SetMaxConnections(s.options.MostConnections(s.cfg))
	return s.group.Settle(ctx)
}

func (s *Server) applyAt(ctx context.Context, cfg *config.Config, stage swapStage, call func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.newChange(cfg)
	if err := s.prepare(ctx, n); err != nil {
		return err
	}
	before := s.cfg
	s.swapWith(n, func(at swapStage) {
		if at == stage {
			call()
		}
	})
	s.settle(n)
	s.liveChanges.noteLives(before, &n.lives)
	return nil
}

// CountedSources returns how many of a listener's clients are counted by their source.
func (s *Server) CountedSources(listener string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[listener].sources.Stats().Connections
}

// AgeDenials has the latest denial be a minute old.
func (s *Server) AgeDenials() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denials.latest -= int64(time.Minute)
}

// DrainEndpoint drains an endpoint by [Server.ChangeEndpoint], or takes that back.
func (s *Server) DrainEndpoint(upstream, endpoint string, drain bool, by string) error {
	what := admin.EndpointReady
	if drain {
		what = admin.EndpointDrain
	}
	_, err := s.ChangeEndpoint(&admin.EndpointChange{What: what, Upstream: upstream, Endpoint: endpoint}, by)
	return err
}

// SetWeight changes a weight by [Server.ChangeEndpoint].
func (s *Server) SetWeight(upstream, endpoint string, weight int, by string) error {
	_, err := s.ChangeEndpoint(&admin.EndpointChange{What: admin.EndpointWeight, Upstream: upstream, Endpoint: endpoint, Weight: weight}, by)
	return err
}

// Held holds the objects of the configuration in force, each by its name.
type Held struct {
	Services map[string]*worker.Service
	Views    map[string]*router.UpstreamSnapshot
	Sets     map[string]*lb.Set
}

// Equal reports whether they are the same.
func (h Held) Equal(o Held) bool {
	return maps.Equal(h.Services, o.Services) && maps.Equal(h.Views, o.Views) && maps.Equal(h.Sets, o.Sets)
}

// Held returns the objects of the configuration in force.
func (s *Server) Held() Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Held{map[string]*worker.Service{}, map[string]*router.UpstreamSnapshot{}, map[string]*lb.Set{}}
	for name, l := range s.listeners {
		for _, socket := range s.binds.at(l.keys) {
			h.Services[name] = socket.listening.Service()
		}
	}
	for name, u := range s.upstreams {
		h.Views[name], h.Sets[name] = u.snapshot, u.snapshot.Set()
	}
	return h
}

// Judged returns how many endpoints of an upstream are judged.
func (s *Server) Judged(upstream string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, n := s.upstreams[upstream].outlier.Ejected()
	return n
}

// Barred reports whether an endpoint is barred by its checks.
func (s *Server) Barred(upstream, endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upstreams[upstream].members[endpoint].endpoint.State().Barred
}

// Knows reports whether an upstream knows an endpoint at an address, even if it is not a member.
func (s *Server) Knows(upstream, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	up := s.upstreams[upstream].router
	e, made, err := up.Endpoint(address, sockopt.Address{Network: "tcp", Name: address}, lb.EndpointConfig{ID: address})
	if made {
		up.Forget(e, nil)
	}
	return err == nil && !made
}

// Descriptor returns the descriptor of a listener's first socket.
func (s *Server) Descriptor(listener string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.binds[s.listeners[listener].keys[0]].fd
}
