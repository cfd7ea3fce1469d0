package dispatch

import (
	"fmt"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/health"
)

// An attempt is one at an endpoint.
type attempt struct {
	breaker          *health.Breaker // the endpoint's, that was asked; nil: none
	permit, upPermit health.Permit
	open             bool // the view's breaker has been asked
	addrs            []loop.Address
	at               int   // the one that is being tried
	end              int64 // clock, of the endpoint's time; 0: never
	failed           []error
}

// pick acquires an endpoint that every breaker lets the client through to.
func (s *Search) pick(now int64) error {
	v := s.view
	set := v.Set()
	if set == nil {
		return balance.ErrNoEndpoint
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if b := v.Breaker; b != nil {
		permit, refused := b.Begin()
		if refused != health.Granted {
			return circuitError(refused)
		}
		s.upPermit, s.open = permit, true
	}
	err := s.pickFrom(set, now)
	for err != nil && v.Set() != set { // it was replaced meanwhile, and its endpoints drain
		set = v.Set()
		err = s.pickFrom(set, now)
	}
	if err != nil && s.open {
		s.open = false
		v.Breaker.Report(s.upPermit, health.Unknown, now)
		v.Breaker.End(false)
	}
	return err
}

// pickFrom picks from a set. Endpoints that this client has tried are tried once more
// when there are no others.
func (s *Search) pickFrom(set *balance.Set, now int64) error {
	failed := len(s.tried)
	r := balance.Request{Tried: s.tried}
	if s.view.BySource {
		r.Source = s.client.Source()
	}
	for range len(set.Members()) + 2 {
		b, err := set.Pick(&r)
		if err == balance.ErrTried && failed > 0 {
			r.Tried, failed = s.tried[failed:], 0
			b, err = set.Pick(&r)
		}
		if err != nil {
			s.tried = s.tried[:failed]
			return err
		}
		e := b.Of.(*Endpoint)
		if s.breaker = e.breaker.Load(); s.breaker != nil {
			permit, refused := s.breaker.Begin()
			if refused != health.Granted {
				b.Release()
				s.tried = append(s.tried, b) // for this pick
				r.Tried = s.tried
				continue
			}
			s.permit = permit
		}
		s.tried = s.tried[:failed]
		s.take(e, now)
		return nil
	}
	s.tried = s.tried[:failed]
	return balance.ErrUnavailable
}

// take begins an attempt at an endpoint that was acquired.
func (s *Search) take(e *Endpoint, now int64) {
	s.endpoint, s.addrs, s.at = e, e.fixed, 0
	if d := s.listener.cfg.Connect; d > 0 {
		s.end = now + int64(d)
	}
}

// missed ends the attempt at an endpoint that was not reached, and says what that says of
// it.
func (s *Search) missed(now int64, o health.Outcome) {
	e := s.endpoint
	s.causes = append(s.causes, fmt.Errorf("connect to %s: %w", e.Address, line(s.failed)))
	s.settle(o, now)
	s.tried = append(s.tried, e.Endpoint)
	s.stage = choosing
	if s.retries >= s.view.Attempts || !s.view.Budget.Retry(now) {
		s.unavailable(line(s.causes))
		return
	}
	s.retries++
	s.view.up.retries.Add(1)
	if s.view.Backoff > 0 {
		s.stage = pausing
	}
}

// settle gives an endpoint back that is not connected to.
func (s *Search) settle(o health.Outcome, now int64) {
	e, v, reached := s.endpoint, s.view, o == health.Reset
	s.endpoint = nil
	e.Release()
	if o != health.Unknown || s.permit.Trial() {
		e.report(s.permit, o, now)
	}
	if s.breaker != nil {
		s.breaker.End(reached)
	}
	if s.open {
		s.open = false
		v.Breaker.Report(s.upPermit, o, now)
		v.Breaker.End(reached)
		v.freed()
	}
}
