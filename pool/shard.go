package pool

// A shard holds the items of one processor: the magazine it works with and another one, full
// or empty as a rule, so that a program that takes and gives across the edge of a magazine
// does not visit the depot each time (Bonwick and Adams, "Magazines and Vmem", 2001).
//
// Everything but the latch belongs to the goroutine inside the latch. A shard fills 128 bytes,
// two cache lines as hardware prefetches them; BenchmarkFalseSharing shows the effect. Fields
// of the fast path come first.
type shard[T any] struct {
	latch
	loaded magazine[T]
	hits   int64 // items taken from this shard
	prev   magazine[T]
	size   uint32 // how many slots to reserve for a magazine: see depot.surrender
	shut   bool   // the pool is closed: nothing comes in any more
	_      [16]byte
}

func (s *shard[T]) swap() { s.loaded, s.prev = s.prev, s.loaded }

// stocked reports whether the loaded magazine has an item, after loading the
// other one if that helps.
func (s *shard[T]) stocked() bool {
	if s.loaded.n == 0 && s.prev.n > 0 {
		s.swap()
	}
	return s.loaded.n > 0
}

// roomy reports whether the loaded magazine has room, after loading the other one
// if that helps.
func (s *shard[T]) roomy() bool {
	if s.loaded.n == s.loaded.lim && s.prev.n < s.prev.lim {
		s.swap()
	}
	return s.loaded.n < s.loaded.lim
}

// idle returns the number of items.
func (s *shard[T]) idle() uint32 { return s.loaded.n + s.prev.n }

// room returns the number of free slots.
func (s *shard[T]) room() uint32 { return s.loaded.lim + s.prev.lim - s.idle() }

// hasIdle reports, from outside the latch, whether there may be more than n
// items. Nothing follows from it but that it is, or is not, worth locking.
func (s *shard[T]) hasIdle(n uint32) bool {
	idle, ok := s.peek(&s.loaded.n, &s.prev.n)
	return !ok || idle > n
}

// hasRoom reports, likewise, whether there may be a free slot.
func (s *shard[T]) hasRoom() bool {
	idle, ok := s.peek(&s.loaded.n, &s.prev.n)
	slots, _ := s.peek(&s.loaded.lim, &s.prev.lim)
	return !ok || idle != slots
}
