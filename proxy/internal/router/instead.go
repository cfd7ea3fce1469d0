package router

import "github.com/penstock/penstock/proxy/internal/lb"

// trialInstead has a client that is to get an endpoint which serves none, and is not ejected only because
// as many are as may be, try one of the ejected ones instead: one client at a time, and the one that was
// tried so longest ago. If it serves the client, it gives up its place to the other one, see
// [health.OutlierMonitor.Served]. Otherwise two endpoints that fail in turns lose every client
// until the end of the first one's ejection, for a check that only connects finds out neither.
func (s *Search) trialInstead(b *lb.Endpoint, set *lb.Set, now int64) bool {
	if s.last || len(s.failures) > 0 {
		return false
	}
	if m := b.Of.(*Endpoint).monitor.Load(); m == nil || !m.HeldBack(now) {
		return false
	}
	e := ejectedTrial(set, now)
	if e == nil || !e.Endpoint.AcquireAnyway(false) {
		return false
	}
	if s.lastResort = s.admit(e.Endpoint, true, now); s.lastResort {
		b.Return()
	}
	return s.lastResort
}

// ejectedTrial returns the ejected endpoint whose last trial was longest ago, and claims the trial; nil if
// there is none, or if one may be under way still.
func ejectedTrial(set *lb.Set, now int64) *Endpoint {
	var first *Endpoint
	members := set.Members()
	for i := range members {
		b := members[i].Endpoint
		if !b.State().Ejected || b.Failing() || !b.CanAcquireAnyway(false) {
			continue
		}
		e := b.Of.(*Endpoint)
		if e.trials.retry.Load() > now {
			return nil
		}
		if first == nil || e.trials.retried.Load() < first.trials.retried.Load() {
			first = e
		}
	}
	if first == nil {
		return nil
	}
	at := first.trials.retry.Load()
	if at > now || !first.trials.retry.CompareAndSwap(at, now+int64(trialEvery)) {
		return nil
	}
	first.trials.retried.Store(now)
	return first
}
