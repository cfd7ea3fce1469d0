package router

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// An attempt is one attempt to reach an endpoint.
type attempt struct {
	breaker    *health.Breaker // the endpoint's breaker that was asked; nil: none
	permit     health.Permit
	forced     bool // in panic, let through by an open breaker
	addrs      []loop.Address
	at         int   // index in addrs of the address that is being tried
	start      int64 // clock
	falls      int64 // of the endpoint, at the start
	end        int64 // clock at which the attempt is given up; 0: never
	failed     []error
	lastResort bool // the endpoint's state allows only a last resort
	trial      bool // the client waits for room at other endpoints
	slow       bool // counted in the endpoint's connecting
}

// missed ends the attempt at an endpoint that was not reached, and reports the outcome.
func (s *Search) missed(now int64, o health.Outcome) {
	e := s.endpoint
	s.client.Record.Fail(e.name, s.start, now, s.lastError())
	s.settle(o, now)
	s.blame(failure{
		endpoint: e, err: fmt.Errorf("connect to %s: %w", e.Address, line(s.failed)), began: s.start, ended: now, own: !o.Failed(),
	})
	if !o.Failed() { // other endpoints may not need the resource that is lacking
		s.visits = s.visits[:0]
	}
	s.afterMissed(e, now)
}

func (s *Search) afterMissed(e *Endpoint, now int64) {
	s.tried = append(s.tried, e.Endpoint)
	s.stage = choosing
	switch {
	case s.onlyLastResort:
		s.resort(s.causes(), now)
		return
	case s.trial && !s.back: // back to the queue of this upstream
		s.stage = queueing
		return
	}
	if s.retries >= s.snapshot.Attempts || !s.lastTurnedDown() && !s.snapshot.Budget.Retry(now) {
		s.unavailable(s.causes(), now)
		return
	}
	s.retries++
	s.client.Record.Retry()
	atomic.AddInt64(&s.snapshot.upstream.counts.Retries, 1)
}

// A failure is why an endpoint could not be reached.
type failure struct {
	endpoint     *Endpoint
	err          error
	began, ended int64 // clock
	own          bool  // the endpoint is not the cause
	turnedDown   bool  // own, and not this machine, see [Search.turnedDown]
	late         int   // number of attempts that began after the client's patience was over
}

// maxFailures bounds the failures that a client remembers, so that attempts after many
// failures do not become slower. An endpoint is failing, and has a time for its next trial,
// even when its failure is forgotten. A client never forgets an endpoint that has turned it
// down.
const maxFailures = 32

// blame notes a failure. In a last resort, in which a client may try an endpoint again and again
// while it is held, the failure replaces the previous one.
func (s *Search) blame(f failure) {
	for i := range s.failures {
		if s.onlyLastResort && s.failures[i].endpoint == f.endpoint {
			if f.late = s.failures[i].late; s.outOfPatience(f.began) {
				f.late++
			}
			s.failures[i] = f
			return
		}
	}
	if len(s.failures) >= maxFailures {
		if i := slices.IndexFunc(s.failures, func(f failure) bool { return !f.turnedDown }); i >= 0 {
			s.failures = slices.Delete(s.failures, i, i+1)
			s.forgotten++
		}
	}
	s.failures = append(s.failures, f)
}

// causes returns why the client has not reached any endpoint.
func (s *Search) causes() error {
	errs := make([]error, len(s.failures), len(s.failures)+1)
	for i, f := range s.failures {
		errs[i] = f.err
	}
	if s.forgotten > 0 {
		errs = append(errs, fmt.Errorf("and %d more before", s.forgotten))
	}
	return line(errs)
}

// lastError returns why the attempt's last connect failed, or nil.
func (s *Search) lastError() error {
	if len(s.failed) == 0 {
		return nil
	}
	return s.failed[len(s.failed)-1]
}

// settle gives back an endpoint without a connection. The monitors count one failure for this
// client, however often it has tried the endpoint.
func (s *Search) settle(o health.Outcome, now int64) {
	s.endSlow()
	e, reached := s.endpoint, o == health.Reset
	blamed := slices.ContainsFunc(s.failures, func(f failure) bool { return f.endpoint == e }) // by this client, in an earlier attempt
	known := blamed || s.forgotten > 0 && e.Failing()
	s.endpoint = nil
	e.Release()
	from := health.UnsampledSource
	if o.Failed() && e.sample.take(now) {
		from = health.NoSource // an endpoint that was not reached does not know the client's source
	}
	var cause string
	if err := s.lastError(); err != nil {
		e.unreached(o, err, now)
		if i := localFault(err); i >= 0 {
			e.upstream.LocalFaults.Add(i)
		}
		cause = causeOf(err)
	}
	if o.Failed() {
		e.missed(s.start, now)
		e.checkSoon(now)
		if errno := errnoOf(s.lastError()); errno == syscall.ECONNREFUSED || errno == syscall.ENOENT { // no process listens there
			e.answers.Refused()
		}
	}
	switch {
	case s.permit.Trial() || o != health.Unknown && !known:
		e.setCause(cause)
		e.report(s.permit, from, o, now)
	case o.Failed():
		e.fail()
	}
	if s.breaker != nil {
		s.breaker.End(reached)
	}
	if !s.unreported && !s.trial || s.entry.permit.Trial() {
		s.entry.note(o, from, cause)
	}
}

