package server

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/state"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

var _ admin.Balancer = (*Server)(nil)

// Status implements [admin.Balancer].
func (s *Server) Status() admin.Status {
	var m metrics.Sample
	s.sockets.findPaths()
	s.sample(&m, true)
	st := m.Process.Status
	for i := range m.Listeners {
		st.Listeners = append(st.Listeners, m.Listeners[i].Listener)
	}
	for i := range m.Upstreams {
		st.Upstreams = append(st.Upstreams, m.Upstreams[i].Upstream)
	}
	return st
}

// Metrics fills in an empty sample, except for its version and the state of the configuration. It waits for the loops.
func (s *Server) Metrics(m *metrics.Sample) { s.sample(m, false) }

// sample fills in an empty sample, from which status, page, metrics and top are made. If detail is set, it adds the
// reasons in words, which only a status has.
func (s *Server) sample(m *metrics.Sample, detail bool) {
	s.group.Metered(func(total worker.Summary, running map[worker.Binding]*worker.Bytes) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := s.reader(router.NewRunning(running), detail)
		s.readProcess(m, &total, detail)
		if !detail {
			endpoints := 0
			for _, u := range s.upstreams {
				endpoints += len(u.order)
			}
			m.Endpoints = slices.Grow(m.Endpoints, endpoints)
		}
		for _, l := range m.Process.Loops {
			m.Loops = append(m.Loops, metrics.Loop{Loop: l, Measured: s.options.TurnCPU})
		}
		for _, name := range slices.Sorted(maps.Keys(s.listeners)) {
			m.Listeners = append(m.Listeners, r.listener(name, s.listeners[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
			r.upstream(s.upstreams[name], m)
		}
		if detail { // the status does not have it
			return
		}
		routed := s.routed()
		for i := range m.Upstreams {
			m.Upstreams[i].Routed = routed[m.Upstreams[i].Name]
		}
	})
}

// routed returns the upstreams that get clients of listeners, or copies of their bytes, or would get them as a fallback.
func (r *registry) routed() map[string]bool {
	all := make(map[string]bool)
	add := func(name string) {
		for u := r.upstreams[name]; u != nil && !all[name]; u = r.upstreams[name] {
			if all[name] = true; u.cfg.Fallback == nil {
				return
			}
			name = u.cfg.Fallback.Upstream
		}
	}
	for _, l := range r.listeners {
		for _, name := range slices.Concat([]string{l.cfg.Upstream}, l.cfg.Mirrors(), l.cfg.FilteredTo()) {
			add(name)
		}
		for i := range l.cfg.Routes {
			add(l.cfg.Routes[i].Upstream)
			for j, share := range l.cfg.Routes[i].Split {
				if l.shares[i].now[j] > 0 {
					add(share.Upstream)
				}
			}
		}
	}
	return all
}

func (s *Server) readProcess(m *metrics.Sample, total *worker.Summary, detail bool) {
	st := &m.Process.Status
	st.State, st.Changes, st.Summary = admin.Serving, s.changes, s.summarize(total)
	if s.closing {
		st.State, st.DrainEnds = admin.Draining, s.drainEnds
	}
	st.Restart, st.Traces, st.Counters = s.placement.lasting(s.cfg, s.lanes), s.traceExport.tracesStatus(s.cfg), s.counters(total)
	st.Connections.Most = int64(s.options.MostConnections(s.cfg))
	st.TLSSessions = admin.TLSSessions{Active: int64(s.tls.Sessions()), Most: int64(s.tls.Max())}
	if !detail {
		m.Process.Refusals = s.host.refusals.Every()
		return
	}
	s.sessionLog.recentSessionLog(st.SessionLog, s.watcher.sums)
	st.AcceptPausesLastMinute = s.watcher.sums.Recent(s.now(), s.host, pausedLine)
	st.Live, st.StateFile, st.DeniedByHand = s.liveChanges.liveStatus(), s.liveChanges.stateFile(), s.denials.status()
	st.RemovedWaiting, st.ClosedListeners = s.waitingForRemoved(), s.removed.closed()
	st.RemovedSessions, st.RemovedUntil = s.removed.sessions()
}

// counters returns the values that never fall, by name. The server's mu is held.
func (s *Server) counters(total *worker.Summary) map[string]int64 {
	c := map[string]int64{
		"accepted": total.Accepted, "refused": total.Refused, "lost": total.Totals.Lost,
		"accept_pauses": s.host.paused.Load(), "transitions": s.upstreamManager.scheduler.Transitions.Load(),
	}
	for i := range total.Loops {
		c["hellos_missing"] += total.Loops[i].HellosMissing
	}
	s.removed.counts.AddSums(c)
	for _, u := range s.upstreams {
		counts := u.router.Counts()
		counts.AddSums(c)
	}
	return c
}

// Counter returns a value that never falls, by its name in the status.
func (s *Server) Counter(name string) (value int64, known bool) {
	total := s.group.Summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	value, known = s.counters(&total)[name]
	return value, known
}

// Summary returns the counters and resources.
func (s *Server) Summary() admin.Summary {
	total := s.group.Summary()
	return s.summarize(&total)
}

func (s *Server) summarize(total *worker.Summary) admin.Summary {
	stats := s.relay.Stats()
	fallbacks := make(map[string]int64)
	for reason, n := range total.Totals.Fallbacks.All() {
		fallbacks[reason.String()] = n
	}
	sum := admin.Summary{
		Connections: admin.Connections{Accepted: total.Accepted, Active: total.Active, Refused: total.Refused, Left: total.Left},
		RefusedBy:   s.host.refusals.ByReason(false),
		Bytes:       total.Totals.Bytes,
		Lost:        total.Totals.Lost,
		Fallbacks:   fallbacks,
		Lane:        s.lanes.Status(),
		Pauses:      gcPauses(),

		AcceptPauses: s.host.paused.Load(), Goroutines: int64(runtime.NumGoroutine()),
	}
	tally.Fill(&sum.Pipes, &stats.Pipes)
	tally.Fill(&sum.Engine, &stats.Drivers)
	tally.Fill(&sum.Arena, &total.Arena, &stats.Drivers)
	if cpus, err := topology.AllowedCPUs(); err == nil { // all threads have the same CPUs, unless another program has changed that
		sum.CPUs = cpus.String()
	}
	sum.SessionLog = s.sessionLog.sessionLogCounts()
	describeMemory(&sum.Arena, s.group.Memory())
	for i := range total.Loops {
		l := &total.Loops[i]
		sum.Loops = append(sum.Loops, admin.Loop{Index: i, LoopCounts: l.LoopCounts, Lag: occurred(l.Lag[:]), TimerLate: occurred(l.TimerLate[:])})
		tally.Fill(&sum.Loops[i], &l.Stats)
	}
	return sum
}

// occurred returns counts without the zeros at their end, never nil.
func occurred(counts []int64) []int64 {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	return append([]int64{}, counts...)
}

// gcPauses reads the runtime's histogram of pauses. The maximum is the upper end of the last
// bucket that is not empty.
func gcPauses() (p admin.Pauses) {
	sample := []runtimemetrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	runtimemetrics.Read(sample)
	if sample[0].Value.Kind() != runtimemetrics.KindFloat64Histogram {
		return p
	}
	h := sample[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		p.GC += int64(n)
		most := h.Buckets[i+1]
		if math.IsInf(most, 1) {
			most = h.Buckets[i]
		}
		p.GCMaxUs = int64(math.Ceil(most * 1e6))
	}
	return p
}

// A reader reads the parts of a server into a sample. It changes nothing. The server's mu is held.
type reader struct {
	*core
	detail     bool            // reasons in words, for a status; otherwise counts by reason include reasons that did not occur, for metrics
	running    *router.Running // bytes of the sessions that run
	rate       *limit.Rate     // of the whole process
	watcher    *watcher
	unresolved map[string]error // why endpoints' names without a check did not resolve the last time
	live       manual
	denials    *denials
}

func (s *Server) reader(running *router.Running, detail bool) *reader {
	r := &reader{
		core: s.core, detail: detail, running: running, rate: &s.connectRate,
		watcher: s.watcher, live: s.liveChanges.live, denials: s.denials,
	}
	if failed := s.upstreamManager.unresolved.Load(); failed != nil {
		r.unresolved = *failed
	}
	return r
}

func (r *reader) recent(key any, line string) int64 { return r.watcher.sums.Recent(r.now(), key, line) }

func (r *reader) listener(name string, l *listener) metrics.Listener {
	m := metrics.Listener{Listener: admin.Listener{
		Name: name, State: admin.Serving, Reasons: l.state.Refusals.ByReason(false), FastOpen: l.cfg.Socket.FastOpen,
		Connections: admin.Connections{Accepted: l.state.Accepted.Load(), Active: l.state.Connections.InUse(), Most: l.state.Connections.Max()},
		Bytes:       bytesOf(l.state.Bytes(), r.running.Listeners[l.state]),
		Pauses:      l.state.Pauses.ByReason(false), Mirrors: l.mirrorStatus(l.state.Mirrors.Totals(!r.detail)), Rewrites: l.rewriteStatus(!r.detail),
		Cancels: l.cancelStatus(), Protocols: l.state.Spoken.ByReason(false),
	}}
	if l.tls != nil {
		m.Handshakes, m.Certificates = handshakes(l.stats), certificates(l.tls.Lifetimes())
	}
	switch {
	case l.drained, r.closing:
		m.State, m.DrainedByHand = admin.Draining, l.drained
	default:
		if m.PausedAt = l.state.PausedAt(r.rate, r.now()); m.PausedAt != "" {
			m.State = admin.Paused
		}
	}
	for _, socket := range r.binds.at(l.keys) {
		m.Queues = append(m.Queues, r.queue(socket))
	}
	if r.detail {
		r.describeListener(name, l, &m.Listener)
		return m
	}
	m.Filters = l.filterStatus(true, nil)
	m.Refused, m.Tally, m.Seconds = l.state.Refusals.Every(), l.state.Tally(), l.state.Limited()
	m.KeyedBy, m.Keyed = l.measureKeys(r.running)
	return m
}

// describeListener adds the parts that metrics do not have.
func (r *reader) describeListener(name string, l *listener, st *admin.Listener) {
	st.RefusesAll, st.Limited = l.cfg.RefusesAll(), limited(l.state.Limited())
	st.Filters = l.filterStatus(false, func(of any) int64 { return r.recent(of, unansweredLine) })
	st.DeniedByHand = r.listenerDenials(name, l.state)
	for _, n := range st.Reasons {
		st.Connections.Refused += n
	}
	if l.tls != nil {
		st.AuthoritiesRefused = textOf(l.tls.AuthoritiesRefused())
	}
	st.Congestion = r.congestion(l)
	for _, socket := range r.binds.at(l.keys) {
		st.Addresses = append(st.Addresses, socket.listener.Addr())
	}
	for _, at := range l.cfg.Bind {
		if list := r.binds.of(l.cfg, at); len(list) > 0 {
			active := int64(0)
			for _, socket := range list {
				active += socket.listening.Clients() + clientsOf(socket.before)
			}
			st.Binds = append(st.Binds, admin.Bind{Bind: at.String(), Active: active})
		}
	}
	for i := range l.cfg.Routes {
		st.Routes = append(st.Routes, l.routeStatus(i))
	}
	if l.cfg.Upstream != "" {
		st.Routes = append(st.Routes, admin.Route{To: map[string]float64{l.cfg.Upstream: 100}})
	}
}

// clientsOf counts the clients that came in at sockets.
func clientsOf(list []*worker.Listening) (n int64) {
	for _, l := range list {
		n += l.Clients()
	}
	return n
}

func handshakes(s *tlsterm.Stats) *admin.Handshakes {
	return &admin.Handshakes{HandshakeCounts: s.Counts(), Failed: s.Failed.ByReason(false)}
}

func (l *listener) routeStatus(i int) admin.Route {
	r := &l.cfg.Routes[i]
	to := map[string]float64{}
	if r.Upstream != "" {
		to[r.Upstream] = 100
	}
	for j, share := range r.Split {
		to[share.Upstream] = l.shares[i].now[j]
	}
	return admin.Route{Match: r.Match.Text(), To: to}
}

func (r *reader) upstream(u *upstream, to *metrics.Sample) {
	m := metrics.Upstream{
		Upstream: admin.Upstream{
			Name: u.cfg.Name, Pending: int64(u.router.Waiting()), PendingEndpoint: int64(u.router.Held()), UpstreamCounts: u.router.Counts(), RetriesDenied: u.budget.Denied(),
			Bytes: bytesOf(u.router.Bytes(), r.running.Upstreams[u.router]), LocalFaults: u.router.LocalFaults.ByReason(false),
		},
		Tally: u.router.Tally(), States: make(map[admin.State]int64),
	}
	made := &m.Tally.Connects
	m.Connects = admin.Connects{Made: made.Count(), SumUs: made.Sum.Microseconds(), Buckets: made.Buckets[:]}
	m.Panic, m.Panics = u.router.Panic()
	if u.tls != nil {
		m.Handshakes, m.Certificates = handshakes(u.stats), certificates(u.tls.Lifetimes())
	}
	if u.breaker != nil {
		m.Breaker, m.Opened = u.breaker.State().String(), u.breaker.Opened.Load()
		if b := u.cfg.CircuitBreaker; b != nil {
			connections, connecting := u.breaker.Load()
			if b.Connections > 0 {
				m.Connections, m.Most = connections, b.Connections
			}
			if b.Pending > 0 {
				m.Connecting, m.MostConnecting = connecting, b.Pending
			}
		}
	}
	if u.source != nil {
		m.Discovery = discoveryStatus(u.source.Status())
	}
	if u.outlier != nil {
		m.EjectionsWithheld = u.outlier.Withheld.Load()
	}
	if r.detail {
		r.describeUpstream(u, &m.Upstream)
	} else {
		m.Refused, m.Seconds = u.router.Refusals.Every(), u.router.Limited()
		if s := u.snapshot; s.Fallback != nil || s.Respond != nil {
			responds := s.Respond != nil
			m.FallbackServes = &responds
		}
		for f := u.snapshot.Fallback; f != nil && !*m.FallbackServes; f = f.Fallback {
			set := f.Set()
			*m.FallbackServes = f.Respond != nil || set != nil && set.Status().Room
		}
		for _, e := range u.order {
			p := r.endpoint(e, u.cfg)
			m.Active += p.Active
			m.States[p.State]++
			to.Endpoints = append(to.Endpoints, p)
		}
		for _, e := range u.leaving {
			m.Active += int64(e.endpoint.Active())
		}
	}
	to.Upstreams = append(to.Upstreams, m)
}

// describeUpstream adds the parts that metrics do not have, and the endpoints, which metrics have
// as a separate list.
func (r *reader) describeUpstream(u *upstream, st *admin.Upstream) {
	st.Balance, st.BalanceOn, st.Reasons, st.Limited = u.cfg.Balance, balanceOn(u.cfg), u.router.Refusals.ByReason(false), limited(u.router.Limited())
	if u.tls != nil {
		st.AuthoritiesRefused = textOf(u.tls.AuthoritiesRefused())
	}
	st.Congestion = u.congestionStatus()
	if f := u.cfg.Fallback; f != nil {
		st.Fallback = f.Upstream
	}
	r.missed(u, st)
	if u.breaker != nil {
		st.BreakerWhy, st.BreakerUntil = r.circuit(u.breaker)
	}
	if n := len(u.refused); n > 0 && st.Discovery != nil {
		st.Discovery.LeftOut, st.Discovery.LeftOutCause = n, u.refused[0]
	}
	by := r.live.Of(u.cfg.Name)
	for _, m := range u.order {
		e := r.endpoint(m, u.cfg).Endpoint
		e.ByHand = byHand(by, m)
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	for _, m := range stillThere(slices.Clone(u.leaving)) {
		e := r.endpoint(m, u.cfg).Endpoint
		e.State, e.Why, e.Until = admin.Removed, "", m.leave.ends()
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	r.removedByHand(u, st)
}

// state returns the state of a member, and of its breaker unless that is closed.
func (m *member) state() (state admin.State, breaker string) {
	if m.breaker != nil && m.breaker.State() != health.Closed {
		breaker = m.breaker.State().String()
	}
	is := m.endpoint.State()
	switch {
	case m.mode == config.Maint:
		return admin.Maint, breaker
	case is.Draining:
		return admin.Draining, breaker
	case is.Down && m.check != nil && m.check.Status().Standby:
		return admin.Standby, breaker
	case is.Down:
		return admin.Down, breaker
	case is.Ejected:
		return admin.Ejected, breaker
	}
	return admin.Up, breaker
}

func (r *reader) endpoint(m *member, u *config.Upstream) metrics.Endpoint {
	e := m.endpoint
	p := metrics.Endpoint{Upstream: u.Name, Tally: e.Tally(), Endpoint: admin.Endpoint{
		Name: m.spec.Identity(), Address: m.spec.Address, Weight: e.Weight(),
		Active: int64(e.Active()), Max: int64(e.Limit()), Picked: int64(e.Picked()),
		EndpointCounts: e.Counts(), Bytes: bytesOf(e.Bytes(), r.running.Endpoints[e]),
	}}
	if m.breaker != nil {
		p.Opened = m.breaker.Opened.Load()
	}
	p.State, p.Breaker = m.state()
	if r.detail {
		if until := e.SlowUntil(u.SlowStart); until > 0 && p.State == admin.Up {
			p.SlowUntil = r.wall(until)
		}
		r.describeEndpoint(m, &p)
		return p
	}
	p.Seconds, p.AnswerTimes = e.Limited(), e.Answers().Times()
	_, p.Answered = e.Answers().Sum()
	return p
}

// describeEndpoint adds the parts that metrics do not have.
func (r *reader) describeEndpoint(m *member, p *metrics.Endpoint) {
	e, st := m.endpoint, &p.Endpoint
	st.Zone, st.Backup, st.Limited = m.spec.Zone, m.spec.Backup, limited(e.Limited())
	st.Connects = admin.Connects{Made: p.Tally.Connects.Count(), SumUs: p.Tally.Connects.Sum.Microseconds()}
	r.answers(st, e.Answers())
	st.LastFailure, st.Unresolved = r.lastFailure(e), r.whyUnresolved(m)
	if n, since := e.SlowConnects(); n > 0 {
		st.Connecting = &admin.Connecting{Clients: n, Since: r.wall(since)}
	}
	if m.monitor != nil || m.breaker != nil {
		st.Failing = r.failing(e, m.monitor)
	}
	if m.monitor != nil {
		st.EjectionsWithheld, st.WithheldWhy = m.monitor.Withholdings()
		if st.EjectionsWithheldLastMinute = r.recent(m.monitor, withheldLine); st.EjectionsWithheld == 0 {
			st.WithheldWhy = ""
		}
	}
	if st.Breaker != "" {
		st.BreakerWhy, st.BreakerUntil = r.circuit(m.breaker)
	}
	switch st.State {
	case admin.Draining:
		st.Until = m.cut.ends()
	case admin.Down, admin.Standby:
		r.down(m, st)
		if ends := m.fell.ends(); ends.After(time.Now()) {
			st.Until = ends
		}
	case admin.Ejected:
		r.ejection(m, st)
	}
}

func (r *reader) answers(st *admin.Endpoint, a *health.Answers) {
	if now, silent := a.Silence(); silent {
		st.Silence = &admin.Silence{Since: r.wall(now.Since), Clients: now.Clients, Usual: now.Usual, Proof: now.Proof}
	}
	clients, longest := a.Unanswered()
	st.Unanswered, st.UnansweredMs = clients, longest.Milliseconds()
	if took, part := a.Within(maxAnswers); part > 0 {
		n, sum := a.Sum()
		st.Answers = &admin.Answers{Made: n, SumUs: sum.Microseconds(), Percent: part, WithinUs: took.Microseconds(), Judged: a.Known()}
	}
}

// The status shows the time within which maxAnswers percent of an endpoint's answers have come.
const maxAnswers = 99

// down says why and since when the check has an endpoint down.
func (r *reader) down(m *member, to *admin.Endpoint) {
	if m.check == nil {
		return
	}
	st := m.check.Status()
	to.Why, to.Since = strings.TrimPrefix(textOf(st.Err), "connect: "), r.wall(st.Since)
	if st.Err == nil {
		to.Why = fmt.Sprintf("%d of %d needed checks in a row succeeded", st.Streak, st.Rise)
	}
}

func (r *reader) lastFailure(e *router.Endpoint) *admin.Failure {
	f, over := e.LastFailure()
	if f == nil {
		return nil
	}
	return &admin.Failure{Cause: f.Cause(), Time: r.wall(f.At), Over: over, Connecting: f.Outcome == health.ConnectFailed}
}

// failingFor is how long an endpoint counts as failing after its last failed session.
const failingFor = time.Minute

// failing describes the latest sessions in a row that an endpoint has failed; nil if they are few or long ago, or if a few
// sources alone may have caused them while others are served.
func (r *reader) failing(e *router.Endpoint, m *health.OutlierMonitor) *admin.Failing {
	n, since, last := e.UnservedStreak()
	if n < manyFailed || r.now()-last > int64(failingFor) {
		return nil
	}
	if m != nil {
		if _, fewSources := m.FailsInARow(r.now()); fewSources {
			return nil
		}
	}
	return &admin.Failing{Clients: n, Since: r.wall(since)}
}

// ejection says why and since when an endpoint is ejected, and until when, if that is known.
func (r *reader) ejection(m *member, to *admin.Endpoint) {
	if m.monitor == nil {
		return
	}
	end, ejected := m.monitor.Ejected()
	why, since := m.monitor.Why()
	if !ejected || since == 0 {
		return
	}
	if to.Why, to.Since = why, r.wall(since); end != math.MaxInt64 {
		to.Until = r.wall(end)
	}
}

// circuit says why a breaker is not closed, and until when it is open.
func (r *reader) circuit(b *health.Breaker) (why string, until time.Time) {
	why, end := b.Why()
	if end != 0 {
		until = r.wall(end)
	}
	return why, until
}

// whyUnresolved returns why the name of an endpoint did not resolve the last time. It is "" if it did, if the endpoint has
// no name, or if a check reports it.
func (r *reader) whyUnresolved(m *member) string {
	name := m.endpoint.HostName()
	if name == "" {
		return ""
	}
	if err := sockopt.Unresolved(name); err != nil {
		return err.Error() + " (its former addresses are in use)"
	}
	if m.check == nil {
		return textOf(r.unresolved[name])
	}
	return ""
}

// An upstream without a usable endpoint counts as serving for servedFor after the last client that it served in this outage.
const servedFor = time.Minute

// missed adds the recent refusals and withheld ejections to an upstream's status.
func (r *reader) missed(u *upstream, st *admin.Upstream) {
	now, sums := r.now(), r.watcher.sums
	st.LastMinute = admin.LastMinute{
		Refused: sums.Recent(now, u.router.Refusals, refusedLine), Held: sums.Recent(now, u.router, heldLine),
		LastResort: sums.Recent(now, u.router, resortLine), LastResortAnswered: sums.Recent(now, u.router, answeredLine), EjectionsWithheld: sums.Recent(now, u.outlier, withheldLine),
		LocalFaults: sums.Recent(now, u.router.LocalFaults, localLine),
	}
	if st.LastMinute.Refused > 0 {
		by := u.router.Refusals.ByReason(false)
		for reason := range by {
			by[reason] = sums.Recent(now, refusedFor{u.router.Refusals, reason}, refusedLine)
		}
		maps.DeleteFunc(by, func(_ string, n int64) bool { return n == 0 })
		st.LastMinute.RefusedBy = by
	}
	seen := u.seen()
	o, is := r.watcher.outages.Of(now, &seen)
	if !is {
		return
	}
	since := max(now-int64(servedFor), o.Since-int64(lookEvery)) // it may have begun so long before it was noticed
	st.Outage = &admin.UpstreamOutage{
		Since: r.wall(o.Since), Full: o.Condition == monitor.Full, Served: u.snapshot.Respond != nil || u.router.ServedSince(since), Refused: o.Refused, Held: o.Held, Fallbacks: o.Fallbacks, Unserved: o.Unserved,
	}
}

// congestion describes the congestion control of a listener's TCP sockets, by the first socket that lacks the configured
// one, if any does. It is nil if the file names none, or the listener has no TCP socket.
func (r *reader) congestion(l *listener) (st *admin.Congestion) {
	wanted := l.cfg.Socket.Congestion
	if wanted == "" || r.closing { // while closing, descriptors may be closed
		return nil
	}
	for _, socket := range r.binds.at(l.keys) {
		if !socket.listener.TCP() || st != nil && st.Error != "" {
			continue
		}
		used, err := socket.congestionNow()
		st = &admin.Congestion{Configured: wanted, Used: used, Error: textOf(err)}
	}
	return st
}

// listenerDenials describes the denials at a listener, nil if there are none. It counts only clients since the latest
// denial, which may have changed the result.
func (r *reader) listenerDenials(name string, l *router.ListenerState) *admin.ListenerDenials {
	everywhere, here := r.denials.sums[""], r.denials.sums[name]
	if everywhere.count+here.count == 0 {
		return nil
	}
	st := &admin.ListenerDenials{Count: everywhere.count + here.count, Latest: here.latest, All: everywhere.all || here.all}
	if here.count == 0 || everywhere.all && !here.all || everywhere.all == here.all && everywhere.latest.Since.After(here.latest.Since) {
		st.Latest = everywhere.latest
	}
	now, at, before := r.now(), arrivalsAt(l), r.denials.before[l]
	if now-r.denials.latest < int64(time.Minute) {
		st.Clients, st.Refused = at.accepted-before.accepted, at.denied-before.denied
		return st
	}
	st.Clients, st.Refused = r.recent(l, acceptedLine), r.recent(l, deniedLine)
	return st
}

// removedByHand adds to the status of an upstream the endpoints that were removed by hand. An
// endpoint that still has sessions is there already, as a leaving endpoint.
func (r *reader) removedByHand(u *upstream, st *admin.Upstream) {
	for i := range r.live.All() {
		c := &r.live.All()[i]
		if c.Kind != state.EndpointRemoved || c.Upstream != u.cfg.Name {
			continue
		}
		words, of := []string{handWords("removed", c)}, u.specUnder(c.Endpoint, r.live.Set)
		if w := r.live.Find(state.Key{Kind: state.EndpointWeight, Upstream: c.Upstream, Endpoint: c.Endpoint}); w != nil {
			words = append(words, handWords(weightWords(w, of.Weight), w))
		}
		there := false
		for j := range st.Endpoints {
			if e := &st.Endpoints[j]; e.Name == c.Endpoint && e.State == admin.Removed {
				e.ByHand, e.Weight, there = words, of.share, true
			}
		}
		if !there {
			st.Endpoints = append(st.Endpoints, admin.Endpoint{Name: c.Endpoint, Address: of.Address, Zone: of.Zone, Weight: of.share, Backup: of.Backup, State: admin.Removed, ByHand: words})
		}
	}
}

// queue returns the length of a listening socket's accept queue, unless its descriptor may be closed.
func (r *reader) queue(socket *listenSocket) admin.Queue {
	if r.closing {
		return admin.Queue{Address: socket.listener.Addr()}
	}
	q := admin.Queue{Address: socket.listener.Addr(), Gone: socket.lost.Load(), Dropped: socket.overflows.total, DroppedKnown: socket.listener.TCP() && !socket.overflows.unknown}
	ask := sys.UnixListenQueue
	if socket.listener.TCP() {
		ask = sys.ListenQueue
	}
	if length, most, err := ask(socket.fd); err == nil {
		q.Known, q.Length, q.Most = true, int64(length), int64(most)
	}
	q.DroppedLastMinute = r.recent(socket, droppedLine)
	return q
}

// bytesOf adds up, for a status, the bytes of ended and running sessions.
func bytesOf(ended, running worker.Bytes) admin.Bytes {
	ended.Add(running)
	return ended
}

func limited(seconds [verdict.Kinds]float64) (by map[string]float64) {
	for kind, s := range seconds {
		if s == 0 {
			continue
		}
		if by == nil {
			by = make(map[string]float64)
		}
		by[verdict.Kind(kind).String()] = s
	}
	return by
}

func discoveryStatus(status discovery.Status) *admin.Discovery {
	cause := textOf(status.Err)
	if p, ok := errors.AsType[config.Problem](status.Err); ok && p.Pos.Line > 0 { // the error may quote a file that only this process may read
		cause = fmt.Sprintf("%v: the list of endpoints cannot be used: the log says what is wrong here", p.Pos)
	}
	return &admin.Discovery{
		Kind: status.Kind, From: status.From, Endpoints: status.Endpoints, Changed: status.Changed, Confirmed: status.Confirmed,
		Next: status.Next, Error: cause, Failures: status.Failures, Denied: status.Denied, Stale: status.Stale,
	}
}

func certificates(list []tlsterm.Lifetime) (certs []admin.Certificate) {
	for _, l := range list {
		certs = append(certs, admin.Certificate{Path: l.Path, From: l.From, Ends: l.Ends, Refused: textOf(l.Refused)})
	}
	return certs
}
