package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/discovery"
)

// firstAnswers is how long Open waits for the first answers of discovery, so that the first clients are not
// refused for want of endpoints; and a change for those of sources that are new.
const firstAnswers = 3 * time.Second

// A firstAnswer is the first endpoints that a source has found. The server's mu may be held by the change that waits
// for them.
type firstAnswer struct {
	found atomic.Pointer[[]discovery.Endpoint] // nil: it has not answered
}

// awaitNewSources has the new sources of a change asked, and waits for a while until each has answered or failed.
// An upstream has no endpoints of another origin than its present one: the rules of the change may be meant for others.
// One whose source has not answered has none.
func (s *Server) awaitNewSources(ctx context.Context, c *change) {
	if s.cfg == nil {
		return // Open waits, once everything listens
	}
	var asked []*upstream
	for _, next := range c.upstreams {
		if u := next.now; u != next.old && u.source != nil && u.stop == nil {
			s.startDiscovery(u)
			c.undo = append(c.undo, u.stop)
			asked = append(asked, u)
		}
	}
	if len(asked) == 0 {
		return
	}
	await(ctx, func() bool {
		for _, u := range asked {
			if u.first.found.Load() == nil && u.source.Status().Failures == 0 {
				return false
			}
		}
		return true
	})
	for _, u := range asked {
		if found := u.first.found.Load(); found != nil {
			u.found, u.answered = *found, true
		} else if len(u.found) == 0 {
			s.log.Warn("endpoints are not discovered yet: there are none, "+withoutEndpoints(u.cfg), "upstream", u.cfg.Name)
		}
	}
}

// awaitDiscovery waits for a while until every source has answered once; later answers take
// effect when they come.
func (s *Server) awaitDiscovery(ctx context.Context) { await(ctx, s.allAnswered) }

// await waits for firstAnswers at most until a condition holds.
func await(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswers)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// allAnswered reports whether every source has answered, or has failed to.
func (s *Server) allAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.upstreams {
		if u.source != nil && !u.answered && u.source.Status().Failures == 0 {
			return false
		}
	}
	return true
}
