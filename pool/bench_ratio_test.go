package pool_test

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
)

// A round does a fixed amount of work, about a millisecond. It returns the time
// taken, and whether this process kept its cores meanwhile.
type round func() sample

type sample struct {
	time      time.Duration
	disturbed bool // the kernel took a core away
}

// timed makes a round of f.
func timed(f func()) round {
	return func() sample {
		begin, lost := now(), preemptions()
		f()
		return sample{time.Duration(now() - begin), preemptions() != lost}
	}
}

// alternate runs x and y in turn, b.N times each; which of them goes first
// changes each time. One operation is a pair of rounds: with -benchtime 500x
// there are 500. Other work of the machine affects both alike. Pairs in which the
// kernel gave a core to another program are left out, and the median of the
// ratios removes the remaining noise. "kept" is the part of the pairs that
// counts. Where the processors outnumber the cores, or hardly a pair is
// undisturbed, all of them count.
func alternate(b *testing.B, x, y round, ops int) {
	x()
	y()
	pairs := make([][2]sample, b.N)
	b.ResetTimer()
	for i := range pairs {
		if i%2 == 0 {
			pairs[i][0] = x()
			pairs[i][1] = y()
		} else {
			pairs[i][1] = y()
			pairs[i][0] = x()
		}
	}
	kept := slices.DeleteFunc(slices.Clone(pairs), func(p [2]sample) bool {
		return p[0].disturbed || p[1].disturbed
	})
	if runtime.GOMAXPROCS(0) > runtime.NumCPU() || len(kept) < max(len(pairs)/20, 10) {
		kept = pairs
	}
	report(b, kept, ops)
	b.ReportMetric(float64(len(kept))/float64(b.N), "kept")
}

func report(b *testing.B, pairs [][2]sample, ops int) {
	var r ratios
	var x, y []time.Duration
	for _, p := range pairs {
		x, y = append(x, p[0].time), append(y, p[1].time)
		r = append(r, float64(p[0].time)/float64(p[1].time))
	}
	b.ReportMetric(median(x)/float64(ops), "ns/op")
	b.ReportMetric(median(y)/float64(ops), "rival-ns/op")
	r.report(b)
}

func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return quantile(ds, 0.5)
}

// workloads are the ones compared by BenchmarkRatio.
var workloads = []struct {
	name  string
	ops   int // Get and Put pairs of a round, each worker's
	least int // processors
	round func(c contestant, ops int) round
}{
	{"sequential", 40_000, 1, func(c contestant, ops int) round {
		return func() sample { return newTeam(1).run(func(int) { c.pairs(ops) }) }
	}},
	{"parallel", 40_000, 2, func(c contestant, ops int) round {
		t := newTeam(runtime.GOMAXPROCS(0))
		return func() sample { return t.run(func(int) { c.pairs(ops) }) }
	}},
	{"overflow", 40_000, 1, func(c contestant, ops int) round {
		o := newOverflow(c, runtime.GOMAXPROCS(0))
		return func() sample { return o.round(ops / 100) }
	}},
	{"crossP/batch=1", 8_000, 2, func(c contestant, ops int) round {
		x := newCrossing(c, 1)
		return func() sample { return x.round(ops) }
	}},
	{"crossP/batch=32", 32_000, 2, func(c contestant, ops int) round {
		x := newCrossing(c, 32)
		return func() sample { return x.round(ops) }
	}},
}

// BenchmarkRatio is the time of Penstock's pool divided by that of each rival,
// from short rounds in turn: ratio-p50 is the median over the pairs of rounds,
// ratio-p10 and ratio-p90 its spread; ns/op and rival-ns/op are the medians of
// either alone.
func BenchmarkRatio(b *testing.B) {
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			for _, rival := range contestants[1:] {
				b.Run(rival.name, func(b *testing.B) {
					skipBelow(b, w.least)
					alternate(b,
						w.round(newPenstock(b, benchIdle), w.ops),
						w.round(rival.make(b, benchIdle), w.ops), w.ops)
				})
			}
		})
	}
}

