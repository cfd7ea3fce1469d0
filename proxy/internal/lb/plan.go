package lb

import "slices"

// A plan is the table that a policy computes from members and weights. It is never changed.
type plan struct {
	weights  []int
	schedule []uint32 // members by turn
	table    []uint32 // members by slot: Maglev and SourceIP
}

func newPlan(cfg *Config, members []*Endpoint, weights []int) *plan {
	p := &plan{weights: weights}
	switch cfg.Policy {
	case Maglev:
		p.table = maglev(members, weights, tableSize(len(members)))
	case SourceIP:
		p.table = rendezvous(members, weights, tableSize(len(members)))
	case RoundRobin, RandomTwo:
		p.schedule = schedule(weights)
	case LeastConn:
		if cfg.PanicBelow > 0 { // then it draws two
			p.schedule = schedule(weights)
		}
	}
	return p
}

// planFor returns the tier's plan if it is one for these members and weights too, or
// nil. Plans know members by their places.
func (t *tier) planFor(cfg *Config, members []*Endpoint, weights []int) *plan {
	same := func(a, b *Endpoint) bool { return a.id == b.id }
	p := t.plan.Load()
	if t.set.cfg.Policy != cfg.Policy || (t.set.cfg.PanicBelow > 0) != (cfg.PanicBelow > 0) ||
		!slices.EqualFunc(t.members, members, same) || !slices.Equal(p.weights, weights) {
		return nil
	}
	return p
}
