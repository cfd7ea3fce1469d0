package worker

import (
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/relay"
)

// Bytes is what sessions have moved; Moved is what a direction has moved.
type (
	Bytes = tally.Bytes
	Moved = tally.ByEngine
)

func movedBy(f *relay.Flow) Moved {
	return Moved{Spliced: f.Spliced, Copied: f.Copied, Lane: f.Carried}
}

// Totals are sums over ended sessions.
type Totals struct {
	Bytes
	Lost      int64
	Fallbacks relay.Fallbacks
}

// Add adds the result of a session; its a is the client.
func (t *Totals) Add(r relay.Result) {
	t.Bytes.Add(bytesOf(&r))
	t.Lost += r.AToB.Lost + r.BToA.Lost
	for i := range t.Fallbacks {
		t.Fallbacks[i] += r.AToB.Fallbacks[i] + r.BToA.Fallbacks[i]
	}
}

// Summary is the counters and the resources of workers.
type Summary struct {
	Accepted, Active, Refused, Canceled int64 // clients; canceled ones were cut because the process ends
	Left                                int64 // clients that have gone before they were joined
	Totals                              Totals
	Loops                               []Load
	Arena                               arena.Stats // of all loops
}

// Load is the counters and the resources of one loop.
type Load struct {
	tally.LoopCounts
	Peeks         int64 // looks at clients' first bytes, see [Preread]
	Taken         int64 // bytes that were taken instead of peeked at
	HellosMissing int64 // clients that were served without a hello, see [Preread.AnyHello]
	loop.Stats
}

func (s *Summary) merge(o *Summary) {
	s.Accepted += o.Accepted
	s.Active += o.Active
	s.Refused += o.Refused
	s.Canceled += o.Canceled
	s.Left += o.Left
	s.Totals.Bytes.Add(o.Totals.Bytes)
	s.Totals.Lost += o.Totals.Lost
	for i, n := range o.Totals.Fallbacks {
		s.Totals.Fallbacks[i] += n
	}
	s.Loops = append(s.Loops, o.Loops...)
}

// A statsScan adds up the running sessions of a worker, a few in each turn of the loop. A session
// that ends meanwhile is counted at its end, unless the scan has counted it already; so its bytes
// never become fewer in a later summary.
type statsScan struct {
	at   int // the next slab
	sum  Summary
	done chan<- Summary // nil: there is no scan

	running bytesByBinding // bytes of running sessions by binding; nil: not asked for
	binding Binding        // of the previous session
	bytes   *Bytes
}

// slabsPerTurn is how many slabs a scan looks at in one turn.
const slabsPerTurn = 2

// beginScan begins a summary for done, which has room for it. If running is not nil, it also collects the bytes of running
// sessions by binding, and from now on the bytes of ending sessions are held back from their bindings.
func (w *worker) beginScan(done chan<- Summary, running bytesByBinding) {
	w.scan = statsScan{sum: w.baseSummary(), done: done, running: running}
	if running != nil && w.deferred == nil {
		w.deferred = make(bytesByBinding)
	}
	w.continueScan()
}

// baseSummary returns the summary without the bytes of running sessions.
func (w *worker) baseSummary() Summary {
	s, counts := w.loop.Stats(), w.counts
	counts.LagP99Us, counts.LagMaxUs = p99(s.Lag[:], s.MaxLag), s.MaxLag.Microseconds()
	counts.TimerLateP99Us, counts.TimerLateMaxUs = p99(s.TimerLate[:], s.MaxTimerLate), s.MaxTimerLate.Microseconds()
	counts.LongTurns = sum(s.Lag[longTurn+1:])
	return Summary{
		Accepted: counts.Accepted, Active: counts.Active, Refused: w.refusedClients, Canceled: w.canceledClients, Left: w.leftClients, Totals: w.ended,
		Loops: []Load{{LoopCounts: counts, Peeks: w.peeks, HellosMissing: w.hellosMissing, Taken: w.taken, Stats: s}},
	}
}

// longTurn is the power of two of a microsecond from which on a turn counts as long.
const longTurn = 10

func sum(counts []int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// p99 returns an upper bound, in microseconds, of 99 % of the times that counts counts by powers of two of a microsecond.
func p99(counts []int64, longest time.Duration) int64 {
	all, seen := sum(counts), int64(0)
	for i, n := range counts {
		if seen += n; n > 0 && seen >= all-all/100 {
			return min(1<<i, longest.Microseconds())
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

// scanPast counts a session that has ended before the scan in progress has reached it.
func (w *worker) scanPast(n *conn, r relay.Result) {
	if w.scan.done != nil && int(n.slab) >= w.scan.at {
		w.scan.sum.Totals.Add(r)
		w.scan.note(n, bytesOf(&r))
	}
}

func bytesOf(r *relay.Result) Bytes {
	return Bytes{ClientToEndpoint: movedBy(&r.AToB), EndpointToClient: movedBy(&r.BToA)}
}

// A bytesByBinding is bytes by binding. A nil map means that nobody asks for them.
type bytesByBinding map[Binding]*Bytes

func (t bytesByBinding) of(b Binding) *Bytes {
	if t[b] == nil {
		t[b] = new(Bytes)
	}
	return t[b]
}

// ended passes the bytes of an ended session to its binding, if any: at once, or later by flush if t is not nil.
func (t bytesByBinding) ended(b Binding, r *relay.Result) {
	switch {
	case b == nil:
	case t != nil:
		t.of(b).Add(bytesOf(r))
	default:
		b.Moved(bytesOf(r))
	}
}

// Metered calls read with a [Summary] and, by binding, the bytes of the running sessions. Bindings get the bytes of
// sessions that end meanwhile only afterwards. So the bindings' sums plus the running bytes are all moved bytes, each
// counted once, and no later result is smaller. The loops go on, and are asked for a few sessions at a time. Any goroutine
// but the loops' may call Metered, but read must not.
func (g *Group) Metered(read func(sum Summary, running map[Binding]*Bytes)) {
	g.metering.Lock()
	defer g.metering.Unlock()
	running := make(bytesByBinding)
	sum := g.summarize(running)
	read(sum, running)
	for _, w := range g.workers {
		g.flushMeters(w)
	}
}

// flushMeters makes a worker give the bindings the bytes that it has held back.
func (g *Group) flushMeters(w *worker) {
	flushed := make(chan struct{}, 1)
	w.post(func() {
		w.flush()
		flushed <- struct{}{}
	})
	if _, ok := await(g, flushed); !ok {
		w.flush()
	}
}

// flush gives the bindings the bytes held back, and holds nothing back any more.
func (w *worker) flush() {
	for b, bytes := range w.deferred {
		b.Moved(*bytes)
	}
	w.deferred = nil
	for _, rebind := range w.rebinds {
		rebind()
	}
	w.rebinds = nil
}

// note notes the bytes of a running session, for a scan by binding.
func (w *statsScan) note(n *conn, b Bytes) {
	if w.running == nil {
		return
	}
	binding := n.binding()
	if binding == nil {
		return
	}
	if binding != w.binding { // most sessions have the binding of the previous one
		w.binding, w.bytes = binding, w.running.of(binding)
	}
	w.bytes.Add(b)
}
