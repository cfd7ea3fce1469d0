package router

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// turnsDown reports whether an endpoint was reached, and does not give the client what only this client has asked for: TLS that
// is passed through, or an application protocol. Others may be served, so that is no failure of the endpoint.
func (s *Search) turnsDown(err error) bool {
	if s.client.Postgres.Hidden() && errors.Is(err, postgres.ErrEndpoint) {
		return true
	}
	var handshake *tlsterm.Error
	return errors.As(err, &handshake) && handshake.Kind == tlsterm.Protocol
}

// turnedDown ends the attempt at such an endpoint, which the client does not try again. An answer is reported to no monitor, but by a
// trial, which it leaves open. An endpoint that has not answered, as one that is frozen does not either, is reported as one whose
// session had no first byte: that is judged by the sources of clients, and by how it serves others.
func (s *Search) turnedDown(err error, now int64) {
	e, o := s.endpoint, health.Unknown
	switch {
	case errors.Is(err, postgres.ErrNoAnswer):
		o = health.Silent
	case errors.Is(err, postgres.ErrUnanswered):
		o = health.HungUp
	}
	s.client.Record.Fail(e.name, s.start, now, err)
	s.touched(now)
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

// onlyTurnedDown reports whether the client has reached every endpoint that it tried, and none gives it what it has asked for. Then there
// is nothing to wait for.
func (s *Search) onlyTurnedDown() bool {
	for i := range s.failures {
		if !s.failures[i].turnedDown {
			return false
		}
	}
	return len(s.failures) > 0
}
