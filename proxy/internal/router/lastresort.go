package router

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A client without an endpoint and without a fallback is not refused as long as some endpoint may serve it, whatever the
// states of endpoints are. As a last resort it tries each of
//
//   - usable endpoints, past the upstream's breaker, its attempts and its budget;
//   - endpoints that are ejected, have an open breaker, or do not answer their checks;
//   - failing endpoints, whose last connect failed: at intervals, and first the endpoint that was found
//     failing longest ago, see trials. While the other endpoints serve no client, these trials come first.
//
// A client that asked for TLS or for a protocol, and was declined by an endpoint, is refused at once: others must not be held behind it.
// Endpoints that drain, have weight 0, are at their limit or, unless in panic, are barred by their checks are not tried. If
// a fallback has no endpoint either, the endpoints of both upstreams are tried.

// trials say when a failing endpoint may be tried again, so that the number of failing connects does not depend on the
// number of clients.
type trials struct {
	began       atomic.Int64 // clock: begin of the last trial
	failed      atomic.Int64 // clock: last failed connect
	due         atomic.Int64 // clock: earliest begin of the next trial
	lastSuccess atomic.Int64 // clock: last successful connect
	made        atomic.Int64 // clock: last connection made, trial or not
	// A connection has ended the failing state, and there was no verdict against the endpoint since.
	revived atomic.Bool

	// For clients that are sent, one at a time, to the endpoint although it is withheld or ejected.
	retried atomic.Int64 // clock: the last such client
	retry   atomic.Int64 // clock: earliest next one
	turn    atomic.Int64 // clock: earliest next client while the endpoint loses its clients
}

const (
	// trialEvery is the pause between a failed trial and the endpoint's next one. Each endpoint of the
	// upstream lengthens it by trialShare, up to trialPending, so that an upstream makes at most two
	// hundred trials a second (see mayTry).
	trialEvery = 50 * time.Millisecond
	trialShare = 5 * time.Millisecond
	// trialBurst is how many trials an upstream may make at once, as in the beginning of an outage.
	trialBurst = 64
	// maxWindow is how many endpoints are looked at for one trial.
	maxWindow = 1024
	// trialPending is the pause between an undecided trial and the next one: segments may be
	// lost.
	trialPending = 500 * time.Millisecond
	// retryPending is the same pause while other endpoints serve and connects have no
	// timeout.
	retryPending = 5 * time.Second
)

// missed notes that a connect that began at a time has failed. It does nothing if another connect has succeeded since.
func (e *Endpoint) missed(began, now int64) {
	if began < e.trials.lastSuccess.Load() {
		return
	}
	e.trials.failed.Store(now)
	e.trials.revived.Store(false)
	if began >= e.trials.retried.Load() {
		e.trials.retry.Store(now + int64(trialEvery))
	}
	u := e.upstream
	at := now + int64(u.trialEvery())
	if e.Failing() {
		if began < e.trials.began.Load() {
			return // a later trial is under way
		}
		at = min(at, e.trials.due.Load()) // failures of connects from before do not move the next trial
	}
	e.trials.due.Store(at)
	for next := u.trial.Load(); at < next && !u.trial.CompareAndSwap(next, at); next = u.trial.Load() {
	}
	e.SetFailing(true)
	u.held.next() // the first client waits for the next trial
}

// withheld reports whether clients should go elsewhere, if possible: connections to the endpoint fail, and it would be
// ejected if max_ejected had room. For one client at a time it returns false, to find out whether connections still fail;
// connect is how long this may take.
func (e *Endpoint) withheld(now int64, connect time.Duration) bool {
	m := e.monitor.Load()
	if m == nil || !m.Withheld() {
		return false
	}
	if connect <= 0 {
		connect = retryPending
	}
	at := e.trials.retry.Load()
	if at > now || !e.trials.retry.CompareAndSwap(at, now+int64(connect)) {
		return true
	}
	e.trials.retried.Store(now)
	return false
}

func (u *Upstream) trialEvery() time.Duration {
	n := 0
	if set := u.set.Load(); set != nil {
		n = len(set.Members())
	}
	return min(max(trialEvery, time.Duration(n)*trialShare), trialPending)
}

