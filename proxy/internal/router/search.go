package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/filter"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A Search is one client's way to an endpoint, see [worker.Search].
type Search struct {
	listener  *Listener
	home      *Listener // the listener for which the search was made, while a newer generation continues it; nil means listener
	client    *worker.Client
	offloaded *Offloaded // the client after its hand-over to a goroutine; nil before

	stage   stage
	course                    // under this listener
	place   waiter            // the place in a queue of snapshot, or of the listener
	earlier []*queuedUpstream // places in the queues of snapshots before this one
	due     int64             // clock from which the first client in the queue may try an endpoint that gets no clients; 0 if it is not first
	late    int               // attempts that began after the client's patience was over

	filtering              // by the route's filter
	entry     breakerEntry // the entry through the breaker of snapshot
	endpoint  *Endpoint    // the acquired endpoint; nil: none
	attempt                // the attempt at endpoint

	original loop.Address // where a transparent client without a snapshot goes
	err      error
}

// A course is the state of a search under one generation of its listener.
type course struct {
	way                              // of the route; snapshot may be a fallback's
	root           *UpstreamSnapshot // the snapshot of the route
	gate           *filter.Filter    // the filter of the client's first route, if it is asked about the client, or has let it through
	visits         []visit           // queues that the client has waited in: it keeps its place in each until it is served
	back           bool              // the client has visited these snapshots before and was counted there
	budgetCounted  bool              // the client was counted by the retry budget of snapshot
	onlyLastResort bool              // the client takes any endpoint that may serve it, see lastresort.go
	unreported     bool              // the client went to the last resort from the start: the upstream's breaker learns nothing from it
	failing        int64             // clock since which the client could not be served; 0 before the first try
	held           bool              // the client was held, and counted as such
	declined       bool              // an endpoint has answered that it lacks the TLS or the protocol that the client asked for
	full           bool              // the last look found endpoints that serve, but none with room
	cause          error             // why the client is held

	tried      []*lb.Endpoint // endpoints that the client has tried
	round      int            // index in tried from which endpoints may not be tried again yet
	retries    int
	pauseCount int
	mayRetry   bool      // the pause is over: the endpoints in tried may be tried again
	failures   []failure // the latest ones, see blame
	forgotten  int       // number of earlier failures
}

// fresh returns an empty course, in the memory of this one.
func (c *course) fresh() course {
	return course{tried: c.tried[:0], failures: c.failures[:0], visits: c.visits[:0]}
}

// A stage is the next step of a search.
type stage uint8

const (
	admitting stage = iota
	routing
	filtered  // until the route's filter has answered
	lookingOn // until first bytes decide the route after the filter's
	choosing
	queueing // joining the queue for room again, after a trial that failed
	waiting  // parked in the queue for room
	holding  // parked until an endpoint can serve
	pausing  // for a time, before endpoints are tried again
	connecting
	direct     // to the original destination
	responding // in place of an endpoint
	over
)

// Begin implements [worker.Search].
func (s *Search) Begin(c *worker.Client, _ int64) {
	*s = Search{
		listener: s.listener, offloaded: s.offloaded, client: c, course: s.fresh(), earlier: s.earlier[:0], attempt: attempt{failed: s.failed[:0]},
	}
	if s.offloaded != nil {
		s.gate = s.offloaded.gate
	}
}

// Next implements [worker.Search].
func (s *Search) Next(now int64) worker.Step {
	by, renewed := s.generations(), false
	if err := s.stillMay(by); err != nil && s.stage != over {
		s.giveUp(err)
	}
	for {
		var step worker.Step
		var done bool
		if !renewed && s.stage != admitting && s.stage != over {
			if step, renewed = s.renew(by, now); renewed {
				return step
			}
			renewed = true
		}
		switch s.stage {
		case admitting:
			step, done = s.enter(now)
		case routing:
			step, done = s.route(now)
		case filtered:
			step, done = s.askFilter(now)
		case lookingOn:
			step, done = s.lookOn(now)
		case choosing:
			step, done = s.choose(now)
		case queueing:
			step, done = s.queuePlace(now, lb.ErrFull)
		case waiting:
			step, done = s.wait(now)
		case holding:
			step, done = s.await(now)
		case connecting:
			step, done = s.connect(now)
		case pausing:
			s.stage, s.mayRetry = choosing, true
			s.pauseCount++
			return worker.Step{Action: worker.Pause, Timeout: s.snapshot.backoff(s.pauseCount)}
		case responding:
			s.stage = over
			return worker.Step{Action: worker.Respond, Bytes: s.snapshot.Respond}
		case direct:
			s.start = now
			return worker.Step{Action: worker.Connect, Address: s.original, Timeout: s.listener.cfg.Connect, Recheck: recheckEvery}
		default:
			return worker.Step{Action: worker.GiveUp}
		}
		if done {
			return step
		}
	}
}

