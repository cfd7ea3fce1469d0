package router

import "github.com/penstock/penstock/proxy/internal/health"

// A breakerEntry is a client's way through the breaker of its upstream. It is let through
// once, whatever is retried for it, and reports one outcome: whether the client was served.
// Refusals by the breaker itself, by a bound, and because no endpoint is usable, are no
// failures of a connection and not reported.
type breakerEntry struct {
	through bool // and it has a place under the breaker's bounds
	forced  bool // in panic, by a breaker that is open
	permit  health.Permit

	// The outcome of the last attempt, if there was one.
	last  health.Outcome
	from  health.Source
	cause string
}

// enterBreaker asks the upstream's breaker, unless it has let the client through.
func (s *Search) enterBreaker(panicking bool) error {
	b, p := s.upstream.Breaker, &s.entry
	if b == nil || p.through {
		return nil
	}
	permit, forced, refused := askBreaker(b, panicking)
	if refused != health.Granted {
		return circuitError(refused)
	}
	p.through, p.permit, p.forced = true, permit, forced
	return nil
}

// suspendEntry gives up the place of a client that has to wait for room at an endpoint. It begins
// anew when there is some.
func (s *Search) suspendEntry(now int64) {
	p := &s.entry
	if p.through {
		if p.permit.Trial() {
			s.upstream.Breaker.Report(p.permit, health.Unknown, now)
		}
		s.upstream.Breaker.End(false)
	}
	*p = breakerEntry{}
}

// exitBreaker ends the entry of a client that gets no endpoint here.
func (s *Search) exitBreaker(o health.Outcome, now int64) {
	p, v := &s.entry, s.upstream
	if p.through {
		if o.Failed() {
			v.Breaker.SetCause(p.cause)
		}
		if o != health.Unknown || p.permit.Trial() {
			v.Breaker.ReportFrom(p.permit, p.from, o, now)
		}
		v.Breaker.End(false)
		v.notifyRoom()
	}
	*p = breakerEntry{}
}

// rest gives up the place of a client that may have one again. If it was a trial, and has
// failed, that is reported to the breaker; otherwise the outcome is reported in the end.
func (s *Search) rest(now int64) {
	p := s.entry
	if p.permit.Trial() && p.last.Failed() {
		s.exitBreaker(p.last, now)
		return
	}
	s.suspendEntry(now)
	if p.through = false; !p.permit.Trial() {
		s.entry = p
	}
}

// conclude ends the entry of a client that is refused.
func (s *Search) conclude(now int64) {
	p, b := s.entry, s.upstream.Breaker
	s.exitBreaker(p.last, now)
	if !p.through && p.last.Failed() && b != nil {
		b.SetCause(p.cause)
		b.ReportFrom(p.permit, p.from, p.last, now)
	}
}

// note records the outcome of an attempt. For the upstream's breaker it makes no difference
// whether the endpoint was reached.
func (p *breakerEntry) note(o health.Outcome, from health.Source, cause string) {
	if o.Failed() {
		o = health.ConnectFailed
	}
	p.last, p.from, p.cause = o, from, cause
}
