package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

var _ admin.Balancer = (*Server)(nil)

// Status implements [admin.Balancer].
func (s *Server) Status() (st admin.Status) {
	s.group.Metered(func(total worker.Summary, running map[worker.Binding]*worker.Bytes) {
		st = s.status(&total, router.NewRunning(running))
	})
	return st
}

func (s *Server) status(total *worker.Summary, running *router.Running) admin.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := admin.Status{
		State:   admin.Serving,
		Changes: s.changes,
		Summary: s.summarize(total),
	}
	s.recentSessionLog(st.SessionLog)
	st.Restart = s.lasting()
	st.Live, st.StateFile, st.DeniedByHand = s.liveStatus(), s.stateFile(), s.denialsStatus()
	st.Traces = s.tracesStatus()
	st.Connections.Most = int64(s.maxConnections(s.cfg))
	st.TLSSessions = admin.TLSSessions{Active: int64(s.tls.Sessions()), Most: int64(s.tls.Max())}
	if s.closing {
		st.State, st.DrainEnds = admin.Draining, s.drainEnds
	}
	for _, name := range slices.Sorted(maps.Keys(s.listeners)) {
		st.Listeners = append(st.Listeners, s.listenerStatus(name, running))
	}
	for _, name := range slices.Sorted(maps.Keys(s.upstreams)) {
		st.Upstreams = append(st.Upstreams, s.upstreamStatus(s.upstreams[name], running))
	}
	st.RemovedWaiting = s.removedWaiting()
	st.Counters = s.counters(total)
	return st
}

// removedWaiting counts the clients that came before an upstream was removed, and wait for it still.
func (s *Server) removedWaiting() map[string]int64 {
	var clients map[string]int64
	for _, f := range s.former {
		up := f.up.Value()
		if up == nil || up.Waiting() == 0 {
			continue
		}
		if u := s.upstreams[f.name]; u != nil && u.router == up { // it is back
			continue
		}
		if clients == nil {
			clients = make(map[string]int64)
		}
		clients[f.name] += int64(up.Waiting())
	}
	return clients
}

func (s *Server) listenerStatus(name string, running *router.Running) admin.Listener {
	l := s.listeners[name]
	c := l.state.Counts()
	st := admin.Listener{
		Name: name, State: admin.Serving, Reasons: c.Refused, FastOpen: l.cfg.Socket.FastOpen,
		Connections: admin.Connections{Accepted: c.Accepted, Active: c.Active, Most: l.state.Connections.Max()},
		Bytes:       bytesOf(l.state.Bytes(), running.Listeners[l.state]),
		Limited:     limited(l.state.Limited()),
	}
	st.Pauses, st.RefusesAll, st.Mirrors = l.state.Pauses(), l.cfg.RefusesAll(), l.mirrorStatus(l.state.Mirrors().Totals(false))
	st.Rewrites = l.rewriteStatus(false)
	st.Filters = l.filterStatus(false, func(of *filter.Ledger) int64 { return s.watcher.sums.Recent(s.now(), of, unansweredLine) })
	st.Cancels = l.cancelStatus()
	st.DeniedByHand, st.Protocols = s.listenerDenials(name, l.state), l.state.Spoken()
	for _, n := range c.Refused {
		st.Connections.Refused += n
	}
	if l.tls != nil {
		st.Handshakes, st.Certificates, st.AuthoritiesRefused = handshakes(l.stats), certificates(l.tls.Lifetimes()), textOf(l.tls.AuthoritiesRefused())
	}
	switch {
	case l.drained, s.closing:
		st.State, st.DrainedByHand = admin.Draining, l.drained
	default:
		if st.PausedAt = l.state.PausedAt(&s.connectRate, s.now()); st.PausedAt != "" {
			st.State = admin.Paused
		}
	}
	st.Congestion = s.listenerCongestion(l)
	for _, key := range l.keys {
		if socket := s.binds[key]; socket != nil {
			st.Addresses = append(st.Addresses, socket.listener.Addr())
			st.Queues = append(st.Queues, s.queueOf(socket))
		}
	}
	for _, at := range l.cfg.Bind {
		if list := s.boundAt(l.cfg, at); len(list) > 0 {
			st.Binds = append(st.Binds, admin.Bind{Bind: at.String(), Active: clientsOf(list)})
		}
	}
	for i := range l.cfg.Routes {
		st.Routes = append(st.Routes, l.routeStatus(i))
	}
	if l.cfg.Upstream != "" {
		st.Routes = append(st.Routes, admin.Route{To: map[string]float64{l.cfg.Upstream: 100}})
	}
	return st
}