// SlowConnects returns how many clients have waited for a connection to the endpoint for a second or longer, and since when
// there are such clients.
func (e *Endpoint) SlowConnects() (n, since int64) {
	return e.connecting.n.Load(), e.connecting.since.Load()
}

// silentToConnects reports whether a client has waited for a connection to the endpoint for a second or more, still waits,
// and no other client has been connected since it began. Usually the endpoint's host is gone, but only the connect timeout
// makes that certain.
func (e *Endpoint) silentToConnects() bool {
	n, since := e.SlowConnects()
	return n > 0 && e.trials.made.Load() < since-int64(firstResent)
}

// endSlow ends the count of a slow attempt. It does nothing for other attempts.
func (s *Search) endSlow() {
	if s.slow {
		s.slow = false
		s.endpoint.connecting.n.Add(-1)
	}
}

// recheckEvery is the interval at which a client that is being connected looks whether to give up the connection.
const recheckEvery = 250 * time.Millisecond

// Abandon implements [worker.Search]. An attempt to connect is given up if the client is no longer admitted, if a reload
// serves it elsewhere, or if the endpoint gets no more clients. It is also given up if the endpoint is not usable (a last
// resort) and another endpoint is usable again, or the fallback serves: a client must not stay at a dead host when
// another endpoint is back, or take up a place under the breaker's bounds there.
func (s *Search) Abandon(now int64) bool {
	if s.Overruled() {
		return true
	}
	e := s.endpoint
	if e == nil { // an original destination
		return false
	}
	if now-s.start >= int64(firstResent) && !s.slow && s.addrs != nil {
		s.slow = true
		e.connecting.add(now)
	}
	if e.State().Draining || e.Weight() == 0 {
		return true
	}
	if l := s.elsewhere(); l != nil && s.servedBy(l.snapshotFor(s.client), true) {
		return true
	}
	switch {
	case s.onlyLastResort:
		return (e.unusable() || e.Failing()) && s.servedBy(s.root, false)
	case s.unanswered(now):
		return s.servedBy(s.snapshot, true)
	}
	return e.unusable() && s.servedBy(s.snapshot, true)
}

// unanswered reports whether the endpoint has not answered for a second and this counts as a failure. It counts if another
// client could not reach the endpoint either and this client has a fallback, or if clients wait for this client's place
// under the breaker's bounds.
func (s *Search) unanswered(now int64) bool {
	if s.onlyLastResort || now-s.start < int64(firstResent) {
		return false
	}
	snap := s.snapshot
	if s.endpoint.Failing() && (snap.Fallback != nil || snap.Respond != nil) {
		return true
	}
	return snap.Breaker != nil && snap.upstream.queue.waiting.Load() > 0 && snap.Breaker.Full()
}

// servedBy reports whether a snapshot or one of its fallbacks has an endpoint that serves the client or, if response is
// set, a response.
func (s *Search) servedBy(snap *UpstreamSnapshot, response bool) bool {
	for ; snap != nil; snap = snap.Fallback {
		if response && snap.Respond != nil || s.anotherWorks(snap) {
			return true
		}
	}
	return false
}

// anotherWorks reports whether a snapshot has an endpoint for the client that is usable and not failing.
// An endpoint that the client itself could not reach counts only once another client has reached it, and an endpoint that
// has turned it down never counts.
func (s *Search) anotherWorks(snap *UpstreamSnapshot) bool {
	set := snap.Set()
	if set == nil || !set.Has(lb.Working) {
		return false
	}
	tried := membersAt(set, s.endpoint)
	for i := range s.failures {
		if f := &s.failures[i]; f.turnedDown || f.endpoint.trials.made.Load() < f.ended {
			tried = append(tried, membersAt(set, f.endpoint)...)
		}
	}
	r := s.request(snap)
	r.Tried, r.Eligible = tried, lb.Working
	e, err := set.Pick(&r)
	if err != nil {
		return false
	}
	e.Return()
	return true
}

// membersAt returns the members of a set at the address of an endpoint. The endpoint may belong to another upstream.
func membersAt(set *lb.Set, e *Endpoint) (at []*lb.Endpoint) {
	for _, m := range set.Members() {
		if m.Endpoint.Of.(*Endpoint).Address == e.Address {
			at = append(at, m.Endpoint)
		}
	}
	return at
}

