package router

import (
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// An Adoption is where sessions belong that a process before this one has had: to a listener, and to an endpoint or an upstream as far as these are known. They are
// bound by the timeouts of the listener alone, and take the places of sessions, also beyond a limit: a limit that did not know them would have an endpoint get more than it.
type Adoption struct {
	listener *Listener
	limits   *relay.Limits
	binding  *binding // nil: the endpoint is not known
}

// Adoption returns where sessions of the listener belong. The endpoint is nil if it is not known, and is of the snapshot otherwise; upstream is the name of the upstream.
func (l *Listener) Adoption(upstream string, to *UpstreamSnapshot, e *Endpoint) *Adoption {
	t := &l.cfg.Limits
	limits := relay.Limits{IdleTimeout: t.IdleTimeout, HalfCloseTimeout: t.HalfCloseTimeout, MaxLifetime: t.MaxLifetime, LifetimeJitter: t.LifetimeJitter}
	a := &Adoption{listener: l}
	if e == nil {
		limits.Of = originalDst{l.state, upstream}
		a.limits = &limits
		return a
	}
	a.binding = &binding{limits: limits, listener: l, snapshot: to, endpoint: e, breaker: e.breaker.Load(), adopted: true}
	a.binding.limits.Of = a.binding
	a.limits = &a.binding.limits
	return a
}

// Begin takes the places of one session, and returns its limits and the token of its listener's [worker.Admitter].
func (a *Adoption) Begin(from source.Source, now int64) (*relay.Limits, uint64) {
	l := a.listener
	l.state.Connections.Add()
	token := admissionToken(0)
	if l.cfg.Sources != nil {
		token = admissionToken(l.cfg.Sources.Adopt(from, now))
	}
	if b := a.binding; b != nil {
		b.breaker.Adopt()
		b.snapshot.Breaker.Adopt()
		b.endpoint.upstream.sessions.Add(1)
		b.endpoint.Add()
	}
	return a.limits, token
}

var _ worker.Adoption = (*Adoption)(nil)
