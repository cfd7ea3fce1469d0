package balance

// leastConn takes the endpoint with the least score, one of them at random if there
// are several.
func (t *tier) leastConn(p *pick) *Endpoint {
	if t.starting.Load() > 0 {
		t.advance()
	}
	for range 8 {
		i := t.tree.best(t.members, p, t.set.random())
		if i < 0 {
			return nil
		}
		if e := t.members[i]; e.acquire(false) {
			return e
		}
	}
	return nil // others are quicker: any will do
}

// advance gives one of those in slow start the score that is due by now. So many
// picks, so many steps.
func (t *tier) advance() {
	i := t.ramping.around(int(t.turn.Add(1) % uint64(len(t.members))))
	if i < 0 {
		return
	}
	e := t.members[i]
	t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	if e.ramp(int64(t.set.cfg.SlowStart)) == full && e.mu.TryLock() {
		t.stand(i)
		e.mu.Unlock()
	}
}
