package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/header"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/relay"
)

// A Search is one client's way to an endpoint, see [core.Search].
type Search struct {
	listener *Listener
	home     *Listener // that it was made for, if it goes on by another generation; nil: listener
	client   *core.Client
	handed   *Handed // it goes on where the client was handed over to; nil: it has not been

	stage   stage
	view    *View
	root    *View  // the first one: others are fallbacks
	place   waiter // in a queue
	earlier []*earlier
	visits  []visit // of queues, in which it keeps its place until it is served
	back    bool    // it has been at the views on its way, and was counted
	due     int64   // clock, when an endpoint may be tried there that gets no clients; 0: it is not the first
	began   bool    // counted by the view's budget
	last    bool    // it takes what it gets, see lastresort.go
	untold  bool    // it has from the beginning: the upstream's breaker has nothing to learn from it
	failing int64   // clock, since when it could not be served; 0: it has not been tried yet
	held    bool    // counted
	full    bool    // there was an endpoint the last time, without room
	cause   error   // why it is held

	passage  passage   // through the view's breaker
	endpoint *Endpoint // acquired; nil: none yet
	attempt            // at it
	tried    []*balance.Endpoint
	round    int // where in tried the endpoints begin that are not to be tried again yet
	retries  int
	pauses   int
	paused   bool // they may be tried again

	original loop.Address // where a transparent client goes, if there is no view
	failures []failure
	err      error
}

// A stage is what a search does next.
type stage uint8

const (
	atDoor stage = iota
	routing
	choosing
	queueing // for room at an endpoint, where it has waited before
	waiting  // for that
	holding  // for an endpoint
	pausing  // before endpoints are tried again
	connecting
	direct     // to the original destination
	responding // in place of an endpoint
	over
)

// Begin implements [core.Search].
func (s *Search) Begin(c *core.Client, _ int64) {
	*s = Search{
		listener: s.listener, handed: s.handed, client: c, tried: s.tried[:0], failures: s.failures[:0], earlier: s.earlier[:0],
		visits:  s.visits[:0],
		attempt: attempt{failed: s.failed[:0]},
	}
}

// Next implements [core.Search].
func (s *Search) Next(now int64) core.Step {
	if err := s.stillMay(); err != nil && s.stage != over {
		s.giveUp(err)
	}
	for {
		var step core.Step
		var done bool
		switch s.stage {
		case atDoor:
			step, done = s.enter(now)
		case routing:
			step, done = s.route()
		case choosing:
			step, done = s.choose(now)
		case queueing:
			step, done = s.line(now, balance.ErrFull)
		case waiting:
			step, done = s.wait(now)
		case holding:
			step, done = s.await(now)
		case connecting:
			step, done = s.connect(now)
		case pausing:
			s.stage, s.paused = choosing, true
			s.pauses++
			return core.Step{Do: core.Pause, Timeout: s.view.backoff(s.pauses)}
		case responding:
			s.stage = over
			return core.Step{Do: core.Respond, Bytes: s.view.Respond}
		case direct:
			return core.Step{Do: core.Connect, Address: s.original, Timeout: s.listener.cfg.Connect, MaybeSelf: true}
		default:
			return core.Step{Do: core.GiveUp}
		}
		if done {
			return step
		}
	}
}

// enter takes a place under the listener's limit for a client that has none yet.
func (s *Search) enter(now int64) (core.Step, bool) {
	t, _ := s.client.Ticket.(*ticket)
	if t == nil || !t.over {
		s.stage = routing
		return core.Step{}, false
	}
	door := s.listener.door
	if s.place.in.Load() == nil {
		door.queue.join(&s.place, s.waker(), 1<<62, now)
		// There may have been room between the look and the joining, of which nobody was told.
		door.queue.next()
	}
	if !door.queue.turnOf(&s.place) {
		return core.Step{Do: core.Park}, true
	}
	for !door.Connections.Take() {
		if !door.queue.stay(&s.place) {
			return core.Step{Do: core.Park}, true
		}
	}
	door.queue.leave(&s.place)
	t.over = false
	s.stage = routing
	return core.Step{}, false
}

// route finds out where the client goes.
func (s *Search) route() (core.Step, bool) {
	l := s.listener
	switch {
	case s.view != nil: // a fallback
	case s.handed != nil:
		s.view = s.handed.view
	default:
		s.view = l.viewFor(s.client)
	}
	if s.root == nil {
		s.root = s.view
	}
	switch {
	case s.view == nil && !l.cfg.Transparent:
		return core.Step{}, s.giveUp(ErrNoRoute)
	case s.terminated() && s.handed == nil:
		return core.Step{Do: core.Handover, To: s.handover()}, true
	case s.view == nil:
		var err error
		if s.original, err = l.original(s.client); err != nil {
			return core.Step{}, s.giveUp(err)
		}
		s.stage = direct
	default:
		s.stage = choosing
	}
	return core.Step{}, false
}

// terminated reports whether TLS ends or begins in this process.
func (s *Search) terminated() bool {
	return s.listener.cfg.TLS != nil || s.view != nil && s.view.TLS != nil
}

