package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/router"
)

// startDiscovery begins to ask an upstream's source, if it has one that is not asked yet.
func (s *Server) startDiscovery(u *upstream) {
	if u.source == nil || u.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(s.ended)
	u.stop = stop
	name, source, first := u.cfg.Name, u.source, &firstAnswer{}
	u.first = first
	s.watches.Go(func() {
		source.Watch(ctx, func(found []discovery.Endpoint) {
			first.found.CompareAndSwap(nil, &found)
			s.discovered(name, source, found)
		})
	})
}

// discovered has an upstream's clients sent to endpoints that its source has found.
func (s *Server) discovered(name string, source discovery.Source, found []discovery.Endpoint) {
	defer s.keep() // after mu is released
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.upstreams[name]
	if s.closing || u == nil || u.source != source {
		return
	}
	u.found, u.answered = found, true
	s.takeFound(u, s.newOwnAddresses())
}

// fit returns the endpoints that an upstream's source has found, but for those that lead back
// into this process as it listens before the next configuration.
func (s *Server) fit(c *change, u *upstream) []discovery.Endpoint {
	if s.cfg == nil || len(u.found) == 0 {
		return u.found
	}
	if c.own == nil {
		c.own = s.newOwnAddresses()
	}
	fit, _ := c.own.fit(u.cfg.Name, u.found)
	return fit
}

// takeFound brings the endpoints that an upstream's source has found into use, except those
// that lead back into the process.
func (s *Server) takeFound(u *upstream, in *ownAddresses) {
	name, before := u.cfg.Name, u.refused
	var fit []discovery.Endpoint
	fit, u.refused = in.fit(name, u.found)
	if len(u.refused) > 0 && !slices.Equal(u.refused, before) {
		s.log.Warn("discovered endpoints are left out", "upstream", name, "endpoints", len(u.refused), "cause", strings.Join(u.refused[:min(len(u.refused), 3)], "; "))
	}
	update, err := s.newEndpointUpdate(u, u, u.cfg, s.live.edit(u.cfg, specsOf(u.cfg, fit)))
	if err != nil {
		s.log.Warn("endpoints that were discovered cannot be used", "upstream", name, "error", err)
	}
	different := update.differs(u.members)
	u.use(update)
	s.settleEndpointUpdate(u, update)
	s.forget(update.gone)
	s.logEnded(s.endDiscovered(u))
	attrs := append([]any{"upstream", name, "endpoints", len(update.order)}, different.attrs()...)
	if len(update.order) == 0 {
		s.log.Warn("endpoints discovered: there are none, "+withoutEndpoints(u.cfg), attrs...)
		return
	}
	s.log.Info("endpoints discovered", attrs...)
}

// withoutEndpoints describes the result for clients of an upstream without endpoints.
func withoutEndpoints(u *config.Upstream) string {
	switch f := u.Fallback; {
	case f != nil && f.Upstream != "":
		return "clients go to the fallback " + f.Upstream
	case f != nil:
		return "clients get the fallback's response"
	case u.Queue.Hold > 0 && u.Queue.Size > 0:
		return fmt.Sprintf("clients are held for %v and then refused", u.Queue.Hold)
	}
	return "clients are refused"
}

// forget releases the listeners' state of removed members.
func (s *Server) forget(members []*member) {
	if len(members) == 0 {
		return
	}
	gone := make(map[*router.Endpoint]bool, len(members))
	for _, m := range members {
		gone[m.endpoint] = true
	}
	for _, l := range s.listeners {
		l.now.Forget(gone)
	}
}
