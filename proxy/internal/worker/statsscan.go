package worker

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// A statsScan adds up the sessions of a worker that run, some in each turn of the loop. One
// that ends meanwhile is counted when it ends if the scan has not come by yet, and
// otherwise was; so no later summary has less of it.
type statsScan struct {
	at   int // the next slab
	sum  Summary
	done chan<- Summary // nil: there is no scan

	running bytesByBinding // bytes of running sessions by binding; nil: they are not asked for
	binding Binding        // of the one before
	bytes   *Bytes
}

// slabsPerTurn is how much of a scan is one turn's.
const slabsPerTurn = 2

// beginScan begins to make a summary for done, which has room for it, and if running is not
// nil, running bytes by binding: then meters do not get those of sessions that end from now
// on.
func (c *worker) beginScan(done chan<- Summary, running bytesByBinding) {
	c.scan = statsScan{sum: c.baseSummary(), done: done, running: running}
	if running != nil && c.deferred == nil {
		c.deferred = make(bytesByBinding)
	}
	c.continueScan()
}

// baseSummary is the summary without the bytes of running sessions.
func (c *worker) baseSummary() Summary {
	s := c.loop.Stats()
	return Summary{
		Accepted: c.accepted, Active: c.active, Refused: c.refused, Canceled: c.canceledClients, Left: c.leftClients, Totals: c.ended,
		Refusals: c.refusals,
		Loops: []Load{{
			Active: c.active, Accepted: c.accepted, HandedOver: c.handedOver, Peeks: c.peeks, HellosFull: c.hellosFull, HellosMissing: c.hellosMissing, Taken: c.taken,
			Turns: s.Turns, Blocked: s.Blocked, Gathers: s.Gathers, BusyPollHits: s.BusyPollHits,
			Batches: s.Batches, BatchRefused: s.BatchRefused, Overruns: s.Overruns,
			LagP99: p99(s.Lag[:], s.MaxLag), LagMax: s.MaxLag,
			TimerLateP99: p99(s.TimerLate[:], s.MaxTimerLate), TimerLateMax: s.MaxTimerLate,
			LongTurns: long(s.Lag[:]),
		}},
	}
}

// longTurn is the power of two of a microsecond from which on a turn is a long one.
const longTurn = 10

// long is how many of the times that are counted by powers of two of a microsecond are
// no shorter.
func long(counts []int64) (n int64) {
	for _, more := range counts[longTurn+1:] {
		n += more
	}
	return n
}

// p99 is an upper bound of 99 % of the times that are counted by powers of two of a
// microsecond.
func p99(counts []int64, longest time.Duration) time.Duration {
	all, seen := int64(0), int64(0)
	for _, n := range counts {
		all += n
	}
	for i, n := range counts {
		if seen += n; n > 0 && seen >= all-all/100 {
			return min(time.Microsecond<<i, longest)
		}
	}
	return 0
}

func (c *worker) continueScan() {
	w := &c.scan
	for range slabsPerTurn {
		if w.at == len(c.slabs) {
			w.done <- w.sum
			*w = statsScan{}
			return
		}
		slab := c.slabs[w.at]
		w.at++
		for i := range slab {
			if slab[i].state == joined {
				r := slab[i].session.Result()
				w.sum.Totals.Add(r)
				w.note(&slab[i], bytesOf(&r))
			}
		}
	}
	c.post(c.continueScan)
}

// scanPast counts a session that has ended before a scan came by.
func (c *worker) scanPast(n *conn, r relay.Result) {
	if c.scan.done != nil && int(n.slab) >= c.scan.at {
		c.scan.sum.Totals.Add(r)
		c.scan.note(n, bytesOf(&r))
	}
}
