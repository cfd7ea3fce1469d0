package router

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// An attempt is one at an endpoint.
type attempt struct {
	breaker    *health.Breaker // the endpoint's breaker that was asked; nil: none
	permit     health.Permit
	forced     bool // let through in panic, by a breaker that is open
	addrs      []loop.Address
	at         int   // index in addrs of the address that is being tried
	start      int64 // clock
	end        int64 // clock at which the attempt is given up; 0: never
	failed     []error
	lastResort bool // as a last resort, of which there would be none by the states of endpoints
	trial      bool // by a client that waits for room at others
	slow       bool // counted by the endpoint
}

// pick acquires an endpoint that every breaker lets the client through to.
func (s *Search) pick(now int64) error {
	snap := s.snapshot
	set := snap.Set()
	if set == nil {
		return lb.ErrNoEndpoint
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if err := s.enterBreaker(snap.upstream.panicking(set)); err != nil {
		return err
	}
	err := s.pickFrom(set, now)
	for err != nil && snap.Set() != set { // it was replaced meanwhile, and its endpoints drain
		set = snap.Set()
		err = s.pickFrom(set, now)
	}
	if err == lb.ErrFull {
		s.suspendEntry(now)
	}
	return err
}

// errAgain says that a client has tried all endpoints that it could, and may try them again
// after a pause.
var errAgain = errors.New("every usable endpoint has been tried")

// A pickPass is a pass of a pick: the next one comes when there is no endpoint in the one before.
type pickPass uint8

const (
	avoiding    pickPass = iota // any usable endpoint, but those that [Search.avoids] reports
	onlyWorking                 // those that the last client could reach
	anyUsable
)

func (p pickPass) eligible() lb.Eligibility {
	if p == onlyWorking {
		return lb.Working
	}
	return lb.Usable
}

// pickFrom picks from a set, in up to three passes. Endpoints that this client has tried are tried again
// when there are no others, each of them once before one is tried a third time, and after a pause.
func (s *Search) pickFrom(set *lb.Set, now int64) error {
	tried, panicking := len(s.tried), s.snapshot.upstream.panicking(set)
	defer func() { s.tried = s.tried[:tried] }() // what is appended counts for this pick alone
	r := s.request(s.snapshot)
	pass, avoided := avoiding, 0
	for range 3*len(set.Members()) + maxAvoided + 3 {
		r.Eligible, r.Tried = pass.eligible(), s.tried[s.round:]
		e, err := set.Pick(&r)
		if err != nil && avoided > 0 && pass < anyUsable {
			s.tried = s.tried[:tried]
			pass++
			continue
		}
		if err == lb.ErrTried && s.round < tried {
			if err := s.mayTryAgain(); err != nil {
				return err
			}
			s.mayRetry, s.round = false, tried
			r.Tried = s.tried[s.round:]
			e, err = set.Pick(&r)
		}
		switch {
		case err != nil:
			return err
		case pass == avoiding && (s.avoids(e, now) || s.loses(e, now)):
			e.Return()
			if avoided++; avoided == maxAvoided {
				pass = onlyWorking
			}
		case !panicking && s.trialInstead(e, set, now), s.admit(e, panicking, now):
			return nil
		}
		s.tried = append(s.tried, e)
	}
	return lb.ErrUnavailable
}

// mayTryAgain says why the client may not try an endpoint a second time now.
func (s *Search) mayTryAgain() error {
	switch {
	case s.triesOnce():
		return lb.ErrUnavailable
	case s.snapshot.Backoff > 0 && !s.mayRetry:
		return errAgain
	}
	return nil
}

// triesOnce reports whether the client tries no endpoint a second time: there is a fallback, which
// gets it at once, or one has turned it down, or it has waited for a connection that came to nothing for so long that another one
// to the same endpoint is for the last resort.
func (s *Search) triesOnce() bool {
	snap := s.snapshot
	return snap.Fallback != nil || snap.Respond != nil ||
		slices.ContainsFunc(s.failures, func(f failure) bool { return f.turnedDown || f.ended-f.began >= int64(firstResent) })
}

// maxAvoided is how many endpoints are avoided one by one. Where there are more, the pick is
// among those that the last client could reach, until there are none.
const maxAvoided = 8

// avoids reports whether the client should get another endpoint than one that was picked, if
// there is one. A client that could not reach an endpoint is to be sent to no other one that
// the last client could not reach; nor, if it has waited for a segment that was lost, to one
// that no client has reached since, for which it may have to wait as long. A client that has
// just come is sent to an endpoint that would be ejected if there were room only if it is time
// for another trial. No client is sent to one that lets a client wait, see silentToConnects.
func (s *Search) avoids(picked *lb.Endpoint, now int64) bool {
	e := picked.Of.(*Endpoint)
	if e.silentToConnects() {
		return true
	}
	if n := len(s.failures); n > 0 {
		last := &s.failures[n-1]
		lost := last.ended-last.began >= int64(firstResent)
		return e.Failing() || lost && e.trials.made.Load() < last.began
	}
	return e.Failing() && e.withheld(now, s.listener.cfg.Connect)
}

// firstResent is when the first segment of a connection is sent again (RFC 6298, TCP_TIMEOUT_INIT
// of include/net/tcp.h).
const firstResent = time.Second

// admit begins an attempt at an endpoint that was acquired, if its breaker lets the client
// through, or is not to be minded. Otherwise it gives the endpoint back.
func (s *Search) admit(picked *lb.Endpoint, anyway bool, now int64) bool {
	e := picked.Of.(*Endpoint)
	if s.breaker = e.breaker.Load(); s.breaker != nil {
		permit, forced, refused := askBreaker(s.breaker, anyway)
		if refused != health.Granted {
			e.Return()
			return false
		}
		s.permit, s.forced = permit, forced
	}
	s.take(e, now)
	return true
}

// take begins an attempt at an endpoint that was acquired.
func (s *Search) take(e *Endpoint, now int64) {
	s.endpoint, s.addrs, s.at, s.start = e, e.fixed, 0, now
	s.client.Record.Pick(e.name, now)
	if d := s.listener.cfg.Connect; d > 0 {
		s.end = now + int64(d)
	}
	if s.onlyLastResort && s.outOfPatience(now) {
		s.late++
	}
	if s.onlyLastResort && s.failing != 0 && e.Failing() { // for no longer than clients are held
		if end := now + int64(max(s.patience(now), trialPending)); s.end == 0 || s.end > end {
			s.end = end
		}
	}
}

// missed ends the attempt at an endpoint that was not reached, and reports the outcome.
func (s *Search) missed(now int64, o health.Outcome) {
	e := s.endpoint
	s.client.Record.Fail(e.name, s.start, now, s.lastError())
	s.settle(o, now)
	s.blame(failure{
		endpoint: e, err: fmt.Errorf("connect to %s: %w", e.Address, line(s.failed)), began: s.start, ended: now, own: !o.Failed(),
	})
	if !o.Failed() { // others may not lack the same resource
		s.visits = s.visits[:0]
	}
	s.afterMissed(e, now)
}

// afterMissed goes on when an endpoint was not reached.
func (s *Search) afterMissed(e *Endpoint, now int64) {
	s.tried = append(s.tried, e.Endpoint)
	s.stage = choosing
	switch {
	case s.onlyLastResort:
		s.resort(s.causes(), now)
		return
	case s.trial && !s.back: // it waits on at this one
		s.stage = queueing
		return
	}
	if s.retries >= s.snapshot.Attempts || !s.snapshot.Budget.Retry(now) {
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
	own          bool  // the cause is not the endpoint's
	turnedDown   bool  // nor this machine's, see [Search.turnedDown]
	late         int   // how many attempts began after the client's patience was over
}

// maxFailures is how many failures a client remembers, so that an attempt costs no more for those before. An
// endpoint whose failure is forgotten is failing, and has a time for its next trial. One that has turned the client
// down is not forgotten.
const maxFailures = 32

// blame notes a failure: as a last resort, where a client may try an endpoint for as long as
// it is held, in place of the one before.
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

// blames reports whether the client could not reach an endpoint before.
func (s *Search) blames(e *Endpoint) bool {
	return slices.ContainsFunc(s.failures, func(f failure) bool { return f.endpoint == e })
}

// causes are why the client has not reached any endpoint.
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

// lastError is why the attempt's last connect failed; nil: none has.
func (s *Search) lastError() error {
	if len(s.failed) == 0 {
		return nil
	}
	return s.failed[len(s.failed)-1]
}

// settle gives an endpoint back that is not connected to. The monitors that count failures get
// one for this client, however often it has tried the endpoint.
func (s *Search) settle(o health.Outcome, now int64) {
	s.endSlow()
	e, reached := s.endpoint, o == health.Reset
	known := s.blames(e) || s.forgotten > 0 && e.Failing()
	s.endpoint = nil
	e.Release()
	from := health.UnsampledSource
	if o.Failed() && e.sample.take(now) {
		from = health.NoSource // an endpoint that is not reached knows nothing of the client
	}
	var cause string
	if err := s.lastError(); err != nil {
		e.unreached(o, err, now)
		e.upstream.local.note(err)
		cause = causeOf(err)
	}
	if o.Failed() {
		e.missed(s.start, now)
		e.checkSoon(now)
		e.away(errnoOf(s.lastError()))
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