// enter takes a place under the listener's limit for a client that has none yet.
func (s *Search) enter(now int64) (worker.Step, bool) {
	if s.client.AdmissionToken&overLimit == 0 {
		s.stage = routing
		return worker.Step{}, false
	}
	state := s.listener.state
	if s.place.in.Load() == nil {
		state.queue.join(&s.place, s.waker(), s.from(), 1<<62, now)
		// Room that came between the look and the joining was not reported.
		state.queue.next()
	}
	if !state.queue.turnOf(&s.place) {
		return worker.Step{Action: worker.Park}, true
	}
	for !state.Connections.Take() {
		if !state.queue.stay(&s.place, true) {
			return worker.Step{Action: worker.Park}, true
		}
	}
	state.queue.leave(&s.place)
	s.client.AdmissionToken &^= overLimit
	s.stage = routing
	return worker.Step{}, false
}

func (s *Search) route(now int64) (worker.Step, bool) {
	l := s.listener
	switch {
	case s.snapshot != nil || s.passed: // a fallback, or a filter's answer
	case s.offloaded != nil && !s.offloaded.unrouted:
		s.way = s.offloaded.way
	case s.offloaded == nil && s.routesLater():
		return worker.Step{Action: worker.Handover, To: s.handover()}, true
	default:
		to, err := l.wayOf(s.client)
		if err != nil {
			return worker.Step{}, s.giveUp(err)
		}
		s.way = to
		if to.filter != nil {
			s.gate = to.filter.Of
			s.filterBy(to.filter, to.route, now)
			return worker.Step{}, false
		}
	}
	if s.root == nil {
		s.root = s.snapshot
	}
	switch {
	case s.snapshot == nil && !l.cfg.Transparent:
		return worker.Step{}, s.giveUp(ErrNoRoute)
	case s.offloaded == nil && (l.endsTLS(s.client) || s.snapshot != nil && s.snapshot.TLS != nil): // TLS ends or begins in this process
		return worker.Step{Action: worker.Handover, To: s.handover()}, true
	case s.snapshot == nil:
		var err error
		if s.original, err = l.original(s.client); err != nil {
			return worker.Step{}, s.giveUp(err)
		}
		s.stage = direct
	default:
		s.stage = choosing
		s.client.Record.Route(s.snapshot.upstream.name)
	}
	return worker.Step{}, false
}

// handover returns the function that continues with the client on a goroutine.
func (s *Search) handover() func(*worker.Offloaded) {
	of := Offloaded{Listener: s.listener, way: s.way, gate: s.gate, unrouted: s.snapshot == nil}
	return func(h *worker.Offloaded) { of.Listener.cfg.Offloaded(h, &of) }
}

// giveUp ends the search. It always returns false, so that Next continues with the new
// stage.
func (s *Search) giveUp(err error) bool {
	s.stage, s.err = over, err
	return false
}

// choose picks an endpoint. If other clients wait for room, the client queues behind them, or takes the fallback if there
// is no queue. If other clients are held, this one is held, too.
func (s *Search) choose(now int64) (worker.Step, bool) {
	snap := s.snapshot
	if !s.budgetCounted {
		s.budgetCounted = true
		snap.Budget.Began(now)
	}
	if snap.upstream.queue.waiting.Load() > 0 && (snap.QueueSize > 0 || snap.Fallback != nil) {
		return s.queuePlace(now, lb.ErrFull)
	}
	if snap.upstream.held.waiting.Load() > 0 && snap.holds() {
		return worker.Step{}, s.unavailable(lb.ErrUnavailable, now)
	}
	switch err := s.pick(now); {
	case err == nil:
		s.stage = connecting
	case errors.Is(err, lb.ErrFull):
		return s.queuePlace(now, err)
	default:
		return worker.Step{}, s.unpicked(err, now)
	}
	return worker.Step{}, false
}