// noteConnected notes that a connection that began at a time exists now.
func (e *Endpoint) noteConnected(began, now int64) {
	e.trials.made.Store(now)
	if m := e.monitor.Load(); m != nil {
		m.Connected(began)
	}
	if e.Failing() {
		e.trials.lastSuccess.Store(now)
		e.trials.revived.Store(true)
		e.SetFailing(false)
		e.upstream.held.next()
		e.upstream.queue.next()
	}
}

// resort lets the client try an endpoint as a last resort, or holds it, or refuses it with err.
func (s *Search) resort(err error, now int64) {
	if s.declined {
		s.refuse(err, false, now)
		return
	}
	fresh := !s.onlyLastResort && len(s.tried) == 0
	s.onlyLastResort, s.unreported = true, s.unreported || fresh
	if s.failing == 0 && !fresh {
		s.failing = now
	}
	if fresh && s.snapshot.upstream.held.waiting.Load() > 0 { // held clients came before, and look first
		s.failing = now
		if s.hold(err, now) {
			return
		}
	}
	full, ok := s.pickLast(now)
	if ok {
		s.stage = connecting
		return
	}
	if s.failing == 0 {
		s.failing = now
	}
	switch {
	case s.onlyTurnedDown() || !s.hold(err, now):
		s.refuse(err, full, now)
	case !full:
		s.noteUnserved(now)
	}
}

// pickLast acquires an endpoint as a last resort: of the snapshot, or of an earlier one in the chain of fallbacks. full
// says that only limits prevent one.
func (s *Search) pickLast(now int64) (full, ok bool) {
	if wait := s.exclude(now); wait || s.spent(now) {
		return false, false
	}
	for snap := s.root; snap != nil; snap = snap.Fallback {
		if s.snapshot != snap {
			s.exitBreaker(health.Unknown, now)
			s.snapshot = snap
		}
		snapFull, ok := s.pickLastOf(snap.Set(), now)
		if full = full || snapFull; ok {
			return full, true
		}
	}
	return full, false
}

// exclude leaves out endpoints that the client could not reach a moment ago and that no other client has reached since.
// Failing endpoints are tried at intervals anyway. But once the client has gone unserved for as long as clients are held,
// it tries each of them once more, or twice if other clients could reach it meanwhile. wait says that this machine lacked
// something in all attempts that the client remembers, so that the client has to wait.
func (s *Search) exclude(now int64) (wait bool) {
	s.tried, s.round = s.tried[:0], 0
	late, own, turnedDown := s.outOfPatience(now), 0, 0
	for i := range s.failures {
		f := &s.failures[i]
		vain := f.began >= f.endpoint.trials.lastSuccess.Load()
		fresh := now < f.ended+int64(trialEvery)
		if f.turnedDown || f.own && fresh || vain && (late && fresh || f.late > 0) || f.late > 1 {
			s.tried = append(s.tried, f.endpoint.Endpoint)
		}
		switch {
		case f.turnedDown:
			turnedDown++
		case f.own && fresh:
			own++
		}
	}
	return own > 0 && own+turnedDown >= maxFailures
}

// A client that is out of patience makes at most maxLate further attempts, or more within minSearch of the first failure:
// so, even if no client is held, it finds the only serving endpoint among many.
const (
	maxLate   = 16
	minSearch = time.Second
)

// spent reports whether the client makes no more attempts.
func (s *Search) spent(now int64) bool {
	return s.late >= maxLate && now-s.failing >= int64(minSearch) && s.outOfPatience(now)
}

func (s *Search) outOfPatience(now int64) bool { return s.failing != 0 && s.patience(now) <= 0 }

