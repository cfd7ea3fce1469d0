package server

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// Metrics fills in an empty sample, but for its version and the state of the configuration. It waits for
// the loops, which give it a part of each turn.
func (s *Server) Metrics(m *metrics.Sample) {
	s.group.Metered(func(total worker.Summary, running map[worker.Binding]*worker.Bytes) {
		s.measure(m, &total, router.NewRunning(running))
	})
}

func (s *Server) measure(m *metrics.Sample, total *worker.Summary, running *router.Running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Process = metrics.Process{
		Draining: s.closing, Summary: s.summarize(total), Traces: s.tracesStatus(), Counters: s.counters(total), Refused: total.Refusals.EveryCount(),
		ConnectionsMost: int64(s.maxConnections(s.cfg)), TLSActive: int64(s.tls.Sessions()), TLSMost: int64(s.tls.Max()),
	}
	if s.pipes != nil {
		page := int64(os.Getpagesize())
		st := s.pipes.Stats()
		m.Process.Pipes = metrics.PipeBudget{Bytes: st.BudgetPages * page, UsedBytes: st.UsedPages * page, Denied: st.Denied}
	}
	m.Config.Restart = len(s.lasting())
	m.Config.Prepared = time.Duration(s.changes.PreparedUs) * time.Microsecond
	m.Config.Swapped = time.Duration(s.changes.SwappedUs) * time.Microsecond
	for i := range total.Loops {
		l := &total.Loops[i]
		m.Loops = append(m.Loops, metrics.Loop{Loop: m.Process.Summary.Loops[i], Turns: l.Lag[:], Late: l.TimerLate[:], Measured: s.options.TurnCPU})
	}
	for _, name := range slices.Sorted(maps.Keys(s.listeners)) {
		m.Listeners = append(m.Listeners, s.measureListener(s.listeners[name], name, running))
	}
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		u := s.upstreams[name]
		m.Upstreams = append(m.Upstreams, s.measureUpstream(u, running))
		of := &m.Upstreams[len(m.Upstreams)-1]
		for _, e := range u.order {
			p := s.measureEndpoint(e, name, running)
			of.Active += p.Active
			of.States[p.State]++
			m.Endpoints = append(m.Endpoints, p)
		}
		for _, e := range u.leaving {
			of.Active += int64(e.endpoint.Active())
		}
	}
}

func (s *Server) measureListener(l *listener, name string, running *router.Running) metrics.Listener {
	c := l.state.Counts()
	m := metrics.Listener{
		Name: name, State: admin.Serving, Accepted: c.Accepted, Active: c.Active, Most: l.state.Connections.Max(),
		Bytes: bytesOf(l.state.Bytes(), running.Listeners[l.state]), Refused: l.state.EveryRefusal(), Pauses: l.state.PauseCounts(),
		Tally: l.state.Tally(), Limited: l.state.Limited(), Mirrors: l.mirrorStatus(l.state.Mirrors().Totals(true)), Rewrites: l.rewriteStatus(true), Filters: l.filterStatus(true, nil), Protocols: l.state.Spoken(),
	}
	m.Cancels = l.cancelStatus()
	m.KeyedBy, m.Keyed = l.measureKeys(running)
	switch {
	case l.drained, s.closing:
		m.State = admin.Draining
	case l.state.PausedAt(&s.connectRate, s.now()) != "":
		m.State = admin.Paused
	}
	for _, key := range l.keys {
		if socket := s.binds[key]; socket != nil {
			m.Queues = append(m.Queues, s.queueOf(socket))
		}
	}
	if l.tls != nil {
		m.Handshakes, m.Certificates = handshakes(l.stats), certificates(l.tls.Lifetimes())
	}
	return m
}

func (s *Server) measureUpstream(u *upstream, running *router.Running) metrics.Upstream {
	c := u.router.Counts()
	m := metrics.Upstream{
		Name: u.cfg.Name, Waiting: int64(u.router.Waiting()),
		Retries: c.Retries, RetriesDenied: u.budget.Denied(), Queued: c.Queued, Held: c.Held, LastResort: c.LastResort,
		Fallbacks: c.Fallbacks, Failures: c.Failures, Unkeyed: c.Unkeyed,
		Bytes:   bytesOf(u.router.Bytes(), running.Upstreams[u.router]),
		Refused: u.router.Refusals().Every(), LocalFaults: u.router.LocalCauses(), Tally: u.router.Tally(), Limited: u.router.Limited(),
		States: make(map[admin.State]int64),
	}
	m.Panic, m.Panics = u.router.Panic()
	if u.outlier != nil {
		m.EjectionsWithheld = u.outlier.Withheld()
	}
	if u.breaker != nil {
		m.Breaker, m.Opened = u.breaker.State().String(), u.breaker.Opened()
		m.Connections, m.Pending = u.breaker.Load()
		if b := u.cfg.CircuitBreaker; b != nil {
			m.Most, m.MostPending = b.Connections, b.Pending
		}
	}
	if u.tls != nil {
		m.Handshakes, m.Certificates = handshakes(u.stats), certificates(u.tls.Lifetimes())
	}
	if u.source != nil {
		st := u.source.Status()
		m.Discovery = &metrics.Discovery{Kind: st.Kind, Confirmed: st.Confirmed, Failures: st.Failures, Stale: st.Stale}
	}
	return m
}

func (s *Server) measureEndpoint(m *member, upstream string, running *router.Running) metrics.Endpoint {
	e, state := m.endpoint, m.endpoint.State()
	p := metrics.Endpoint{
		Upstream: upstream, Name: m.spec.Identity(), State: admin.Up,
		Active: int64(e.Active()), Most: int64(e.Limit()), Weight: int64(e.Weight()), Sessions: e.Total(), Failures: e.Failures(),
		Transitions: e.Transitions(), Ejections: e.Ejections(),
		Bytes: bytesOf(e.Bytes(), running.Endpoints[e]), Tally: e.Tally(), Limited: e.Limited(), Answers: e.Answers().Times(),
	}
	_, p.Answered = e.Answers().Sum()
	if m.breaker != nil {
		p.BreakerHas, p.Broken = m.breaker.Opened(), m.breaker.State() != health.Closed
	}
	switch {
	case m.mode == config.Maint:
		p.State = admin.Maint
	case state.Draining:
		p.State = admin.Draining
	case state.Down:
		p.State = m.downState()
	case state.Ejected:
		p.State = admin.Ejected
	}
	return p
}