// unpicked sets the stage that follows an error of a pick. It always returns false, so that Next
// continues with the new stage.
func (s *Search) unpicked(err error, now int64) bool {
	if err == errAgain {
		s.stage = pausing
		return false
	}
	return s.unavailable(err, now)
}

// queuePlace parks the client in the queue for room, if the snapshot has a queue with a place.
func (s *Search) queuePlace(now int64, cause error) (worker.Step, bool) {
	snap := s.snapshot
	s.suspendEntry(now)
	if snap.QueueSize <= 0 {
		return worker.Step{}, s.unavailable(cause, now)
	}
	back := s.visited(&snap.upstream.queue) != 0
	if !s.enqueue(&snap.upstream.queue, snap.QueueSize, now) {
		snap.notifyRoom()
		return worker.Step{}, s.unavailable(ErrQueueFull, now)
	}
	if !back {
		atomic.AddInt64(&snap.upstream.counts.Queued, 1)
	}
	s.stage, s.due, s.round = waiting, 0, len(s.tried) // in the queue, all endpoints may be tried again
	// Room that came between the look and the joining was not reported.
	snap.upstream.queue.next()
	s.joinEarlierQueues(s.visited(&snap.upstream.queue))
	s.back = false
	return worker.Step{Action: worker.Park, Timeout: s.untilTrials(max(s.timeInQueue(now), 1), now)}, true
}

// wait acquires an endpoint if the client has the turn and there is room. Otherwise the client stays parked.
func (s *Search) wait(now int64) (worker.Step, bool) {
	snap := s.snapshot
	if l := s.elsewhere(); l != nil && !l.snapshotFor(s.client).sameWay(s.root) {
		s.beginAnew(l, begins, now)
		return worker.Step{}, false
	}
	left := s.timeInQueue(now)
	if s.pickEarlier(left, now) {
		s.stage = connecting
		return worker.Step{}, false
	}
	if !snap.upstream.queue.isFirst(&s.place) {
		s.due = 0
	} else if s.due <= now {
		snap.upstream.queue.claim(&s.place)
	}
	for looks := 1; snap.upstream.queue.turnOf(&s.place); looks++ {
		trial, err := s.pickFree(&s.due, left, true, now)
		switch {
		case err == nil:
			s.leaveQueues()
			s.stage = connecting
			s.beginTrial(trial, now)
			return worker.Step{}, false
		case err != errFailing && !errors.Is(err, lb.ErrFull):
			s.leaveQueues()
			return worker.Step{}, s.unpicked(err, now)
		case left > 0 && snap.upstream.queue.stay(&s.place, err != errFailing):
			if looks < maxLooks {
				continue
			}
			snap.upstream.queue.later(&s.place)
		}
		break
	}
	switch {
	case left <= 0:
		s.leaveQueues()
		return worker.Step{}, s.unavailable(record.ErrQueueTimeout, now)
	case !snap.upstream.queue.has(&s.place):
		s.leaveEarlier()
		return worker.Step{}, s.unavailable(ErrQueueFull, now)
	}
	return worker.Step{Action: worker.Park, Timeout: s.untilTrials(left, now)}, true
}

func (s *Search) leaveQueues() {
	if q := s.place.in.Load(); q != nil {
		q.leave(&s.place)
	}
	s.leaveEarlier()
}

// unavailable ends the search in this snapshot and sends the client to the fallback, the response or the
// last resort. It always returns false, so that Next continues with the new stage.
func (s *Search) unavailable(err error, now int64) bool {
	snap := s.snapshot
	switch {
	case s.onlyLastResort:
		s.resort(err, now)
	case snap.Fallback != nil:
		s.exitBreaker(s.entry.lastOutcome, now)
		if !s.back {
			atomic.AddInt64(&snap.upstream.counts.Fallbacks, 1)
		}
		s.snapshot, s.stage = snap.Fallback, routing
		s.budgetCounted, s.tried, s.round, s.retries, s.pauseCount = false, s.tried[:0], 0, 0, 0
	case snap.Respond != nil:
		s.exitBreaker(s.entry.lastOutcome, now)
		atomic.AddInt64(&snap.upstream.counts.Fallbacks, 1)
		s.stage = responding
	default:
		s.resort(err, now)
	}
	return false
}