// boundAt returns the sockets in force of one of a listener's binds.
func (s *Server) boundAt(l *config.Listener, at config.Bind) []*listenSocket {
	if at.Systemd != "" {
		return slices.Collect(maps.Values(s.passed(at.Systemd)))
	}
	if socket := s.binds[bindKey(l, at)]; socket != nil {
		return []*listenSocket{socket}
	}
	return nil
}

// clientsOf is how many clients have come in at sockets, or at those that they have taken
// over from.
func clientsOf(list []*listenSocket) (n int64) {
	for _, socket := range list {
		n += socket.listening.Clients()
		for _, before := range socket.before {
			n += before.Clients()
		}
	}
	return n
}

func handshakes(s *tlsterm.Stats) *admin.Handshakes {
	h := &admin.Handshakes{
		Active: s.Active.Load(), Completed: s.Completed.Load(), Resumed: s.Resumed.Load(), Failed: make(map[string]int64),
	}
	for kind := range tlsterm.Kinds {
		if n := s.Failed[kind].Load(); n > 0 {
			h.Failed[kind.String()] = n
		}
	}
	return h
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
	return admin.Route{Match: matchText(&r.Match), To: to}
}

// matchText returns the match of a route as in the file.
func matchText(m *config.Match) string {
	var parts []string
	add := func(key string, n int, value any) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %v", key, value))
		}
	}
	add("sni", len(m.SNI), m.SNI)
	add("alpn", len(m.ALPN), m.ALPN)
	add("user", len(m.User), m.User)
	add("database", len(m.Database), m.Database)
	add("source", len(m.Source), m.Source)
	add("port", m.Port, m.Port)
	add("protocol", len(m.Protocol), m.Protocol)
	add("host", len(m.Host), m.Host)
	add("path", len(m.Path), m.Path)
	add("user", len(m.User), m.User)
	add("database", len(m.Database), m.Database)
	for i := range m.Bytes {
		content, _ := m.Bytes[i].Content()
		add(fmt.Sprintf("bytes at %d", m.Bytes[i].Offset), 1, fmt.Sprintf("%q", content))
	}
	for i := range m.TLV {
		add(fmt.Sprintf("tlv 0x%02x", m.TLV[i].Type), 1, fmt.Sprintf("%q", m.TLV[i].Value()))
	}
	return strings.Join(parts, ", ")
}