// handover returns what goes on with the client on a goroutine.
func (s *Search) handover() func(*core.Handed) {
	l, view, offers := s.listener, s.view, s.client.Hello.ALPN
	return func(h *core.Handed) { l.cfg.Handed(h, &Handed{Listener: l, view: view, ALPN: offers}) }
}

// giveUp ends the search. It returns false, so that Next says so.
func (s *Search) giveUp(err error) bool {
	s.stage, s.err = over, err
	return false
}

// choose picks an endpoint. Who comes while others wait for room waits behind them, or goes to
// the fallback if it is there that those wait who may have the room of both, and who
// comes while others are held does not connect in vain either.
func (s *Search) choose(now int64) (core.Step, bool) {
	v := s.view
	if !s.began {
		s.began = true
		v.Budget.Began(now)
	}
	if v.up.queue.waiting.Load() > 0 && (v.QueueSize > 0 || v.Fallback != nil) {
		return s.line(now, balance.ErrFull)
	}
	if v.up.held.waiting.Load() > 0 && v.holds() {
		return core.Step{}, s.unavailable(balance.ErrUnavailable, now)
	}
	switch err := s.pick(now); {
	case err == nil:
		s.stage = connecting
	case errors.Is(err, balance.ErrFull):
		return s.line(now, err)
	default:
		return core.Step{}, s.unpicked(err, now)
	}
	return core.Step{}, false
}

// unpicked goes on where an error says why no endpoint is picked. It returns false, so that
// Next does.
func (s *Search) unpicked(err error, now int64) bool {
	if err == errAgain {
		s.stage = pausing
		return false
	}
	return s.unavailable(err, now)
}

// line has the client wait for room, if it may.
func (s *Search) line(now int64, cause error) (core.Step, bool) {
	v := s.view
	s.yield(now)
	if v.QueueSize <= 0 {
		return core.Step{}, s.unavailable(cause, now)
	}
	back := s.visited(&v.up.queue) != 0
	if !s.enqueue(&v.up.queue, v.QueueSize, now) {
		v.freed()
		return core.Step{}, s.unavailable(ErrQueueFull, now)
	}
	if !back {
		v.up.queued.Add(1)
	}
	s.stage, s.due, s.round = waiting, 0, len(s.tried) // all of them may be tried again when there is room
	// There may have been room between the look and the joining, of which nobody was told.
	v.up.queue.next()
	s.joinEarlier(s.visited(&v.up.queue))
	s.back = false
	return core.Step{Do: core.Park, Timeout: s.untilTrials(max(s.leftInLine(now), 1), now)}, true
}

// wait looks whether it is the client's turn, and there is room.
func (s *Search) wait(now int64) (core.Step, bool) {
	v := s.view
	left := s.leftInLine(now)
	if s.pickEarlier(left, now) {
		s.stage = connecting
		return core.Step{}, false
	}
	if !v.up.queue.isFirst(&s.place) {
		s.due = 0
	} else if s.due <= now {
		v.up.queue.claim(&s.place)
	}
	for v.up.queue.turnOf(&s.place) {
		trial, err := s.pickFree(&s.due, left, true, now)
		switch {
		case err == nil:
			s.leaveLine()
			s.stage = connecting
			s.beginTrial(trial, now)
			return core.Step{}, false
		case err != errFailing && !errors.Is(err, balance.ErrFull):
			s.leaveLine()
			return core.Step{}, s.unpicked(err, now)
		case left > 0 && v.up.queue.stayFor(&s.place, err != errFailing):
			continue
		}
		break
	}
	switch {
	case left <= 0:
		s.leaveLine()
		return core.Step{}, s.unavailable(ErrQueueTimeout, now)
	case !v.up.queue.has(&s.place):
		s.leaveEarlier()
		return core.Step{}, s.unavailable(ErrQueueFull, now)
	}
	return core.Step{Do: core.Park, Timeout: s.untilTrials(left, now)}, true
}

// leaveLine ends the client's waiting for room.
func (s *Search) leaveLine() {
	s.view.up.queue.leave(&s.place)
	s.leaveEarlier()
}

// connect says which of the endpoint's addresses is to be connected to.
func (s *Search) connect(now int64) (core.Step, bool) {
	if s.addrs == nil {
		return core.Step{Do: core.Resolve, Host: s.endpoint.host, Resolver: s.listener.cfg.Resolver, Timeout: s.left(now, 1)}, true
	}
	v := s.view
	return core.Step{
		Do: core.Connect, Address: s.addrs[s.at], Source: s.source(), Timeout: s.left(now, len(s.addrs)-s.at),
		MaybeSelf: s.endpoint.self, Preface: v.SendProxy > 0,
	}, true
}

// source is the local address to connect from; a unix socket has none.
func (s *Search) source() netip.Addr {
	if s.addrs[s.at].Path != "" {
		return netip.Addr{}
	}
	return s.view.Source
}

// left is an equal share, among so many, of the time that the endpoint has left.
func (s *Search) left(now int64, shares int) time.Duration {
	if s.end == 0 {
		return 0
	}
	return time.Duration(max((s.end-now)/int64(shares), 1))
}

