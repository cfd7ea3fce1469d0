package router

import "github.com/penstock/penstock/proxy/internal/health"

// A breakerEntry is a client's way through the breaker of its upstream. It is let through
// once, whatever is retried for it, and reports one outcome: whether the client was served.
// Refusals by the breaker itself, by a bound, and because no endpoint is usable, are no
// failures of a connection and not reported.
type breakerEntry struct {
	through bool // the breaker has let the client through, which has a place under the breaker's bounds
	forced  bool // in panic, by a breaker that is open
	permit  health.Permit

	// The outcome of the last attempt, if there was one.
	lastOutcome health.Outcome
	from        health.Source
	cause       string
}

// enterBreaker asks the upstream's breaker, unless it has let the client through.
func (s *Search) enterBreaker(panicking bool) error {
	b, entry := s.snapshot.Breaker, &s.entry
	if b == nil || entry.through {
		return nil
	}
	permit, forced, refused := askBreaker(b, panicking)
	if refused != health.Granted {
		return circuitError(refused)
	}
	entry.through, entry.permit, entry.forced = true, permit, forced
	return nil
}

// suspendEntry gives up the place of a client that has to wait for room at an endpoint. It begins
// anew when there is some.
func (s *Search) suspendEntry(now int64) {
	entry := &s.entry
	if entry.through {
		if entry.permit.Trial() {
			s.snapshot.Breaker.Report(entry.permit, health.Unknown, now)
		}
		s.snapshot.Breaker.End(false)
	}
	*entry = breakerEntry{}
}

// exitBreaker ends the entry of a client that gets no endpoint here.
func (s *Search) exitBreaker(o health.Outcome, now int64) {
	entry, snap := &s.entry, s.snapshot
	if entry.through {
		if o.Failed() {
			snap.Breaker.SetCause(entry.cause)
		}
		if o != health.Unknown || entry.permit.Trial() {
			snap.Breaker.ReportFrom(entry.permit, entry.from, o, now)
		}
		snap.Breaker.End(false)
		snap.notifyRoom()
	}
	*entry = breakerEntry{}
}

// rest gives up the place of a client that may have one again. If it was a trial, and has
// failed, that is reported to the breaker; otherwise the outcome is reported in the end.
func (s *Search) rest(now int64) {
	entry := s.entry
	if entry.permit.Trial() && entry.lastOutcome.Failed() {
		s.exitBreaker(entry.lastOutcome, now)
		return
	}
	s.suspendEntry(now)
	if entry.through = false; !entry.permit.Trial() {
		s.entry = entry
	}
}

// conclude ends the entry of a client that is refused.
func (s *Search) conclude(now int64) {
	entry, b := s.entry, s.snapshot.Breaker
	s.exitBreaker(entry.lastOutcome, now)
	if !entry.through && entry.lastOutcome.Failed() && b != nil {
		b.SetCause(entry.cause)
		b.ReportFrom(entry.permit, entry.from, entry.lastOutcome, now)
	}
}

// note records the outcome of an attempt. For the upstream's breaker it makes no difference
// whether the endpoint was reached.
func (entry *breakerEntry) note(o health.Outcome, from health.Source, cause string) {
	if o.Failed() {
		o = health.ConnectFailed
	}
	entry.lastOutcome, entry.from, entry.cause = o, from, cause
}
