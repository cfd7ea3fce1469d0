package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// LiveUnder returns the changes by hand that are in force, and why a configuration would end them.
func (s *Server) LiveUnder(cfg *config.Config) []admin.LiveChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.liveStatus()
	_, ended := s.live.Under(cfg)
	for i := range ended {
		for j := range s.live.All() {
			if s.live.All()[j].Key() == ended[i].Key() {
				list[j].Ends = ended[i].Why
			}
		}
	}
	return list
}

// liveStatus returns the changes by hand that are in force, in the order of s.live.
func (s *Server) liveStatus() []admin.LiveChange {
	list := []admin.LiveChange{}
	for i := range s.live.All() {
		list = append(list, s.liveChange(&s.live.All()[i]))
	}
	return list
}

func (s *Server) liveChange(c *state.Change) admin.LiveChange {
	return admin.LiveChange{
		What: c.String(), Kind: string(c.Kind), Upstream: c.Upstream, Endpoint: c.Endpoint, Listener: c.Listener,
		Line: c.Line, By: c.By, Since: c.Since, Waits: s.waits(c),
	}
}

// waits returns why a change has no effect now; "": it has one.
func (s *Server) waits(c *state.Change) string {
	u := s.upstreams[c.Upstream]
	if u == nil || c.Kind == state.EndpointRemoved || u.members[c.Endpoint] != nil {
		return ""
	}
	if s.live.Find(state.Key{Kind: state.EndpointRemoved, Upstream: c.Upstream, Endpoint: c.Endpoint}) != nil {
		return "the endpoint is removed"
	}
	return "discovery has not found the endpoint"
}

// stateFile returns the file of the changes by hand, for a status.
func (s *Server) stateFile() *admin.StateFile {
	st := s.options.State
	if st == nil {
		return nil
	}
	f := &admin.StateFile{Path: st.Path()}
	if err := cmp.Or(st.Err(), st.Corrupt()); err != nil && !errors.Is(err, state.ErrClosed) {
		f.Problem = oneLine(err).Error()
	}
	return f
}

// byHand returns the changes of a member that were made by hand.
func byHand(by *live.Upstream, m *member) (list []string) {
	for _, kind := range []state.Kind{state.EndpointAdded, state.EndpointWeight, state.EndpointState} {
		c := by.Find(kind, m.spec.Identity())
		if c == nil {
			continue
		}
		what := c.Value
		switch kind {
		case state.EndpointAdded:
			what = "added"
		case state.EndpointWeight:
			what = "weight " + c.Value
		}
		list = append(list, handWords(what, c))
	}
	return list
}

func handWords(what string, c *state.Change) string {
	return fmt.Sprintf("%s by %s at %s", what, c.By, c.Since.Local().Format(time.DateTime))
}

// specUnder returns an endpoint of the file or of discovery as it is with changes by hand, also if one of them has
// removed it. One that is not found has its name for an address.
func (u *upstream) specUnder(endpoint string, set live.Set) spec {
	listed := specsOf(u.cfg, u.found)
	for i := range listed.n {
		if of := listed.at(i); of.Identity() == endpoint {
			editSpec(set.Of(u.cfg.Name), &of, live.WeightLine(of.Weight))
			return of
		}
	}
	return spec{Endpoint: discovery.Endpoint{Address: endpoint}}
}
