package router

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A slowConnects counts the clients that have waited for a connection to an endpoint for a second or
// more: the first segment at least was not answered.
type slowConnects struct {
	n, since atomic.Int64
}

func (c *slowConnects) add(now int64) {
	if c.n.Add(1) == 1 {
		c.since.Store(now)
	}
}

// SlowConnects returns how many clients have waited for a connection to the endpoint for a second or
// more, and still wait, with the clock since which there is one.
func (e *Endpoint) SlowConnects() (n, since int64) {
	return e.connecting.n.Load(), e.connecting.since.Load()
}

// silentToConnects reports whether a client has waited for a connection to the endpoint for a second or more, still
// waits, and no other has been connected since it began. The endpoint's host is gone, as a rule, and it will be
// known when the connect's time is over.
func (e *Endpoint) silentToConnects() bool {
	n, since := e.SlowConnects()
	return n > 0 && e.trials.made.Load() < since-int64(firstResent)
}

// endSlow is the end of an attempt, if it was a slow one.
func (s *Search) endSlow() {
	if s.slow {
		s.slow = false
		s.endpoint.connecting.n.Add(-1)
	}
}

// recheckEvery is how often a client that is being connected looks whether it had better not wait
// for that connection.
const recheckEvery = 250 * time.Millisecond

// Abandon implements [worker.Search]. A connection that is being made is given up if the client may not
// come in any more, or is served elsewhere by a reload; if the endpoint is to get no more clients; or if
// the endpoint is not usable, as when it is tried as a last resort, and another one is again, or the
// fallback serves. So a client that tries a dead host is not kept there when another endpoint is back.
// Nor do such clients keep the places under the breaker's bounds from others.
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

// unanswered reports whether the endpoint has not answered for a second, and that is failure enough:
// another client could not reach it either, and there is a fallback for this one; or clients wait for
// the place that this one has under the breaker's bounds.
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

// servedBy reports whether an endpoint of a snapshot, or of its fallbacks, serves the client, or a response
// of one of them does, if that counts.
func (s *Search) servedBy(snap *UpstreamSnapshot, response bool) bool {
	for ; snap != nil; snap = snap.Fallback {
		if response && snap.Respond != nil || s.anotherWorks(snap) {
			return true
		}
	}
	return false
}

// anotherWorks reports whether a snapshot has an endpoint for the client that is usable and not failing.
// Those that the client could not reach itself do not count until another client has.
func (s *Search) anotherWorks(snap *UpstreamSnapshot) bool {
	set := snap.Set()
	if set == nil || !set.Has(lb.Working) {
		return false
	}
	tried := membersAt(set, s.endpoint)
	for i := range s.failures {
		if f := &s.failures[i]; f.endpoint.trials.made.Load() < f.ended {
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

// membersAt returns the members of a set that have the address of an endpoint, which may be another
// upstream's.
func membersAt(set *lb.Set, e *Endpoint) (at []*lb.Endpoint) {
	for _, m := range set.Members() {
		if m.Endpoint.Of.(*Endpoint).Address == e.Address {
			at = append(at, m.Endpoint)
		}
	}
	return at
}

// abandoned ends an attempt that was given up. It is no evidence of the endpoint, unless that has not
// answered for a second.
func (s *Search) abandoned(now int64) {
	e := s.endpoint
	if s.unanswered(now) && !e.State().Draining && e.Weight() != 0 {
		s.failed = append(s.failed, fmt.Errorf("no answer within %v: %w", time.Duration(now-s.start).Round(time.Millisecond), syscall.ETIMEDOUT))
		s.missed(now, health.ConnectFailed)
		return
	}
	s.failed = s.failed[:0]
	s.client.Record.Fail(e.name, s.start, now, worker.ErrAbandoned)
	s.settle(health.Unknown, now)
	s.blame(failure{
		endpoint: e, err: fmt.Errorf("connect to %s: %w after %v", e.Address, worker.ErrAbandoned, time.Duration(now-s.start).Round(time.Millisecond)),
		began: s.start, ended: now, own: true,
	})
	if s.Overruled() { // Next has it begin anew
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
	s.afterMissed(e, now)
}
