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
func (w *worker) beginScan(done chan<- Summary, running bytesByBinding) {
	w.scan = statsScan{sum: w.baseSummary(), done: done, running: running}
	if running != nil && w.deferred == nil {
		w.deferred = make(bytesByBinding)
	}
	w.continueScan()
}

// baseSummary is the summary without the bytes of running sessions.
func (w *worker) baseSummary() Summary {
	s := w.loop.Stats()
	return Summary{
		Accepted: w.accepted, Active: w.active, Refused: w.refused, Canceled: w.canceledClients, Left: w.leftClients, Totals: w.ended,
		Refusals: w.refusals,
		Loops: []Load{{
			Active: w.active, Accepted: w.accepted, HandedOver: w.handedOver, Peeks: w.peeks, HellosMissing: w.hellosMissing, Taken: w.taken,
			Turns: s.Turns, Blocked: s.Blocked, Gathers: s.Gathers, BusyPollHits: s.BusyPollHits,
			Batches: s.Batches, BatchRefused: s.BatchRefused, Overruns: s.Overruns,
			LagP99: p99(s.Lag[:], s.MaxLag), LagMax: s.MaxLag,
			TimerLateP99: p99(s.TimerLate[:], s.MaxTimerLate), TimerLateMax: s.MaxTimerLate,
			LongTurns: long(s.Lag[:]), Lag: s.Lag, TimerLate: s.TimerLate,
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

func (w *worker) continueScan() {
	scan := &w.scan
	for range slabsPerTurn {
		if scan.at == len(w.slabs) {
			scan.done <- scan.sum
			*scan = statsScan{}
			return
		}
		slab := w.slabs[scan.at]
		scan.at++
		for i := range slab {
			if slab[i].state == joined {
				r := slab[i].result()
				scan.sum.Totals.Add(r)
				scan.note(&slab[i], bytesOf(&r))
			}
		}
	}
	w.post(w.continueScan)
}

// scanPast counts a session that has ended before a scan came by.
func (w *worker) scanPast(n *conn, r relay.Result) {
	if w.scan.done != nil && int(n.slab) >= w.scan.at {
		w.scan.sum.Totals.Add(r)
		w.scan.note(n, bytesOf(&r))
	}
}
