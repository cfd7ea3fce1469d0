package router

import (
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// losingEvery is how often a client is sent to an endpoint that loses its clients, while others are there.
const losingEvery = 5 * time.Second

// loses reports whether a client should get another endpoint than one that is usable, and has lost its last
// clients: connections were made, and ended without a byte. An endpoint is not ejected then if max_ejected has no
// room, or if all clients come from one source. Now and then a client finds out whether that is still so. Where
// clients are kept together by their source, one source's losses move no others.
func (s *Search) loses(picked *lb.Endpoint, now int64) bool {
	e := picked.Of.(*Endpoint)
	if len(s.failures) > 0 || !e.losesClients(now, s.snapshot.BySource) {
		return false
	}
	at := e.trials.turn.Load()
	return at > now || !e.trials.turn.CompareAndSwap(at, now+int64(losingEvery))
}

// losesClients reports whether the endpoint, which is not ejected, has lost as many clients in a row as eject it, see
// UnservedStreak. sure means that clients of more than one source have been lost.
func (e *Endpoint) losesClients(now int64, sure bool) bool {
	m := e.monitor.Load()
	if m == nil || e.unserved.n.Load() < vainResorts {
		return false
	}
	fails, oneSource := m.FailsInARow(now)
	return fails && !(sure && oneSource)
}

// trialInstead has a client that is to get an endpoint which loses its clients try another one instead, usable or not:
// one client at a time, and the endpoint that had a client longest ago, until one of them serves a client. Otherwise
// endpoints that fail in turns lose every client until the end of the first one's ejection, for a check that
// only connects finds out neither. One that serves gives up its place under max_ejected to the other, see
// [health.OutlierMonitor.Served].
func (s *Search) trialInstead(picked *lb.Endpoint, set *lb.Set, now int64) bool {
	of := picked.Of.(*Endpoint)
	if s.onlyLastResort || len(s.failures) > 0 || !of.losesClients(now, false) {
		return false
	}
	e := oldestTrial(of, set, now)
	if e == nil || !e.Endpoint.AcquireAnyway(false) {
		return false
	}
	if !s.admit(e.Endpoint, true, now) {
		return false
	}
	s.lastResort = e.unusable()
	picked.Return()
	return true
}

// oldestTrial returns an unusable endpoint that has served its last client, or else the one that had a client longest
// ago, and claims the trial; nil if that is the picked one, or if trials of all may be under way still.
func oldestTrial(picked *Endpoint, set *lb.Set, now int64) *Endpoint {
	first := picked
	members := set.Members()
	for i := range members {
		member := members[i].Endpoint
		e := member.Of.(*Endpoint)
		if member.Failing() || !member.CanAcquireAnyway(false) {
			continue
		}
		if m := e.monitor.Load(); m != nil && m.ServedSince() {
			return e
		}
		_, silent := e.answers.Silence()
		if n, _ := e.SlowConnects(); n > 0 || silent || e.trials.retry.Load() > now {
			continue
		}
		if e.lastTrial() < first.lastTrial() {
			first = e
		}
	}
	if first == picked {
		return nil
	}
	at := first.trials.retry.Load()
	if at > now || !first.trials.retry.CompareAndSwap(at, now+int64(trialEvery)) {
		return nil
	}
	first.trials.retried.Store(now)
	return first
}

// lastTrial returns the clock at which the endpoint last had a client that it lost, or a trial began.
func (e *Endpoint) lastTrial() int64 { return max(e.unserved.last.Load(), e.trials.retried.Load()) }
