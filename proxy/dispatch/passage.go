package dispatch

import "github.com/penstock/penstock/proxy/health"

// A passage is a client's way through the breaker of its upstream. It is let through once,
// whatever is retried for it, and tells it one thing: whether the client was served. What
// the breaker itself has refused, what a bound has, and what was refused because no
// endpoint is usable, is no failure of a connection and not told.
type passage struct {
	through bool // and it has a place under the breaker's bounds
	forced  bool // in panic, by a breaker that is open
	permit  health.Permit

	// What the last attempt came to, if there was one.
	last  health.Outcome
	from  health.Source
	cause string
}

// pass asks the upstream's breaker, unless it has let the client through.
func (s *Search) pass(panicking bool) error {
	b, p := s.view.Breaker, &s.passage
	if b == nil || p.through {
		return nil
	}
	permit, forced, refused := enter(b, panicking)
	if refused != health.Granted {
		return circuitError(refused)
	}
	p.through, p.permit, p.forced = true, permit, forced
	return nil
}

// yield gives up the place of a client that has to wait for room at an endpoint. It begins
// anew when there is some.
func (s *Search) yield(now int64) {
	p := &s.passage
	if p.through {
		if p.permit.Trial() {
			s.view.Breaker.Report(p.permit, health.Unknown, now)
		}
		s.view.Breaker.End(false)
	}
	*p = passage{}
}

// leave ends the passage of a client that gets no endpoint here.
func (s *Search) leave(o health.Outcome, now int64) {
	p, v := &s.passage, s.view
	if p.through {
		if o.Failed() {
			v.Breaker.Because(p.cause)
		}
		if o != health.Unknown || p.permit.Trial() {
			v.Breaker.ReportFrom(p.permit, p.from, o, now)
		}
		v.Breaker.End(false)
		v.freed()
	}
	*p = passage{}
}

// rest gives up the place of a client that may have one again. If it was a trial, and has
// failed, the breaker is told; otherwise it is told in the end.
func (s *Search) rest(now int64) {
	p := s.passage
	if p.permit.Trial() && p.last.Failed() {
		s.leave(p.last, now)
		return
	}
	s.yield(now)
	if p.through = false; !p.permit.Trial() {
		s.passage = p
	}
}

// conclude ends the passage of a client that is refused.
func (s *Search) conclude(now int64) {
	p, b := s.passage, s.view.Breaker
	s.leave(p.last, now)
	if !p.through && p.last.Failed() && b != nil {
		b.Because(p.cause)
		b.ReportFrom(p.permit, p.from, p.last, now)
	}
}

// note takes note of what an attempt came to. For the upstream's breaker it makes no
// difference whether it was reached.
func (p *passage) note(o health.Outcome, from health.Source, cause string) {
	if o.Failed() {
		o = health.ConnectFailed
	}
	p.last, p.from, p.cause = o, from, cause
}
