package pool

// steal moves the surplus of another processor to the depot, where self and others can take
// it. It returns false if there is nothing to be had.
//
// To take half of a magazine or more pays: the price is shared by many items. To take less is
// dear, and to take the last item is worse, since its processor is about to use it and would
// only steal in turn. Yet an item that lies with a processor that the program has left must
// not be out of reach, and surplus is to be used before an item is made. So dear thefts are on
// an account: each item made pays for dearPerItem of them. That costs at most a constant times
// the cost of knowing beforehand how many items are needed (it is the ski rental problem): if
// processors really need an item each, the items will soon have been made, and if the program
// just moves between processors, none is. Where shards have no owners to lock out, no theft is
// dear.
func (c *core[T]) steal(self *shard[T]) bool {
	if c.stealFrom(self, c.depot.size/2) {
		return true
	}
	if c.dear.Load() >= dearPerItem*(1+c.made.Load()) {
		return false
	}
	if !c.stealFrom(self, 1) && !c.stealFrom(self, 0) {
		return false
	}
	if !self.isShared() {
		c.dear.Add(1)
	}
	return true
}

// dearPerItem is how many dear thefts an item pays for.
const dearPerItem = 16

// stealFrom takes from the first other shard that has more than least items.
func (c *core[T]) stealFrom(self *shard[T], least uint32) bool {
	n := c.shards()
	first := int(c.turn.Add(1) % uint32(n))
	for i := range n {
		s := c.at((first + i) % n)
		if s != self && s.hasIdle(least) && c.rob(s, least) {
			return true
		}
	}
	return false
}

// rob takes from s, if it has more than least items. Its owner, if there is one about, can do
// that for a fraction of the cost of locking it out, so it is asked first.
func (c *core[T]) rob(s *shard[T], least uint32) bool {
	if least > 0 && s.ask() && c.awaitGift() {
		c.steals.Add(1)
		return true
	}
	s.lock()
	defer s.unlock()
	if s.idle() <= least {
		return false
	}
	c.steals.Add(1)
	c.depot.mu.Lock()
	c.depot.surrender(s)
	c.depot.mu.Unlock()
	return true
}

// giftPolls is the number of looks for an answer: they take about as long as locking the owner
// out.
const giftPolls = 2000

// awaitGift reports whether something has come into the depot.
func (c *core[T]) awaitGift() bool {
	for range giftPolls {
		if c.depot.count.Load() > 0 {
			return true
		}
	}
	return false
}
