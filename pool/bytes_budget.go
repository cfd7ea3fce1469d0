package pool

import "sync/atomic"

// A budget counts bytes of capacity, leased and idle.
type budget struct {
	limit int64
	used  atomic.Int64 // never more than limit
}

// holds reports whether n bytes are free.
func (b *budget) holds(n int64) bool { return b.used.Load() <= b.limit-n }

// take charges n bytes, or nothing.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used > b.limit-n {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// BytesStats is a snapshot of a [Bytes]. With no operation in flight it is exact.
type BytesStats struct {
	// Stats sums the classes, in buffers. A Get that meets a spent budget may
	// count two misses.
	Stats

	Budget    int64 // bytes; math.MaxInt64 if there is none
	Used      int64 // bytes of capacity, leased and idle; never more than Budget
	IdleBytes int64 // bytes of capacity, idle
	Refused   int64 // Gets answered by ErrBudget
	Foreign   int64 // slices given to Put and Discard with a capacity that is no class
}

// Stats returns a snapshot. It costs a look at every class of every processor.
func (b *Bytes) Stats() BytesStats {
	s := BytesStats{Refused: b.refused.Load(), Foreign: b.foreign.Load()}
	if b.budget != nil {
		s.Budget, s.Used = b.budget.limit, b.budget.used.Load()
	}
	for _, c := range b.classes {
		t := c.pool.Stats()
		s.Stats = s.plus(t)
		s.IdleBytes += t.Idle * c.size
	}
	return s
}

// plus returns the sum of s and t, field by field.
func (s Stats) plus(t Stats) Stats {
	s.Made += t.Made
	s.Closed += t.Closed
	s.Live += t.Live
	s.Idle += t.Idle
	s.Hits += t.Hits
	s.Misses += t.Misses
	s.Steals += t.Steals
	s.Waits += t.Waits
	s.Evictions += t.Evictions
	s.Discards += t.Discards
	s.Refusals += t.Refusals
	s.Overflows += t.Overflows
	return s
}

// makeRoom reports whether n bytes of the budget are free, after dropping idle
// buffers if need be. It reserves nothing.
func (b *Bytes) makeRoom(n int64) bool {
	b.free(b.budget.used.Load() - (b.budget.limit - n))
	return b.budget.holds(n)
}

// free drops idle buffers of at least need bytes together, as far as there are
// any, and returns the bytes dropped. It begins with the largest class: the
// fewest buffers have to be made again.
func (b *Bytes) free(need int64) int64 {
	var freed int64
	for i := len(b.classes) - 1; i >= 0 && freed < need; i-- {
		c := b.classes[i]
		idle := c.idle()
		if idle == 0 {
			continue
		}
		drop := (need - freed + c.size - 1) / c.size
		freed += int64(c.pool.Trim(int(max(idle-drop, 0)))) * c.size
	}
	return freed
}

// idle returns the bytes that are idle.
func (b *Bytes) idle() int64 {
	var n int64
	for _, c := range b.classes {
		n += c.idle() * c.size
	}
	return n
}

// idle returns the number of idle buffers. It does not trouble the pool of a
// class that is not in use.
func (c *bytesClass) idle() int64 {
	if c.count.Load() == 0 {
		return 0
	}
	return c.pool.Stats().Idle
}