func (s *Server) upstreamStatus(u *upstream, running *router.Running) admin.Upstream {
	c := u.router.Counts()
	st := admin.Upstream{
		Name: u.cfg.Name, Balance: u.cfg.Balance, BalanceOn: balanceOn(u.cfg), Pending: int64(u.router.Waiting()),
		Retries: c.Retries, RetriesDenied: u.budget.Denied(), Held: c.Held, LastResort: c.LastResort, LastResortAnswered: c.LastResortAnswered, Reasons: c.Refused, Unkeyed: c.Unkeyed,
		Bytes: bytesOf(u.router.Bytes(), running.Upstreams[u.router]), Limited: limited(u.router.Limited()),
	}
	made := u.router.Tally().Connects
	st.Connects = admin.Connects{Made: made.Count(), SumUs: made.Sum.Microseconds(), Buckets: made.Buckets[:]}
	if u.tls != nil {
		st.Handshakes, st.Certificates, st.AuthoritiesRefused = handshakes(u.stats), certificates(u.tls.Lifetimes()), textOf(u.tls.AuthoritiesRefused())
	}
	st.Congestion = u.congestionStatus()
	if f := u.cfg.Fallback; f != nil {
		st.Fallback = f.Upstream
	}
	s.missed(u, &st)
	if u.breaker != nil {
		st.Breaker, st.Opened = u.breaker.State().String(), u.breaker.Opened()
		st.BreakerWhy, st.BreakerUntil = s.circuit(u.breaker)
		if b := u.cfg.CircuitBreaker; b != nil {
			connections, connecting := u.breaker.Load()
			if b.Connections > 0 {
				st.Connections, st.Most = connections, b.Connections
			}
			if b.Pending > 0 {
				st.Connecting, st.MostConnecting = connecting, b.Pending
			}
		}
	}
	if u.source != nil {
		st.Discovery = discoveryStatus(u.source.Status())
		if n := len(u.refused); n > 0 {
			st.Discovery.LeftOut, st.Discovery.LeftOutCause = n, u.refused[0]
		}
	}
	if u.outlier != nil {
		st.EjectionsWithheld = u.outlier.Withheld()
	}
	st.Panic, st.Panics = u.router.Panic()
	st.LocalFaults = u.router.LocalCauses()
	by := s.live.Of(u.cfg.Name)
	for _, m := range u.order {
		e := s.endpointStatus(m, running)
		e.ByHand = byHand(by, m)
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	u.leaving = stillThere(u.leaving)
	for _, m := range u.leaving {
		e := s.endpointStatus(m, running)
		e.State, e.Why, e.Until = admin.Removed, "", m.leave.ends()
		st.Active += e.Active
		st.Endpoints = append(st.Endpoints, e)
	}
	s.removedByHand(u, &st)
	return st
}

func (s *Server) endpointStatus(m *member, running *router.Running) admin.Endpoint {
	e, state := m.endpoint, m.endpoint.State()
	st := admin.Endpoint{
		Name: m.spec.Identity(), Address: m.spec.Address, Zone: m.spec.Zone, Weight: e.Weight(), Backup: m.spec.Backup,
		State: admin.Up, Active: int64(e.Active()), Max: int64(e.Limit()), Picked: int64(e.Picked()), Total: e.Total(), Failures: e.Failures(),
		Bytes: bytesOf(e.Bytes(), running.Endpoints[e]), Limited: limited(e.Limited()),
	}
	made := e.Tally().Connects
	st.Connects = admin.Connects{Made: made.Count(), SumUs: made.Sum.Microseconds()}
	s.answersStatus(&st, e.Answers())
	st.LastFailure, st.Unresolved = s.lastFailure(e), s.whyUnresolved(m)
	if n, since := e.SlowConnects(); n > 0 {
		st.Connecting = &admin.Connecting{Clients: n, Since: s.wall(since)}
	}
	if m.monitor != nil || m.breaker != nil {
		st.Failing = s.failing(e)
	}
	if m.monitor != nil {
		st.EjectionsWithheld, st.WithheldWhy = m.monitor.Withholdings()
		if st.EjectionsWithheldLastMinute = s.watcher.sums.Recent(s.now(), m.monitor, withheldLine); st.EjectionsWithheld == 0 {
			st.WithheldWhy = ""
		}
	}
	if m.breaker != nil {
		st.Opened = m.breaker.Opened()
		if state := m.breaker.State(); state != health.Closed {
			st.Breaker = state.String()
			st.BreakerWhy, st.BreakerUntil = s.circuit(m.breaker)
		}
	}
	switch {
	case m.mode == config.Maint:
		st.State = admin.Maint
	case state.Draining:
		st.State, st.Until = admin.Draining, m.cut.ends()
	case state.Down:
		st.State, st.Why = m.downState(), m.whyDown()
	case state.Ejected:
		st.State = admin.Ejected
		st.Why, st.Until = s.ejection(m)
	}
	return st
}

// counters are those that never fall, by name. The server's mu is held.
func (s *Server) counters(total *worker.Summary) map[string]int64 {
	c := map[string]int64{
		"accepted": total.Accepted, "refused": total.Refused, "lost": total.Totals.Lost,
		"accept_pauses": s.paused.Load(), "transitions": s.scheduler.Transitions(),
	}
	for i := range total.Loops {
		c["hellos_missing"] += total.Loops[i].HellosMissing
	}
	for _, u := range s.upstreams {
		counts := u.router.Counts()
		c["failures"] += counts.Failures
		c["retries"] += counts.Retries
		c["queued"] += counts.Queued
		c["held"] += counts.Held
		c["last_resort"] += counts.LastResort
		c["fallbacks"] += counts.Fallbacks
	}
	for _, name := range []string{"failures", "retries", "queued", "held", "last_resort", "fallbacks"} {
		c[name] += s.gone[name] // of upstreams that the configuration does not name any more
	}
	return c
}

// keepCounts has the counters not fall by the end of an upstream.
// sign is -1 if it is there again.
func (s *Server) keepCounts(u *router.Upstream, sign int64) {
	c := u.Counts()
	s.gone["failures"] += sign * c.Failures
	s.gone["retries"] += sign * c.Retries
	s.gone["queued"] += sign * c.Queued
	s.gone["held"] += sign * c.Held
	s.gone["last_resort"] += sign * c.LastResort
	s.gone["fallbacks"] += sign * c.Fallbacks
}

// Counter returns a counter that never falls, of those in the status.
func (s *Server) Counter(name string) (value int64, known bool) {
	total := s.group.Summary()
	s.mu.Lock()
	defer s.mu.Unlock()
	value, known = s.counters(&total)[name]
	return value, known
}

// bytesOf adds up, for a status, the bytes of ended sessions and of those that run.
func bytesOf(ended, running worker.Bytes) admin.Bytes {
	ended.Add(running)
	return admin.Bytes{
		ClientToEndpoint: admin.ByEngine(ended.ClientToEndpoint), EndpointToClient: admin.ByEngine(ended.EndpointToClient),
	}
}

// limited returns times by verdict, for a status.
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

// discoveryStatus is how a source of endpoints is doing, for a status.
func discoveryStatus(status discovery.Status) *admin.Discovery {
	d := &admin.Discovery{
		Kind: status.Kind, From: status.From, Endpoints: status.Endpoints, Changed: status.Changed, Confirmed: status.Confirmed,
		Next: status.Next, Failures: status.Failures, Stale: status.Stale,
	}
	if status.Err != nil {
		d.Error = status.Err.Error()
	}
	return d
}

// queueOf says how long the accept queue of a listening socket is. While everything ends its
// descriptor may be closed already.
func (s *Server) queueOf(socket *listenSocket) admin.Queue {
	if s.closing {
		return admin.Queue{Address: socket.listener.Addr()}
	}
	q := admin.Queue{Address: socket.listener.Addr(), Dropped: socket.overflows.total, DroppedKnown: socket.listener.TCP() && !socket.overflows.unknown}
	ask := sys.UnixListenQueue
	if socket.listener.TCP() {
		ask = sys.ListenQueue
	}
	if length, most, err := ask(socket.fd); err == nil {
		q.Known, q.Length, q.Most = true, int64(length), int64(most)
	}
	q.DroppedLastMinute = s.watcher.sums.Recent(s.now(), socket, droppedLine)
	return q
}

func certificates(list []tlsterm.Lifetime) (certs []admin.Certificate) {
	for _, l := range list {
		c := admin.Certificate{Path: l.Path, From: l.From, Ends: l.Ends}
		if l.Refused != nil {
			c.Refused = l.Refused.Error()
		}
		certs = append(certs, c)
	}
	return certs
}