// backoff returns the length of the nth pause: a random time between half of the pause
// and all of it, so that clients that failed together do not come back together.
func (snap *UpstreamSnapshot) backoff(n int) time.Duration {
	d := snap.Backoff << min(n-1, 20)
	if d > snap.MaxBackoff || d < snap.Backoff {
		d = snap.MaxBackoff
	}
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d/2+1)
}

// ProxyHeader implements [worker.Search].
func (s *Search) ProxyHeader(b []byte) []byte {
	of := s.connection()
	return proxyproto.Append(b, s.snapshot.SendProxy, &of)
}

func (s *Search) connection() proxyproto.Connection {
	c := s.client
	of := proxyproto.Connection{
		Source: c.Source().AddrPort(), Destination: s.listener.destination(c), Authority: c.Hello.ServerName,
		TLVs: c.Header.TLVs, Local: c.Header.Local,
	}
	if s.offloaded.conn() != nil {
		of.Authority, of.ALPN = s.offloaded.tls.ServerName, s.offloaded.tls.NegotiatedProtocol
		of.TLS = proxyproto.TLSOf(&s.offloaded.tls)
	}
	return of
}

// Reached implements [worker.Search].
func (s *Search) Reached(now int64) (*relay.Limits, error) {
	l, e := s.listener, s.endpoint
	if err := s.mayJoin(); err != nil {
		return nil, err
	}
	if e == nil {
		return &l.limits, nil
	}
	s.endSlow()
	atomic.AddInt64(&e.counts.Total, 1)
	e.upstream.sessions.Add(1)
	if late := e.late.Load(); late != nil && e.gone.Load() {
		(*late)()
	}
	if s.falls != e.falls.Load() && e.bad.Load() > 0 { // its sessions were ended without this one
		e.upstream.fell(e)
	}
	if s.unkeyed() {
		atomic.AddInt64(&e.upstream.counts.Unkeyed, 1)
	}
	for _, a := range accounts(l, s.snapshot, e) {
		a.tally.Connected(s.client.Loop(), time.Duration(now-s.start))
	}
	s.touched(now)
	e.noteConnected(s.start, now)
	e.connected(now)
	if b := s.snapshot.Breaker; b != nil {
		b.Reached()
	}
	if s.retries > 0 && !s.lastTurnedDown() {
		s.snapshot.Budget.Repay(now)
	}
	if s.lastResort {
		atomic.AddInt64(&s.snapshot.upstream.counts.LastResort, 1)
		s.snapshot.upstream.resortsUnserved.Add(1)
		if e.resortsUnserved.Add(1) == vainResorts {
			e.upstream.vainEndpoints.Add(1)
		}
	}
	b := s.binding(now)
	s.endpoint, s.entry = nil, breakerEntry{}
	return &b.limits, nil
}

// binding returns the binding of a session that begins. A trial or last resort has its own binding, which notes whether the
// client is served.
func (s *Search) binding(now int64) *binding {
	l, e, snap, count := s.listener, s.endpoint, s.snapshot, s.count()
	tried := s.permit.Trial() || s.entry.permit.Trial() || s.forced || s.entry.forced
	if !tried && !s.lastResort {
		return s.sampled(l.bindingOf(snap, e, s.breaker, count), now)
	}
	b := l.newBinding(snap, e, s.breaker, count)
	b.permit, b.upstreamPermit, b.from = s.permit, s.entry.permit, s.from()
	b.forced, b.upstreamForced = s.forced, s.entry.forced
	b.resort, b.began = s.lastResort, now
	return b
}

// Err implements [worker.Search].
func (s *Search) Err() error { return s.err }

// Close implements [worker.Search].
func (s *Search) Close() {
	s.leaveQueues()
	s.leaveFilter()
	if s.endpoint != nil {
		s.settle(health.Unknown, s.listener.now())
	}
	if s.entry.through {
		s.exitBreaker(health.Unknown, s.listener.now())
	}
	s.client, s.err = nil, nil
	clear(s.visits[:cap(s.visits)])
	clear(s.tried[:cap(s.tried)])
	s.failures = nil
	s.course = s.fresh()
	s.failed = slices.Delete(s.failed, 0, len(s.failed))
	if s.home != nil {
		s.listener, s.home = s.home, nil
	}
}

