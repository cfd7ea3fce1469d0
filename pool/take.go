package pool

import "fmt"

// take is TryGet beyond the fast path: from the shard, then the depot, then from
// other processors.
func (c *core[T]) take() (T, bool) {
	for try := 0; ; try++ {
		s, e := c.own(try)
		if s.stocked() {
			return c.takeFrom(s, e), true
		}
		if c.depot.count.Load() > 0 {
			if !c.lockDepot(s, e) {
				continue
			}
			ok := c.depot.load(s)
			c.depot.mu.Unlock()
			if ok {
				return c.takeFrom(s, e), true
			}
		}
		c.release(s, e)
		if !c.steal(s) && c.depot.count.Load() == 0 {
			c.misses.Add(1)
			var zero T
			return zero, false
		}
	}
}

// takeFrom takes an item from s, which has one, and releases s.
func (c *core[T]) takeFrom(s *shard[T], e entry) T {
	x := s.loaded.pop()
	s.hits++
	c.release(s, e)
	if invariants {
		c.ledger.out(x)
	}
	return x
}

// make makes an item.
func (c *core[T]) make() (T, error) {
	x, err := c.cfg.New()
	if err != nil {
		var zero T
		return zero, fmt.Errorf("pool: get: %w", err)
	}
	c.made.Add(1)
	return x, nil
}
