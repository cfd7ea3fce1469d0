package lb

// turns is how many endpoints that cannot be had a policy passes over before it
// leaves the choice to tier.any.
const turns = 256

// roundRobin takes the endpoint whose turn it is. Turns are a schedule that was computed
// beforehand, and one counter that all loops share: so the picks of all loops together are in
// exact proportion, for one atomic addition.
//
// An endpoint that cannot be had lets its turn go by. The turn does not go to the next one in
// the schedule, which would then have twice as many, but to the next turn of the counter: so
// the others keep their proportions.
func (t *tier) roundRobin(p *pick) *Endpoint {
	plan := t.plan.Load()
	if len(plan.schedule) == 0 {
		return nil
	}
	for range turns {
		who := plan.schedule[t.turn.Add(1)%uint64(len(plan.schedule))]
		if !t.may(who, p) {
			continue
		}
		if e := t.members[who]; t.ready(e) && p.take(e) {
			return e
		}
	}
	return nil
}

// may reports whether it is worth looking at a member: the bits of open endpoints fit into a
// cache, where ten thousand endpoints do not.
func (t *tier) may(who uint32, p *pick) bool { return p.includesUnusable() || t.open.has(int(who)) }

// ready reports whether an endpoint takes part in a draw by weight: in slow start as
// often as its ramp says.
func (t *tier) ready(e *Endpoint) bool {
	r := e.ramp(int64(t.set.cfg.SlowStart))
	return r == whole || t.set.random()&(whole-1) < r
}

// seconds is how many draws are made for a second one: if nearly all are unusable, the
// first will do.
const seconds = 16

// randomTwo draws two by weight, and takes the one whose load is less: among equals the
// one drawn first, so that weight, which has counted in the draw, counts once.
func (t *tier) randomTwo(p *pick) *Endpoint {
	plan := t.plan.Load()
	if len(plan.schedule) == 0 {
		return nil
	}
	var a *Endpoint
	for left := turns; left > 0; left-- {
		who := plan.schedule[reduce(t.set.random(), uint64(len(plan.schedule)))]
		if !t.may(who, p) {
			continue
		}
		b := t.members[who]
		if b == a || p.tried(b) || !hasRoom(b.word.Load(), b.limit.Load(), p.excluded) || !t.ready(b) {
			continue
		}
		if a == nil {
			a, left = b, min(left, seconds)
			continue
		}
		if t.lighter(b, a) {
			a, b = b, a
		}
		if a.acquire(p.excluded) {
			return a
		}
		a = b
	}
	if a != nil && a.acquire(p.excluded) {
		return a
	}
	return nil
}

// lighter reports whether a has fewer sessions for its weight than b.
func (t *tier) lighter(a, b *Endpoint) bool {
	slow := int64(t.set.cfg.SlowStart)
	return uint64(a.Active())*uint64(b.weight.Load())*b.ramp(slow) < uint64(b.Active())*uint64(a.weight.Load())*a.ramp(slow)
}
