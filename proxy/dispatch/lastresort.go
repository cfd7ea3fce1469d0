package dispatch

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/health"
)

// A client for whom there is no endpoint, and no fallback, is not refused as long as one may
// serve it, whatever is thought of them. As a last resort it tries, each of them once:
//
//   - those that are usable, past the upstream's breaker, its attempts and its budget;
//   - those that are ejected, whose breaker is open, or that do not answer their checks;
//   - those that are failing: to which the last connection could not be made. Of these the
//     one first that was found so longest ago, and at intervals: see trials.
//
// Those that are draining, of weight 0, at their limit, or barred by their checks are not
// tried. Where it comes to a fallback that has nobody either, the endpoints of both are.

// trials are when an endpoint that is failing may be tried again. So what is connected in
// vain does not depend on how many clients there are.
type trials struct {
	failed atomic.Int64 // clock, of the last one
	due    atomic.Int64 // clock, of the next one
}

const (
	// trialEvery is how long after a trial has failed the endpoint is tried again. trialShare
	// is what each endpoint adds up to that where there are many: an upstream has no more than
	// two hundred trials in a second.
	trialEvery = 50 * time.Millisecond
	trialShare = 5 * time.Millisecond
	// trialPending is how long after a trial has begun another one does, if it has not come
	// to anything by then: segments may be lost.
	trialPending = 500 * time.Millisecond
)

// missed notes that a connection to the endpoint could not be made.
func (e *Endpoint) missed(now int64) {
	u := e.up
	at := now + int64(u.trialEvery())
	e.trials.failed.Store(now)
	e.trials.due.Store(at)
	for next := u.trial.Load(); at < next && !u.trial.CompareAndSwap(next, at); next = u.trial.Load() {
	}
	e.SetFailing(true)
	u.held.next() // who is first waits for the next trial
}

func (u *Upstream) trialEvery() time.Duration {
	n := 0
	if set := u.set.Load(); set != nil {
		n = len(set.Members())
	}
	return max(trialEvery, time.Duration(n)*trialShare)
}

// reached notes that a connection to the endpoint was made that began at a time.
func (e *Endpoint) reached(began int64) {
	if m := e.judge.Load(); m != nil {
		m.Connected(began)
	}
	e.notFailing()
}

func (e *Endpoint) notFailing() {
	if e.Failing() {
		e.SetFailing(false)
		e.up.held.next()
	}
}

// resort has the client try an endpoint as a last resort, or be held, or refused for an
// error.
func (s *Search) resort(err error, now int64) {
	if !s.last {
		s.last, s.untold = true, len(s.tried) == 0
	}
	_, ok := s.pickLast(now)
	switch {
	case ok:
		s.stage = connecting
	case !s.hold(err, now):
		s.refuse(err, now)
	}
}

// pickLast acquires an endpoint of the view, or of those that it is a fallback of, as a last
// resort. full says that there is none because of limits.
func (s *Search) pickLast(now int64) (full, ok bool) {
	end := s.view
	for v := s.root; ; v = v.Fallback {
		if s.view != v {
			s.leave(health.Unknown, now)
			s.view = v
		}
		vFull, ok := s.pickLastOf(v.Set(), now)
		if full = full || vFull; ok || v == end {
			return full, ok
		}
	}
}

func (s *Search) pickLastOf(set *balance.Set, now int64) (full, ok bool) {
	if set == nil {
		return false, false
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if s.pass(true) != nil {
		return true, false
	}
	e, full := s.lastOf(set)
	if e == nil {
		e = s.tryFailing(set, now)
	}
	if e == nil || !s.admit(e, true, now) {
		s.rest(now)
		return full, false
	}
	s.view.up.lastResort.Add(1)
	return full, true
}

// usableTries is how many that are usable and failing are passed over in a pick.
const usableTries = 16

// lastOf acquires an endpoint that is not failing, a usable one if there is one.
func (s *Search) lastOf(set *balance.Set) (e *balance.Endpoint, full bool) {
	tried := len(s.tried)
	defer func() { s.tried = s.tried[:tried] }()
	r := s.request()
	for range usableTries {
		r.Tried = s.tried
		e, err := set.Pick(&r)
		if full = err == balance.ErrFull; err != nil {
			break
		}
		if !e.Failing() {
			return e, false
		}
		e.Release()
		s.tried = append(s.tried, e)
	}
	r.LastResort, r.Tried = true, s.tried[:tried]
	e, err := set.Pick(&r)
	return e, full || err == balance.ErrFull
}

// tryFailing acquires the failing endpoint that was found so longest ago, of those that may be
// tried again and that this client has not tried.
func (s *Search) tryFailing(set *balance.Set, now int64) *balance.Endpoint {
	u := s.view.up
	if now < u.trial.Load() {
		return nil
	}
	var first *Endpoint
	next := now + int64(u.trialEvery()) // it is looked at all of them again by then
	members := set.Members()
	for i := range members {
		b := members[i].Endpoint
		if !b.Failing() || !b.OpenAnyway() {
			continue
		}
		e := b.Of.(*Endpoint)
		switch due := e.trials.due.Load(); {
		case due > now:
			next = min(next, due)
		case slices.Contains(s.tried, b):
			next = now // somebody else may
		case first == nil:
			first = e
		default:
			next = now
			if e.trials.failed.Load() < first.trials.failed.Load() {
				first = e
			}
		}
	}
	if u.trial.Store(next); first == nil {
		return nil
	}
	due := first.trials.due.Load()
	if due > now || !first.trials.due.CompareAndSwap(due, now+int64(trialPending)) || !first.AcquireAnyway() {
		return nil
	}
	return first.Endpoint
}
