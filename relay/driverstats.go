package relay

import (
	"slices"
	"sync"
	"sync/atomic"
)

// DriverStats is the choices of a [Driver]'s directions, and the events that their sinks
// caused, since the driver was made. Sums only grow.
type DriverStats struct {
	Promotions   int64 // of a direction from copying to splicing
	Demotions    int64 // and back
	PipeGrowths  int64 // times that a direction chose to ask for larger pipes
	MarksRaised  int64 // low-water marks of sources (SO_RCVLOWAT)
	MarksLowered int64 // of those, by the guard, because too little came
	Rests        int64 // times that a direction had to wait for its limits of bandwidth

	// Of loops alone:
	Residues     int64 // slots taken for bytes that a sink had not taken
	HeapResidues int64 // times that the heap had to do, because the arena was spent
	TurnsCut     int64 // steps that ended at the bounds of a turn, with more to be moved
}

// A choice is something that is counted.
type choice uint8

const (
	promoted choice = iota
	demoted
	pipeGrown
	markRaised
	markLowered
	residueKept
	residueOnHeap
	turnCut
	rested
	choices // how many there are
)

// counts are written by one goroutine, a loop's, unless they are shared; any may read them.
// They are on cache lines of their own.
type counts struct {
	_      [128]byte
	n      [choices]atomic.Int64
	shared bool // several goroutines write them
	_      [128]byte
}

// note counts a choice. Where one goroutine writes that is a load and a store.
func (c *counts) note(what choice) {
	if n := &c.n[what]; c.shared {
		n.Add(1)
	} else {
		n.Store(n.Load() + 1)
	}
}

func (c *counts) stats() DriverStats {
	return DriverStats{
		Promotions:   c.n[promoted].Load(),
		Demotions:    c.n[demoted].Load(),
		PipeGrowths:  c.n[pipeGrown].Load(),
		MarksRaised:  c.n[markRaised].Load(),
		MarksLowered: c.n[markLowered].Load(),
		Rests:        c.n[rested].Load(),
		Residues:     c.n[residueKept].Load(),
		HeapResidues: c.n[residueOnHeap].Load(),
		TurnsCut:     c.n[turnCut].Load(),
	}
}

func (s DriverStats) plus(t DriverStats) DriverStats {
	return DriverStats{
		Promotions:   s.Promotions + t.Promotions,
		Demotions:    s.Demotions + t.Demotions,
		PipeGrowths:  s.PipeGrowths + t.PipeGrowths,
		MarksRaised:  s.MarksRaised + t.MarksRaised,
		MarksLowered: s.MarksLowered + t.MarksLowered,
		Rests:        s.Rests + t.Rests,
		Residues:     s.Residues + t.Residues,
		HeapResidues: s.HeapResidues + t.HeapResidues,
		TurnsCut:     s.TurnsCut + t.TurnsCut,
	}
}

// Stats returns the sums until now. It may be called by any goroutine at any time, also after
// Close.
func (d *Driver) Stats() DriverStats { return d.env.counts.stats() }

// A ledger has the counts of all drivers of a relay, those that are closed included.
type ledger struct {
	goroutines counts // of all sessions and copies that run on goroutines

	mu     sync.Mutex
	open   []*counts // of the drivers
	closed DriverStats
}

// driver returns counts for a new driver.
func (l *ledger) driver() *counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := new(counts)
	l.open = append(l.open, c)
	return c
}

// close removes a driver's counts, and keeps their sums.
func (l *ledger) close(c *counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
		l.closed = l.closed.plus(c.stats())
	}
}

func (l *ledger) stats() DriverStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.closed.plus(l.goroutines.stats())
	for _, c := range l.open {
		sum = sum.plus(c.stats())
	}
	return sum
}
