package pool

import "sync/atomic"

// Stats has the counts of a pool, and its present items. All counters but Live and Idle only
// ever rise. With no operation in flight,
//
//	Made = Closed + Live + Idle
//
// and while operations are, an item between two states counts as live.
type Stats struct {
	Made   int64 // items made
	Closed int64 // items closed, for whatever reason
	Live   int64 // items out now
	Idle   int64 // items in the pool now

	Hits   int64 // idle items that Get and TryGet took, also those that Check refused
	Misses int64 // Gets and TryGets that found none
	Steals int64 // times that a processor took from another
	Waits  int64 // Gets that had to wait, because MaxOpen items were out

	Evictions int64 // items closed because they were idle, by Sweep, IdleTime or Trim
	Discards  int64 // items given to Discard
	Refusals  int64 // items that Reset or Check refused
	Overflows int64 // items put while MaxIdle were idle, or after Close
}

// counts are those that are off the fast path.
type counts struct {
	made, dropped, misses, steals            atomic.Int64
	evictions, discards, refusals, overflows atomic.Int64

	dear atomic.Int64  // thefts that were dear: see steal
	turn atomic.Uint32 // where the next search for surplus begins
}

func (c *core[T]) stats() Stats {
	c.lockAll()
	defer c.unlockAll()
	s := Stats{
		Closed:    c.dropped.Load(), // before made: no item is closed that was not made
		Made:      c.made.Load(),
		Idle:      int64(c.idle()),
		Misses:    c.misses.Load(),
		Steals:    c.steals.Load(),
		Evictions: c.evictions.Load(),
		Discards:  c.discards.Load(),
		Refusals:  c.refusals.Load(),
		Overflows: c.overflows.Load(),
	}
	for i := range c.shards() {
		s.Hits += c.at(i).hits
	}
	if c.gate != nil {
		s.Waits = c.gate.waited()
	}
	s.Live = s.Made - s.Closed - s.Idle
	return s
}