// Resolved implements [core.Search].
func (s *Search) Resolved(ips []netip.Addr, err error) {
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

// Failed implements [core.Search].
func (s *Search) Failed(err error, now int64) {
	if s.endpoint == nil { // an original destination
		s.giveUp(fmt.Errorf("connect to %s: %w", s.original.AddrPort, err))
		return
	}
	if len(s.addrs) > 1 {
		err = fmt.Errorf("%s: %w", s.addrs[s.at].AddrPort, err)
	}
	s.failed = append(s.failed, err)
	if s.at++; s.at < len(s.addrs) && (s.end == 0 || now < s.end) {
		return
	}
	o := health.ConnectFailed
	switch {
	case ownFault(err):
		o = health.Unknown
	case errors.Is(err, syscall.ECONNRESET):
		// It was reached, and has reset the connection before anybody looked: one that is
		// refused fails with ECONNREFUSED (net/ipv4/tcp_input.c, tcp_reset).
		o = health.Reset
		s.touched(now)
	}
	s.missed(now, o)
}

// touched tells those who judge the endpoint that it was reached.
func (s *Search) touched(now int64) {
	if s.breaker != nil {
		s.breaker.Reached()
	}
	if m := s.endpoint.judge.Load(); m != nil {
		m.Reached(now)
	}
}

// unavailable ends the search among a view's usable endpoints: there is the fallback, or the
// last resort. It returns false, so that Next goes on.
func (s *Search) unavailable(err error, now int64) bool {
	v := s.view
	switch {
	case s.last:
		s.resort(err, now)
	case v.Fallback != nil:
		s.leave(s.passage.last, now)
		if !s.back {
			v.up.fallbacks.Add(1)
		}
		s.view, s.stage = v.Fallback, routing
		s.began, s.tried, s.round, s.retries, s.pauses = false, s.tried[:0], 0, 0, 0
	case v.Respond != nil:
		s.leave(s.passage.last, now)
		v.up.fallbacks.Add(1)
		s.stage = responding
	default:
		s.resort(err, now)
	}
	return false
}

// backoff is how long the nth pause is: between half of the time and all of it, so
// that clients that failed together do not come back together.
func (v *View) backoff(n int) time.Duration {
	d := v.Backoff << min(n-1, 20)
	if d > v.MaxBackoff || d < v.Backoff {
		d = v.MaxBackoff
	}
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d/2+1)
}

// Preface implements [core.Search].
func (s *Search) Preface(b []byte) []byte {
	c := s.client
	of := header.Connection{
		Source: c.Source().AddrPort(), Destination: s.listener.destination(c), Authority: c.Hello.ServerName,
		TLVs: c.Header.TLVs, Local: c.Header.Local,
	}
	s.handed.tell(&of)
	return header.Append(b, s.view.SendProxy, &of)
}

// Reached implements [core.Search].
func (s *Search) Reached(now int64) (*relay.Limits, error) {
	l, e := s.listener, s.endpoint
	if err := s.stillMay(); err != nil {
		return nil, err
	}
	if e == nil {
		return &l.limits, nil
	}
	e.total.Add(1)
	s.touched(now)
	e.reached(s.start, now)
	e.connected(now)
	if b := s.view.Breaker; b != nil {
		b.Reached()
	}
	if s.retries > 0 {
		s.view.Budget.Repay(now)
	}
	if s.beyond {
		s.view.up.lastResort.Add(1)
	}
	b := s.bond(now)
	s.endpoint, s.passage = nil, passage{}
	return &b.limits, nil
}

// bond binds the session that begins. One that is a trial, or a last resort, has a bond of its
// own, which finds out whether the client is served.
func (s *Search) bond(now int64) *bond {
	l, e, v := s.listener, s.endpoint, s.view
	tried := s.permit.Trial() || s.passage.permit.Trial() || s.forced || s.passage.forced
	if !tried && !s.beyond {
		return s.sampled(l.bondOf(v, e, s.breaker), now)
	}
	b := l.newBond(v, e, s.breaker)
	b.permit, b.upPermit, b.from = s.permit, s.passage.permit, s.from()
	b.forced, b.upForced = s.forced, s.passage.forced
	b.resort, b.began = s.beyond, now
	return b
}

// Err implements [core.Search].
func (s *Search) Err() error { return s.err }

// Close implements [core.Search].
func (s *Search) Close() {
	if q := s.place.in.Load(); q != nil {
		q.leave(&s.place)
	}
	s.leaveEarlier()
	if s.endpoint != nil {
		s.settle(health.Unknown, s.listener.now())
	}
	if s.passage.through {
		s.leave(health.Unknown, s.listener.now())
	}
	s.client, s.view, s.root, s.failures, s.cause, s.err = nil, nil, nil, nil, nil, nil
	clear(s.visits[:cap(s.visits)])
	clear(s.tried[:cap(s.tried)])
	s.tried = s.tried[:0]
	s.failed = slices.Delete(s.failed, 0, len(s.failed))
	if s.home != nil {
		s.listener, s.home = s.home, nil
	}
}