// connect returns the step that connects to one of the endpoint's addresses.
func (s *Search) connect(now int64) (worker.Step, bool) {
	if s.outdated() {
		s.connectAnew(now)
		return worker.Step{}, false
	}
	if s.addrs == nil {
		return worker.Step{Action: worker.Resolve, Host: s.endpoint.host, Resolver: s.listener.cfg.Resolver, Timeout: s.left(now, 1), Recheck: recheckEvery}, true
	}
	snap := s.snapshot
	step := worker.Step{
		Action: worker.Connect, Address: s.addrs[s.at], Timeout: s.left(now, len(s.addrs)-s.at), ProxyHeader: snap.SendProxy > 0,
		Recheck: recheckEvery,
	}
	if step.Address.Path == "" { // a unix socket has no source and no congestion control
		step.Source, step.Congestion = snap.Source, snap.Congestion
	}
	return step, true
}

// Circle implements [worker.Search].
func (s *Search) Circle(fd int, connected bool) error {
	at := s.original
	if s.endpoint != nil {
		at = s.addrs[s.at]
	}
	return s.listener.circle(s.client, s.endpoint, at, fd, connected)
}

// left returns the time for one address: the time left for the endpoint, divided by the number
// of addresses.
func (s *Search) left(now int64, shares int) time.Duration {
	if s.end == 0 {
		return 0
	}
	return time.Duration(max((s.end-now)/int64(shares), 1))
}

// Resolved implements [worker.Search].
func (s *Search) Resolved(ips []netip.Addr, err error) {
	if err == record.ErrAbandoned {
		s.abandoned(s.listener.now())
		return
	}
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: s.endpoint.host, IsNotFound: true}
	}
	if err != nil {
		s.failed = append(s.failed, err)
		s.missed(s.listener.now(), health.ConnectFailed)
		return
	}
	for _, ip := range ips {
		s.addrs = append(s.addrs, loop.Address{AddrPort: netip.AddrPortFrom(ip.Unmap(), s.endpoint.port)})
	}
}

// Failed implements [worker.Search].
func (s *Search) Failed(err error, now int64) {
	if s.endpoint == nil { // an original destination
		s.client.Record.Fail("", s.start, now, err)
		s.giveUp(fmt.Errorf("connect to %s: %w", s.original.AddrPort, err))
		return
	}
	if err == record.ErrAbandoned {
		s.abandoned(now)
		return
	}
	if len(s.addrs) > 1 {
		err = fmt.Errorf("%s: %w", s.addrs[s.at].AddrPort, err)
	}
	s.failed = append(s.failed, err)
	if s.at++; s.at < len(s.addrs) && (s.end == 0 || now < s.end) {
		return
	}
	for _, err := range slices.Backward(s.failed) { // at any of its addresses
		if s.turnsDown(err, now) {
			s.turnedDown(err, now)
			return
		}
	}
	o := health.ConnectFailed
	switch local := localFault(err); {
	case local >= 0 && local < ownFaults:
		o = health.Unknown
	case health.WasReset(err):
		o = health.Reset
		s.touched(now)
	}
	s.missed(now, o)
}

// touched tells the monitors that the endpoint was reached.
func (s *Search) touched(now int64) {
	if s.breaker != nil {
		s.breaker.Reached()
	}
	if m := s.endpoint.monitor.Load(); m != nil {
		m.Reached(now)
	}
}

// A visit is a queue in which a client has waited, and the clock since when.
type visit struct {
	of    *queue
	since int64
}

// visited returns the clock since when a client has waited in a queue, even if it no longer does; 0: it has not.
func (s *Search) visited(q *queue) int64 {
	if i := slices.IndexFunc(s.visits, func(v visit) bool { return v.of == q }); i >= 0 {
		return s.visits[i].since
	}
	return 0
}

// enqueue puts a client into a queue: at its old place if it has waited there before, and otherwise
// at the end, unless most clients wait already.
func (s *Search) enqueue(q *queue, most, now int64) bool {
	if since := s.visited(q); since != 0 {
		q.rejoin(&s.place, s.waker(), s.from(), since)
		return true
	}
	if !q.join(&s.place, s.waker(), s.from(), most, now) {
		return false
	}
	s.visits = append(s.visits, visit{q, now})
	s.client.Record.Enqueued(q.waiting.Load() - 1)
	return true
}

// timeInQueue returns how much longer the client may wait for room.
func (s *Search) timeInQueue(now int64) time.Duration {
	u := s.snapshot.upstream
	return time.Duration(s.visited(&u.queue) + int64(s.snapshot.times().QueueTimeout) - now)
}
