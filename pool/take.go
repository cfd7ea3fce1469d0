package pool

import (
	"context"
	"fmt"
)

// get is Get beyond the fast path.
func (c *core[T]) get(ctx context.Context) (x T, err error) {
	if c.gate == nil {
		return c.takeOrMake(ctx)
	}
	x, handed, err := c.gate.enter(ctx)
	if err != nil {
		return x, err
	}
	got := false
	defer func() {
		if !got { // or a function of Config has panicked
			c.gate.leave()
		}
	}()
	if !handed || !c.checks(x) {
		x, err = c.takeOrMake(ctx)
	}
	got = err == nil
	return x, err
}

func (c *core[T]) takeOrMake(ctx context.Context) (x T, err error) {
	if x, ok := c.takeChecked(); ok {
		return x, nil
	}
	if c.closed.Load() {
		return x, ErrClosed
	}
	return c.make(ctx)
}

// tryGet is TryGet beyond the fast path.
func (c *core[T]) tryGet() (x T, ok bool) {
	if c.gate == nil {
		return c.takeChecked()
	}
	if !c.gate.tryEnter() {
		return x, false
	}
	defer func() {
		if !ok {
			c.gate.leave()
		}
	}()
	return c.takeChecked()
}

// takeChecked takes an item that Check accepts.
func (c *core[T]) takeChecked() (T, bool) {
	for {
		x, ok := c.take()
		if !ok || c.checks(x) {
			return x, ok
		}
	}
}

// checks reports whether x is to be had, and closes it if Check refuses.
func (c *core[T]) checks(x T) bool { return c.cfg.Check == nil || c.accepts(c.cfg.Check, x) }

// take takes an idle item: from the shard, then the depot, then from
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
func (c *core[T]) make(ctx context.Context) (T, error) {
	x, err := c.cfg.New(ctx)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("penstock: pool: get: %w", err)
	}
	c.made.Add(1)
	return x, nil
}
