package server

import (
	"context"
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// knows returns an error if no session can have the name that is asked for. A name that a reload has taken away may
// have sessions: it is asked for where there are none.
func (s *sessionTable) knows(q *admin.WhyQuery) error {
	if q.Session != "" {
		return noSession(q.Session)
	}
	return s.knowsNames(q.Listener, q.Upstream, q.Endpoint)
}

// noSession is the error of an ID that no session has.
func noSession(id string) error {
	return fmt.Errorf("session %q: %w: it has ended, or has no endpoint yet; list them with GET /v1/sessions", id, admin.ErrNotFound)
}

// nobodyJoined completes the result where no session was found: clients may wait for an endpoint.
func (s *sessionTable) nobodyJoined(ctx context.Context, q *admin.WhyQuery, sum *whySum) admin.Why {
	w := sum.result()
	w.Verdict, w.Advice = admin.NoVerdict, "no session is joined"
	w.Waiting = s.waiting(ctx, q)
	if w.Waiting > 0 {
		w.Advice += fmt.Sprintf(", and %d of the clients have no endpoint: penstock status says why", w.Waiting)
	}
	return w
}

// waiting counts clients without an endpoint: those that wait for one of an upstream, or those of a listener or a source.
func (s *sessionTable) waiting(ctx context.Context, q *admin.WhyQuery) (n int64) {
	switch {
	case q.Session != "" || q.Endpoint != "":
		return 0
	case q.Upstream != "":
		s.mu.Lock()
		defer s.mu.Unlock()
		if u := s.upstreams[q.Upstream]; u != nil {
			return int64(u.router.Waiting())
		}
		return 0
	}
	of := whyQuery(q)
	of.Joined, of.Sample, of.Brief = false, false, true
	for range s.group.Sessions(ctx, of) { // adopted sessions have their endpoints
		n++
	}
	return n
}

// named returns the error of [Server.knowsNames], unless there is a client with these names, from before a reload.
func (s *sessionTable) named(ctx context.Context, q *worker.Query) error {
	err := s.knowsNames(q.Listener, q.Upstream, q.Endpoint)
	if err == nil {
		return nil
	}
	for range s.everySession(ctx, &worker.Query{Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Brief: true}) {
		return nil
	}
	return err
}

// knowsNames returns an error for a name that the configuration does not have; an empty one, and [admin.UnknownName], is none.
func (s *sessionTable) knowsNames(listener, upstream, endpoint string) error {
	// Before mu: names are resolved under the lock of the adopted sessions.
	alsoListener, alsoUpstream := s.adopted.alsoUnknown()
	s.mu.Lock()
	defer s.mu.Unlock()
	if listener == admin.UnknownName {
		listener = ""
	}
	if upstream == admin.UnknownName {
		upstream = ""
	}
	switch {
	case upstream != "" && s.upstreams[upstream] == nil:
		return fmt.Errorf("upstream %q: %w: there are %s", upstream, admin.ErrNotFound, names(s.upstreams)+alsoUpstream)
	case listener != "" && s.listeners[listener] == nil:
		return fmt.Errorf("listener %q: %w: there are %s", listener, admin.ErrNotFound, names(s.listeners)+alsoListener)
	case endpoint != "":
		return s.knowsEndpoint(endpoint, upstream)
	}
	return nil
}

// knowsEndpoint looks for a name or an address of an endpoint, of one upstream or of all. The caller holds mu.
func (s *sessionTable) knowsEndpoint(name, upstream string) error {
	all := make(map[string]*member)
	for of, u := range s.upstreams {
		if upstream != "" && upstream != of {
			continue
		}
		for id, m := range u.members {
			if id == name || m.spec.Address == name {
				return nil
			}
			all[id] = m
		}
	}
	return fmt.Errorf("endpoint %q: %w: there are %s", name, admin.ErrNotFound, names(all))
}
