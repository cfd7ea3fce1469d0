package pool

// give is Put beyond the fast path.
func (c *core[T]) give(x T) {
	switch {
	case c.gate == nil:
		c.store(x)
	case !c.gate.hand(x):
		defer c.gate.leave()
		c.store(x)
	case invariants:
		c.ledger.out(x)
	}
}

// leave gives back the place of an item that is not out any more.
func (c *core[T]) leave() {
	if c.gate != nil {
		c.gate.leave()
	}
}

// store makes x idle, or closes it if there is no room.
func (c *core[T]) store(x T) {
	for try := 0; ; try++ {
		s, e := c.own(try)
		if s.shut && mutant != noShut {
			c.release(s, e)
			break
		}
		ok := s.roomy()
		if !ok {
			if !c.lockDepot(s, e) {
				continue
			}
			ok = c.depot.widen(s)
			c.depot.mu.Unlock()
		}
		if ok {
			s.loaded.push(x)
			c.release(s, e)
			return
		}
		c.release(s, e)
		if !c.reclaim() {
			break
		}
	}
	c.overflow(x)
}

// overflow closes an item for which there is no place.
func (c *core[T]) overflow(x T) {
	if invariants {
		c.ledger.out(x)
	}
	c.overflows.Add(1)
	c.drop(x)
}

// reclaim calls back the slots that one processor has reserved and not filled,
// and reports whether there were any.
func (c *core[T]) reclaim() bool {
	for i := range c.shards() {
		if s := c.at(i); s.hasRoom() && c.callBack(s) {
			return true
		}
	}
	return false
}

func (c *core[T]) callBack(s *shard[T]) bool {
	s.lock()
	defer s.unlock()
	room := s.room()
	if room == 0 {
		return false
	}
	c.depot.mu.Lock()
	c.depot.unreserve(&s.loaded)
	c.depot.unreserve(&s.prev)
	c.depot.mu.Unlock()
	return true
}

// readmits is accepts by Reset, of an item that is out.
func (c *core[T]) readmits(x T) (ok bool) {
	defer func() {
		if !ok {
			c.leave()
		}
	}()
	return c.accepts(c.cfg.Reset, x)
}

// accepts asks a function of Config, and closes x if it refuses.
func (c *core[T]) accepts(f func(T) bool, x T) (ok bool) {
	defer func() {
		if !ok { // or f has panicked
			c.refusals.Add(1)
			c.drop(x)
		}
	}()
	return f(x)
}

// drop closes x, which is neither idle nor the caller's any more.
func (c *core[T]) drop(x T) {
	c.dropped.Add(1)
	if c.cfg.Close != nil {
		c.cfg.Close(x)
	}
}

// dropAll closes all items of batches. If a Close panics the others are closed
// nevertheless.
func (c *core[T]) dropAll(batches [][]T) {
	done := false
	defer func() {
		if !done {
			c.dropAll(batches)
		}
	}()
	for ; len(batches) > 0; batches = batches[1:] {
		for len(batches[0]) > 0 {
			x := batches[0][0]
			batches[0] = batches[0][1:]
			c.drop(x)
		}
	}
	done = true
}
