package lb

// redraws is how often leastConn draws again if it has drawn one that this client has
// tried: each of its equals is then as likely as its weight says. After that the tree
// is searched.
const redraws = 4

// leastConn takes the endpoint with the least score, one of them by weight if there are
// several.
func (t *tier) leastConn(p *pick) *Endpoint {
	starter := -1
	if t.starting.Load() > 0 {
		starter = t.advance()
	}
	for left := 8 + redraws; left > 0; left-- {
		random := t.set.random()
		i := t.tree.best(random)
		if i >= 0 && starter >= 0 {
			i = t.beside(i, starter)
		}
		if i >= 0 && p.tried(t.members[i]) {
			if left > 8 {
				continue
			}
			i, _ = t.tree.untried(t.members, p, 1, infinite, mix(random))
		}
		if i < 0 {
			return nil
		}
		if e := t.members[i]; e.acquire(p.excluded) {
			return e
		}
	}
	return nil // others are quicker: any will do
}

// beside decides between the one that was drawn and one in slow start. Where all are idle,
// scores would keep the latter from every client until its slow start is over: if both are
// idle it takes part in the draw with its present weight. Each pick asks one of those in slow
// start only, which stands for all of them.
func (t *tier) beside(drawn, starter int) int {
	e := t.members[starter]
	if drawn == starter || t.members[drawn].Active() > 0 || e.Active() > 0 || !e.CanAcquire() {
		return drawn
	}
	mine := uint64(max(t.starting.Load(), 1)) * (t.tree.nodes[t.tree.leaves+starter].Load() & weightMask)
	if all := t.tree.nodes[1].Load()&weightMask + mine; reduce(t.set.random(), all) < mine {
		return starter
	}
	return drawn
}

// advance gives one of those in slow start, which it returns, its present score. So many
// picks, so many steps; they take turns. There may be none: -1.
func (t *tier) advance() int {
	i := t.ramping.around(int(t.ramp.Load()))
	if i < 0 {
		return -1
	}
	t.ramp.Store(uint64(i) + 1)
	e := t.members[i]
	t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	if e.ramp(int64(t.set.cfg.SlowStart)) == whole && e.mu.TryLock() {
		t.classify(i)
		e.mu.Unlock()
	}
	return i
}