// abandoned ends an attempt that was given up. It is no evidence about the endpoint, unless the
// endpoint has not answered for a second.
func (s *Search) abandoned(now int64) {
	e := s.endpoint
	if s.unanswered(now) && !e.State().Draining && e.Weight() != 0 {
		s.failed = append(s.failed, fmt.Errorf("no answer within %v: %w", time.Duration(now-s.start).Round(time.Millisecond), syscall.ETIMEDOUT))
		s.missed(now, health.ConnectFailed)
		return
	}
	s.failed = s.failed[:0]
	s.client.Record.Fail(e.name, s.start, now, record.ErrAbandoned)
	s.settle(health.Unknown, now)
	s.blame(failure{
		endpoint: e, err: fmt.Errorf("connect to %s: %w after %v", e.Address, record.ErrAbandoned, time.Duration(now-s.start).Round(time.Millisecond)),
		began: s.start, ended: now, own: true,
	})
	if s.mayJoin() != nil { // Next begins the search again
		s.stage = choosing
		return
	}
	if l := s.elsewhere(); l != nil {
		s.reroute(l, now)
		if set := l.snapshotFor(s.client).Set(); set != nil {
			s.tried = append(s.tried, membersAt(set, e)...)
		}
		return
	}
	if s.outdated() {
		s.tried = append(s.tried, e.Endpoint)
		s.connectAnew(now)
		return
	}
	s.afterMissed(e, now)
}

// turnsDown reports whether an endpoint was reached and refuses something that only this client
// needs: TLS that is passed through, or the application protocol that the client has chosen. Or it may ban the client's
// source. Other clients may be served, so this is not a failure of the endpoint.
func (s *Search) turnsDown(err error, now int64) bool {
	if s.client.Postgres.Hidden() && errors.Is(err, postgres.ErrEndpoint) || s.mayBan(err, now) {
		return true
	}
	var handshake *tlsterm.Error
	return errors.As(err, &handshake) && handshake.Kind == tlsterm.Protocol &&
		s.offloaded.conn() != nil && s.offloaded.tls.NegotiatedProtocol != "" && s.offloaded.Listener.cfg.Preread.Postgres == nil
}

// mayBan reports whether the endpoint may ban the client's source: it has got the client's PROXY header and then ends TLS,
// or never begins it, while the upstream serves other sources. Otherwise it may be away, and the client can be held until it
// is back.
func (s *Search) mayBan(err error, now int64) bool {
	set := s.snapshot.Set()
	if s.snapshot.SendProxy == 0 || !unansweredTLS(err).Failed() || set == nil {
		return false
	}
	from := s.from()
	return slices.ContainsFunc(set.Members(), func(of lb.Member) bool {
		e := of.Endpoint.Of.(*Endpoint)
		m, st := e.monitor.Load(), e.State()
		return m == nil || !st.Down && !st.Ejected && !e.losesClients(now, true) && m.ServesOthers(from, now)
	})
}

// unansweredTLS returns the outcome of an attempt to begin TLS with an endpoint that has not answered; otherwise Unknown.
func unansweredTLS(err error) health.Outcome {
	var handshake *tlsterm.Error
	tls := errors.As(err, &handshake)
	switch {
	case errors.Is(err, postgres.ErrNoAnswer), tls && handshake.Kind == tlsterm.Timeout:
		return health.Silent
	case errors.Is(err, postgres.ErrUnanswered), tls && handshake.Kind == tlsterm.Closed:
		return health.HungUp
	}
	return health.Unknown
}

// turnedDown ends an attempt: the client does not try its endpoint again. If the endpoint answered, no monitor hears of it,
// and a trial ends without a decision. If it did not answer, it may be frozen: this is reported like a session without a
// first byte, and judged by the sources of clients and by how the endpoint serves others.
func (s *Search) turnedDown(err error, now int64) {
	e, o := s.endpoint, unansweredTLS(err)
	s.client.Record.Fail(e.name, s.start, now, err)
	s.touched(now)
	if o == health.Unknown { // it takes other clients
		s.declined = true
		e.accepted(s.start, now)
	}
	s.endSlow()
	s.endpoint = nil
	e.Release()
	from := health.UnsampledSource
	if o.Failed() && e.sample.take(now) {
		from = s.from()
	}
	if o.Failed() || s.permit.Trial() {
		e.ended(o, now)
		e.report(s.permit, from, o, now)
	}
	if s.breaker != nil {
		s.breaker.End(true)
	}
	if !s.unreported && !s.trial || s.entry.permit.Trial() {
		s.entry.lastOutcome, s.entry.from, s.entry.cause = o, from, ""
	}
	s.blame(failure{endpoint: e, err: fmt.Errorf("%s: %w", e.Address, line(s.failed)), began: s.start, ended: now, own: true, turnedDown: true})
	s.afterMissed(e, now)
}

// lastTurnedDown reports whether the last endpoint that the client tried has refused it. The retry that follows is not taken
// from the budget: each endpoint refuses a client once.
func (s *Search) lastTurnedDown() bool {
	n := len(s.failures)
	return n > 0 && s.failures[n-1].turnedDown
}

// onlyTurnedDown reports whether every endpoint that the client tried was reached and refused it, or one has declined it.
// Then waiting does not help.
func (s *Search) onlyTurnedDown() bool {
	return s.declined || len(s.failures) > 0 && !slices.ContainsFunc(s.failures, func(f failure) bool { return !f.turnedDown })
}