// BenchmarkRatioWithPool compares objects from the pool with making each, and
// with sync.Pool, as BenchmarkWithPool does; an operation of ns/op and B/op is
// one object.
func BenchmarkRatioWithPool(b *testing.B) {
	for _, gc := range []struct {
		name       string
		n, objects int
	}{{"gc=none", 0, 40_000}, {"gc=op", objects, 4 * objects}, {"gc=object", 1, 20}} {
		p := newPersons(b)
		s := sync.Pool{New: func() any { return new(person) }}
		with := func() { withPool(p, gc.objects, gc.n) }
		for _, rival := range []struct {
			name string
			run  func()
		}{
			{"without", func() { withoutPool(gc.objects, gc.n) }},
			{"syncPool", func() { withSyncPool(&s, gc.objects, gc.n) }},
		} {
			b.Run(gc.name+"/"+rival.name, func(b *testing.B) {
				alternate(b, timed(with), timed(rival.run), gc.objects)
				b.ReportMetric(bytesOf(with)/float64(gc.objects), "B/op")
				b.ReportMetric(bytesOf(rival.run)/float64(gc.objects), "rival-B/op")
			})
		}
	}
}

// bytesOf returns the bytes that f allocates when it is warm.
func bytesOf(f func()) float64 {
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// BenchmarkRatioSTW compares the pauses of collections that meet items idle in
// the pool with those that meet as many in a plain slice. In "1e3" both programs
// have a million items, the one all of them in the pool and the other a thousand:
// a pause grows with the heap, whatever that holds. In "touched" the program has
// taken and given all items just before each collection; otherwise sync.Pool
// would have dropped them. Each way leaves different data in the caches, which
// shows. "null" compares a slice with itself. One operation is one pause.
func BenchmarkRatioSTW(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	compare := func(name string, x, y round) {
		b.Run(name, func(b *testing.B) { alternate(b, x, y, 1) })
	}
	ours, syncPool, slice := stopped[0].hold, stopped[1].hold, stopped[2].hold
	for _, n := range []int{1e3, 1e5, 1e6} {
		compare(sizeName("idle", n)+"/slice", pauses(b, ours, n, false), pauses(b, slice, n, false))
		compare(sizeName("touched", n)+"/slice", pauses(b, ours, n, true), pauses(b, slice, n, true))
		compare(sizeName("touched", n)+"/syncPool", pauses(b, ours, n, true), pauses(b, syncPool, n, true))
	}
	compare("null=1e+05/slice", pauses(b, slice, 1e5, false), pauses(b, slice, 1e5, false))
	compare("idle=1e+06/1e3", pauses(b, holdDivided(1e6), 1e6, false), pauses(b, holdDivided(1e3), 1e6, false))
}

// pauses returns a round of collections that meet n items, which live as long as
// the round. It is worth the median of its pauses.
func pauses(b *testing.B, hold func(testing.TB, int) holder, n int, touch bool) round {
	return func() sample {
		h := hold(b, n)
		h.refill()
		runtime.GC()
		var ds []time.Duration
		for range 7 {
			if touch {
				h.refill()
			}
			ds = append(ds, pause())
		}
		runtime.KeepAlive(h)
		return sample{time: time.Duration(median(ds))}
	}
}

// BenchmarkFalseSharing is the time of one Get and Put while a neighbour on
// another processor does the same with items of its own, divided by the time of
// one alone. "words=16", processors that share nothing, is the best that the
// machine permits; "words=1" shows false sharing.
func BenchmarkFalseSharing(b *testing.B) {
	const ops = 40_000
	controls := []entrant{{"words=16", newWords(16)}, {"words=1", newWords(1)}}
	for _, c := range slices.Concat(contestants, controls) {
		b.Run(c.name, func(b *testing.B) {
			skipBelow(b, 2)
			p := c.make(b, benchIdle)
			alone, both := newTeam(1), newTeam(2)
			pairs := func(int) { p.pairs(ops) }
			alternate(b,
				func() sample { return both.run(pairs) },
				func() sample { return alone.run(pairs) }, ops)
		})
	}
}
