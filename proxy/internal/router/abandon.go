package router

import (
	"fmt"
	"slices"
	"sync/atomic"
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
// come in any more, or goes elsewhere by a reload; if the endpoint is to get no more clients; or if
// the endpoint is not usable, as when it is tried as a last resort, and another one is again. So a
// client that tries a dead host is not kept there when another endpoint is back.
func (s *Search) Abandon(now int64) bool {
	if s.stillMay() != nil {
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
	switch {
	case e.State().Draining, s.elsewhere() != nil:
		return true
	case !e.unusable() && !(s.last && e.Failing()):
		return false
	}
	if !s.last {
		return s.anotherWorks(s.upstream)
	}
	for v := s.root; v != nil; v = v.Fallback {
		if s.anotherWorks(v) {
			return true
		}
	}
	return false
}

// anotherWorks reports whether a snapshot has an endpoint for the client that is usable and not failing.
// Those that the client could not reach itself do not count until another client has.
func (s *Search) anotherWorks(v *UpstreamSnapshot) bool {
	set := v.Set()
	if set == nil {
		return false
	}
	tried := make([]*lb.Endpoint, 0, len(s.failures)+1)
	for i := range s.failures {
		if f := &s.failures[i]; f.of.trials.made.Load() < f.ended {
			tried = append(tried, f.of.Endpoint)
		}
	}
	if !slices.Contains(tried, s.endpoint.Endpoint) {
		tried = append(tried, s.endpoint.Endpoint)
	}
	r := lb.Request{Tried: tried, Eligible: lb.Working}
	if v.BySource {
		r.Source = s.client.Source().AddrPort()
	}
	e, err := set.Pick(&r)
	if err != nil {
		return false
	}
	e.Return()
	return true
}

// abandoned ends an attempt that was given up. It is no evidence of the endpoint.
func (s *Search) abandoned(now int64) {
	e := s.endpoint
	s.failed = s.failed[:0]
	s.settle(health.Unknown, now)
	s.blame(failure{
		of: e, err: fmt.Errorf("connect to %s: %w after %v", e.Address, worker.ErrAbandoned, time.Duration(now-s.start).Round(time.Millisecond)),
		began: s.start, ended: now, own: true,
	})
	if l := s.elsewhere(); l != nil {
		s.reroute(l, now)
		return
	}
	s.afterMissed(e, now)
}
