package server

import (
	"slices"
	"strconv"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/discovery"
	"github.com/penstock/penstock/proxy/internal/live"
	"github.com/penstock/penstock/proxy/internal/state"
)

// A manual is the changes by hand that are in force. Status, reloads and restarts take them from here
// alone: what is in force is the configuration, edited by them.
type manual struct{ live.Set }

// lives are the changes under a configuration that is being prepared.
type lives struct {
	set      manual
	ended    []live.Ended
	restored []state.Change // that ended before
}

func (h manual) under(cfg *config.Config) lives {
	left, ended := h.Under(cfg)
	return lives{set: manual{left}, ended: ended}
}

// touchAny reports whether the configuration ends or restores a change of an upstream's endpoints.
func (l *lives) touchAny(upstream string) bool {
	return slices.ContainsFunc(l.ended, func(e live.Ended) bool { return e.Upstream == upstream }) ||
		slices.ContainsFunc(l.restored, func(c state.Change) bool { return c.Upstream == upstream })
}

// edit returns the endpoints of the file or of discovery, as they are with the changes.
func (h manual) edit(cfg *config.Upstream, listed specs) specs {
	by := h.Of(cfg.Name)
	if by == nil {
		return listed
	}
	list := make([]spec, 0, listed.n+len(by.Added()))
	for i := range listed.n {
		of := listed.at(i)
		if by.Find(state.EndpointRemoved, of.Identity()) == nil {
			editSpec(by, &of, live.WeightLine(of.Weight))
			list = append(list, of)
		}
	}
	for _, c := range by.Added() {
		of := addedSpec(c)
		editSpec(by, &of, "")
		list = append(list, of) // without effect if discovery has found one of that identity
	}
	return specs{len(list), func(i int) spec { return list[i] }}
}

// editSpec changes an endpoint's weight and state. A weight stands on the line of the endpoint's own.
func editSpec(by *live.Upstream, of *spec, line string) {
	if c := by.Find(state.EndpointWeight, of.Identity()); c != nil && c.Line == line {
		of.share = weightOf(c)
	}
	if c := by.Find(state.EndpointState, of.Identity()); c != nil && (c.Line == "") == of.byHand {
		of.mode = c.Value
	}
}

func addedSpec(c *state.Change) spec {
	a := c.Added
	e := discovery.Endpoint{Address: a.Address, Name: c.Endpoint, Weight: a.Weight, Zone: a.Zone, Backup: a.Backup, Connections: int(a.Connections)}
	return spec{Endpoint: e, mode: config.Ready, share: a.Weight, byHand: true}
}

// weightOf returns the weight of a change; one that is out of range becomes the nearest.
func weightOf(c *state.Change) int {
	n, _ := strconv.Atoi(c.Value) // 0, which sends no clients, of a file that was written by hand
	return min(max(n, 0), discovery.MaxWeight)
}

// drained reports whether a listener is drained.
func (h manual) drained(listener string) bool {
	return h.Find(state.Key{Kind: state.ListenerDrained, Listener: listener}) != nil
}

// split returns the percentages of a split; nil: those of the file.
func (h manual) split(listener string, route int, split []config.Share) []float64 {
	c := h.Find(state.Key{Kind: state.Split, Listener: listener, Route: route})
	if c == nil {
		return nil
	}
	percent, _ := live.ParsePercentages(split, c.Value) // of which Under has seen to it that they fit
	return percent
}
