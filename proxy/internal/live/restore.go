package live

import (
	"slices"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/state"
)

// Restore returns the set with changes that another configuration has ended, as far as they go on under this
// one, and which these are. A change in the set stands before one that has ended, of the same thing.
func (s Set) Restore(ended []state.Change, cfg *config.Config) (with Set, restored []state.Change) {
	with = s
	for i := range ended {
		if c := &ended[i]; !s.overrides(c) {
			with = with.With(*c)
		}
	}
	with, _ = with.Under(cfg)
	for i := range ended {
		if key := ended[i].Key(); s.Find(key) == nil && with.Find(key) != nil {
			restored = append(restored, ended[i])
		}
	}
	slices.SortStableFunc(with.list, func(a, b state.Change) int { return a.Since.Compare(b.Since) })
	return with, restored
}

// overrides reports whether a change of the set is about the same thing as another change. One that an
// endpoint is removed is about all of it.
func (s Set) overrides(c *state.Change) bool {
	return slices.ContainsFunc(s.list, func(of state.Change) bool {
		same := of.Endpoint != "" && of.Upstream == c.Upstream && of.Endpoint == c.Endpoint
		return of.Key() == c.Key() || same && (of.Kind == state.EndpointRemoved || c.Kind == state.EndpointRemoved)
	})
}
