package lb

// probes is the number of slots that are looked at. Each may cost a cache miss, and a pick
// that would need more has few endpoints to choose from.
const probes = 64

// consistent takes the owner of the client's slot or, if that cannot be had, of the
// next slot in a sequence that depends on the client alone, and in the end meets
// every slot. So every node that thinks the same of the endpoints takes the same one;
// clients of others stay where they are, and those of one that has failed are spread
// over all.
func (t *tier) consistent(p *pick) *Endpoint {
	plan := t.plan.Load()
	size := uint64(len(plan.table))
	if size == 0 {
		return nil
	}
	at := reduce(p.hash, size)
	step := 1 + reduce(mix(p.hash+golden), size-1)
	for range probes {
		if who := plan.table[at]; t.may(who, p) {
			if e := t.members[who]; t.begun(p, e) && p.take(e) {
				return e
			}
		}
		if at += step; at >= size {
			at -= size
		}
	}
	return nil
}

// begun reports whether an endpoint that is in slow start takes this client already:
// first few, then more and more, each of which stays.
func (t *tier) begun(p *pick, e *Endpoint) bool {
	r := e.ramp(int64(t.set.cfg.SlowStart))
	return r == whole || mix(p.hash^e.hash)&(whole-1) < r
}

// nearest takes the endpoint with the best score for the client among those that can be had:
// so nodes agree also where nearly all are unusable.
func (t *tier) nearest(p *pick) *Endpoint {
	for range 4 {
		var best *Endpoint
		var score uint64
		for i := t.open.next(0); i >= 0; i = t.open.next(i + 1) {
			e := t.members[i]
			if s := mix(p.hash ^ e.hash); (best == nil || s > score) && !p.tried(e) {
				best, score = e, s
			}
		}
		if best == nil || best.acquire(p.excluded) {
			return best
		}
	}
	return t.from(0, p) // others are quicker: any endpoint that is left
}