func (s *Search) pickLastOf(set *lb.Set, now int64) (full, ok bool) {
	if set == nil {
		return false, false
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if s.enterBreaker(true) != nil {
		return true, false
	}
	e, full := s.lastOf(set, lb.Working)
	if e == nil && s.snapshot.upstream.vain() {
		e = s.tryFailing(set, now)
	}
	if e == nil {
		var resortFull bool
		e, resortFull = s.lastOfServing(set)
		full = full || resortFull
	}
	if e == nil {
		e = s.tryFailing(set, now)
	}
	if e == nil || !s.admit(e, true, now) {
		s.rest(now)
		return full, false
	}
	s.lastResort = s.isBeyond(s.endpoint)
	return full, true
}

// isBeyond reports whether the client gets the endpoint only as a last resort, because of the state of the endpoint or the
// upstream, or because its retries are used up. It is false if a held client gets an endpoint that has become usable.
func (s *Search) isBeyond(e *Endpoint) bool {
	st := e.State()
	return st.Down || st.Ejected || st.Broken || e.Failing() || s.entry.forced || len(s.failures) > 0 && !s.held
}

// lastOf acquires an endpoint that is not failing.
func (s *Search) lastOf(set *lb.Set, eligible lb.Eligibility) (e *lb.Endpoint, full bool) {
	r := s.request(s.snapshot)
	r.Tried, r.Eligible = s.tried, eligible
	e, err := set.Pick(&r)
	if err == nil {
		return e, false
	}
	return nil, err == lb.ErrFull
}

// lastOfServing acquires an endpoint for a last resort, if possible an endpoint that has served
// some of its last clients.
func (s *Search) lastOfServing(set *lb.Set) (e *lb.Endpoint, full bool) {
	if !set.Has(lb.LastResort) {
		return nil, false
	}
	if s.snapshot.upstream.vainEndpoints.Load() <= 0 {
		return s.lastOf(set, lb.LastResort)
	}
	tried := len(s.tried)
	for _, m := range set.Members() {
		if m.Endpoint.Of.(*Endpoint).resortsUnserved.Load() >= vainResorts {
			if s.tried = append(s.tried, m.Endpoint); len(s.tried) == tried+maxVain {
				break
			}
		}
	}
	if len(s.tried) > tried {
		e, _ = s.lastOf(set, lb.LastResort)
		if s.tried = s.tried[:tried]; e != nil {
			return e, false
		}
		if e = s.longestAgo(set); e != nil {
			return e, false
		}
	}
	return s.lastOf(set, lb.LastResort)
}

// longestAgo acquires the endpoint that had its last client longest ago, among the endpoints that are not failing and that
// this client has not tried: none of them serves, so they take turns.
func (s *Search) longestAgo(set *lb.Set) *lb.Endpoint {
	var first *Endpoint
	members, panicking := set.Members(), set.Panicking()
	for i := range members {
		member := members[i].Endpoint
		e := member.Of.(*Endpoint)
		if member.Failing() || !member.CanAcquireAnyway(panicking) || slices.Contains(s.tried[s.round:], member) {
			continue
		}
		if first == nil || e.lastTrial() < first.lastTrial() {
			first = e
		}
	}
	if first == nil || !first.AcquireAnyway(panicking) {
		return nil
	}
	first.trials.retried.Store(s.listener.now())
	return first.Endpoint
}

func (e *Endpoint) resortServed() {
	if e.resortsUnserved.Load() != 0 && e.resortsUnserved.Swap(0) >= vainResorts {
		e.upstream.vainEndpoints.Add(-1)
	}
}

// After vainResorts unserved last resorts in a row, an endpoint is picked only if there is no other. After as many in a row
// in an upstream, failing endpoints get their trials before other endpoints are picked.
const vainResorts = 4

// maxVain bounds how many endpoints a pick leaves out because of vainResorts.
const maxVain = 64

// vain reports whether the endpoints that accept as a last resort seem to serve no client. A frozen
// or resetting endpoint goes on accepting, and must not keep clients away from an endpoint that is
// back.
func (u *Upstream) vain() bool { return u.resortsUnserved.Load() >= vainResorts }

// tryFailing acquires a failing endpoint that may be tried again and that this client has not tried: the endpoint that was
// found failing longest ago.
func (s *Search) tryFailing(set *lb.Set, now int64) *lb.Endpoint {
	u := s.snapshot.upstream
	if now < u.trial.Load() || !u.mayTry(now) {
		return nil
	}
	var first *Endpoint
	members, every := u.window(set)
	next := now + int64(every) // the latest time of the next look
	panicking := set.Panicking()
	for i := range members {
		member := members[i].Endpoint
		if !member.Failing() || !member.CanAcquireAnyway(panicking) {
			continue
		}
		e := member.Of.(*Endpoint)
		switch due := e.trials.due.Load(); {
		case due > now:
			next = min(next, due)
		case slices.Contains(s.tried[s.round:], member):
			next = now // for another client
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
	if !first.claimTrial(now) || !first.AcquireAnyway(panicking) {
		return nil
	}
	u.trialsPaid.Store(max(u.trialsPaid.Load(), now) + int64(trialShare))
	return first.Endpoint
}

// mayTry reports whether the upstream may make a trial now: trialBurst trials at once, and then one in each trialShare.
func (u *Upstream) mayTry(now int64) bool {
	from := u.trialsPaid.Load() - trialBurst*int64(trialShare)
	if from >= now {
		u.trial.Store(from + 1)
	}
	return from < now
}

// window returns the members to choose a trial from, and the time until the next look, perhaps at others. It returns a
// large set in parts, one call after the other.
func (u *Upstream) window(set *lb.Set) (members []lb.Member, every time.Duration) {
	members = set.Members()
	if len(members) <= maxWindow {
		return members, u.trialEvery()
	}
	at := int(u.trialsFrom.Add(1)%int64((len(members)+maxWindow-1)/maxWindow)) * maxWindow
	return members[at:min(at+maxWindow, len(members))], trialShare
}

// hold parks a client until an endpoint can serve it, if the client may wait. Meanwhile it has no place under the breaker's
// bounds: other clients make the trials.
func (s *Search) hold(err error, now int64) bool {
	snap := s.snapshot
	s.rest(now)
	if snap.times().Hold <= 0 || isFull(err) {
		return false
	}
	if snap.upstream.held.waiting.Load() == 0 {
		snap.upstream.heldFull.Store(0) // left by earlier clients
	}
	if s.patience(now) <= 0 || !s.enqueue(&snap.upstream.held, snap.QueueSize-snap.upstream.queue.waiting.Load(), now) {
		return false
	}
	if snap.upstream.heldFull.Load() != 0 {
		s.joinEarlierQueues(s.visited(&snap.upstream.held))
	} else if !s.held {
		s.held = true
		atomic.AddInt64(&snap.upstream.counts.Held, 1)
	}
	s.back = false
	s.cause, s.stage = err, holding
	return true
}

// isFull reports whether an error refuses a client because of limits, and not because of the states
// of endpoints.
func isFull(err error) bool {
	return errors.Is(err, lb.ErrFull) || errors.Is(err, ErrQueueFull) || errors.Is(err, record.ErrQueueTimeout)
}

// await lets a held client look for an endpoint when it was woken, or when it is the first and a trial is due. A client
// that has found an endpoint wakes the next.
func (s *Search) await(now int64) (worker.Step, bool) {
	snap := s.snapshot
	q, left := &snap.upstream.held, s.patience(now)
	if l := s.elsewhere(); l != nil {
		s.leaveQueues()
		s.reroute(l, now)
		return worker.Step{}, false
	}
	if s.pickEarlier(left, now) {
		s.stage = connecting
		return worker.Step{}, false
	}
	if !q.has(&s.place) { // another client has evicted it
		s.leaveEarlier()
		s.refuse(s.cause, s.full, now)
		return worker.Step{}, false
	}
	if left > 0 && !q.claim(&s.place) {
		if q.isFirst(&s.place) { // another client has had the turn since before this one came back
			left = min(left, snap.upstream.untilTrial(now))
		}
		return worker.Step{Action: worker.Park, Timeout: left}, true
	}
	for looks := 1; ; looks++ {
		full, ok := s.pickLast(now)
		if ok {
			s.leaveQueues()
			s.stage = connecting
			return worker.Step{}, false
		}
		s.full = full
		if !full {
			snap.upstream.heldFull.Store(0)
			s.noteUnserved(now)
		} else {
			snap.upstream.heldFull.CompareAndSwap(0, now)
			if len(s.earlier) == 0 && q.isFirst(&s.place) { // it hears of room before new clients
				s.joinEarlierQueues(s.visited(q))
			}
		}
		if left = s.patience(now); left <= 0 || !q.stay(&s.place, true) {
			break
		}
		if looks == maxLooks {
			q.later(&s.place)
			break
		}
	}
	if left <= 0 {
		s.leaveQueues()
		if s.full { // an endpoint serves, but earlier clients had its room
			s.cause = record.ErrQueueTimeout
		}
		s.refuse(s.cause, s.full, now)
		return worker.Step{}, false
	}
	return worker.Step{Action: worker.Park, Timeout: s.untilTrials(min(left, snap.upstream.untilTrial(now)), now)}, true
}

// patience returns how much longer a client is held. While only room is missing, it waits for that as long as other clients do.
func (s *Search) patience(now int64) time.Duration {
	times := s.snapshot.times()
	end, full := s.failing+int64(times.Hold), s.snapshot.upstream.heldFull.Load() // found by the last client that looked
	if s.full || full != 0 {
		end = max(end, s.failing+int64(times.QueueTimeout))
	}
	if full != 0 {
		end = min(end, max(full, s.failing)+int64(times.QueueTimeout))
	}
	return time.Duration(end - now)
}

// untilTrial returns how long to wait until it is worth looking for an endpoint without a wake-up.
func (u *Upstream) untilTrial(now int64) time.Duration {
	return min(max(time.Duration(u.trial.Load()-now), time.Millisecond), trialEvery)
}

// Unserved reports whether a client was refused or held because no connection to an endpoint
// could be made, and no client, or check that proves as much, has connected since.
func (u *Upstream) Unserved() bool { return u.unserved.Load() != 0 }

// ServedSince reports whether, since a time of the clock, clients are served although no endpoint is usable: the last
// client with a known result was served, and not refused, held because no endpoint could serve it, or lost by its
// endpoint. A client is served when its endpoint has sent a byte, or has ended the session normally after the client
// did.
func (u *Upstream) ServedSince(at int64) bool {
	served := u.served.Load()
	return served != 0 && served >= at && served > u.denied.Load()
}

// noteDenied notes, at each upstream that should have served the client, that the client is refused or held.
func (s *Search) noteDenied(now int64) {
	for snap := s.root; snap != nil; snap = snap.Fallback {
		snap.upstream.denied.Store(now)
	}
}

// noteUnserved notes, at each upstream that should have served the client, that no endpoint can serve it now.
func (s *Search) noteUnserved(now int64) {
	s.noteDenied(now)
	for snap := s.root; snap != nil; snap = snap.Fallback {
		if !snap.upstream.Unserved() && s.inVain(snap) {
			snap.upstream.unserved.CompareAndSwap(0, now)
		}
	}
}

// inVain reports whether the client failed to connect to an endpoint of a snapshot, or did not
// try because another client had failed.
func (s *Search) inVain(snap *UpstreamSnapshot) bool {
	if slices.ContainsFunc(s.failures, func(f failure) bool { return f.endpoint.upstream == snap.upstream }) {
		return true
	}
	set := snap.Set()
	if set == nil {
		return false
	}
	panicking := set.Panicking()
	return slices.ContainsFunc(set.Members(), func(m lb.Member) bool { return m.Endpoint.Failing() && m.Endpoint.CanAcquireAnyway(panicking) })
}

// serves notes that a connection to an endpoint, of a client or a check, was made or begun at a time.
func (u *Upstream) serves(at int64) {
	if since := u.unserved.Load(); since != 0 && since <= at {
		u.unserved.CompareAndSwap(since, 0)
	}
}

// noteServed notes that the endpoint has served the session's client, if the endpoint was a last
// resort, or not usable (as in panic). A last resort counts once.
func (b *binding) noteServed(now int64) {
	switch {
	case b.resort:
		b.snapshot.upstream.resortsUnserved.Store(0)
		b.endpoint.resortServed()
		if b.counted.Swap(true) {
			return
		}
		atomic.AddInt64(&b.snapshot.upstream.counts.LastResortAnswered, 1)
		if m := b.endpoint.monitor.Load(); m != nil {
			m.Served(b.began)
		}
	case !b.endpoint.unusable():
		return
	}
	b.snapshot.upstream.served.Store(now)
}

// unusable reports whether a verdict keeps clients from the endpoint.
func (e *Endpoint) unusable() bool {
	st := e.State()
	return st.Down || st.Ejected || st.Broken
}
