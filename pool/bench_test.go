package pool_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// Run them with
//
//	go test -run '^$' -bench . -cpu 1,2,12 ./pool/
//
// On a machine with fewer than twelve cores -cpu 12 is oversubscribed: twelve
// processors share the cores, each is stopped by the kernel at any moment, and
// a processor that waits for another (a lock, an item) waits for the scheduler.
// The figure shows just that, and nothing about twelve cores.
//
// These benchmarks run one contestant after the other. Where a ratio matters
// take it from BenchmarkRatio, which alternates them.

// benchIdle is the bound of the pools that are compared.
const benchIdle = 1 << 13

// eachContestant runs a sub-benchmark for each, with a fresh contestant that
// holds no items.
func eachContestant(b *testing.B, f func(b *testing.B, c contestant)) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			f(b, c.make(b, benchIdle))
		})
	}
}

// BenchmarkPoolSTW measures how long a collection stops the world while a pool
// holds 100,000 idle items; "slice" is the same program without any pool. The pause that
// the runtime reports includes the time to stop the processors, so compare
// medians.
func BenchmarkPoolSTW(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, c := range stopped {
		b.Run(c.name, func(b *testing.B) {
			h := c.hold(b, 1e5)
			var pauses []time.Duration
			for b.Loop() {
				h.refill()
				pauses = append(pauses, pause())
			}
			runtime.KeepAlive(h)
			reportPauses(b, pauses)
		})
	}
}

func reportPauses(b *testing.B, pauses []time.Duration) {
	slices.Sort(pauses)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(pauses, 0.50), "p50-ns/STW")
	b.ReportMetric(quantile(pauses, 0.95), "p95-ns/STW")
}

// BenchmarkPoolExpensiveNew has each processor hold 100 items that took a
// millisecond each to make, while garbage is made; it counts how many have to be
// made again.
func BenchmarkPoolExpensiveNew(b *testing.B) {
	ballast := make([]byte, 8<<20) // so that collections come at a sensible pace
	eachContestant(b, func(b *testing.B, c contestant) {
		c.cost(time.Millisecond)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.RunParallel(func(pb *testing.PB) {
			items := make([]*item, 100)
			for pb.Next() {
				for i := range items {
					c.take(items[i : i+1])
					garbage.Store(new([32 << 10]byte))
				}
				c.give(items)
			}
		})
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.NumGC-before.NumGC)/float64(b.N), "GCs/op")
		b.ReportMetric(float64(c.made())/float64(b.N), "New/op")
	})
	runtime.KeepAlive(ballast)
}

// BenchmarkPoolAcrossGC keeps 1e5 items idle during three collections, then
// takes and gives all of them.
func BenchmarkPoolAcrossGC(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			xs := make([]*item, 1e5)
			p := c.make(b, len(xs))
			p.take(xs)
			p.give(xs)
			clear(xs)
			before := p.made()
			b.ResetTimer()
			for b.Loop() {
				for range 3 {
					runtime.GC()
				}
				p.take(xs)
				p.give(xs)
				clear(xs)
			}
			b.ReportMetric(float64(p.made()-before)/float64(b.N), "New/op")
		})
	}
}

// A person is the object of RatioWithPool.
type person struct{ age int }

// objects is how many of them an operation needs, one after the other.
const objects = 10_000

func newPersons(tb testing.TB) *pool.Pool[*person] {
	p := must.Get(pool.New(pool.Config[*person]{New: func(context.Context) (*person, error) { return new(person), nil }}))(tb)
	tb.Cleanup(func() { p.Close() })
	return p
}

// lastPerson makes the objects escape.
var lastPerson *person

func withoutPool(n, gc int) {
	for i := range n {
		x := new(person)
		x.age = 23
		lastPerson = x
		collect(i, gc)
	}
}

func withPool(p *pool.Pool[*person], n, gc int) {
	for i := range n {
		x, err := p.Get(context.Background())
		if err != nil {
			panic(err)
		}
		x.age = 23
		p.Put(x)
		collect(i, gc)
	}
}

func withSyncPool(p *sync.Pool, n, gc int) {
	for i := range n {
		x := p.Get().(*person)
		x.age = 23
		p.Put(x)
		collect(i, gc)
	}
}

func collect(i, every int) {
	if every > 0 && (i+1)%every == 0 {
		runtime.GC()
	}
}

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
// with sync.Pool, without a collection, with one after 10,000 objects, and after each;
// an operation of ns/op and B/op is one object.
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

// BenchmarkRatioSTW compares the pauses of collections while items are idle in
// the pool with the pauses while as many are in a plain slice. "null" compares a slice
// with itself. One operation is one pause.
func BenchmarkRatioSTW(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	ours, slice := stopped[0].hold, stopped[2].hold
	for _, n := range []int{1e3, 1e5} {
		b.Run(fmt.Sprint("idle=", n), func(b *testing.B) { alternate(b, pauses(b, ours, n), pauses(b, slice, n), 1) })
	}
	b.Run("null", func(b *testing.B) { alternate(b, pauses(b, slice, 1e5), pauses(b, slice, 1e5), 1) })
}

// pauses returns a round of collections that meet n items, which live as long as
// the round. It is worth the median of its pauses.
func pauses(b *testing.B, hold func(testing.TB, int) *stock, n int) round {
	return func() sample {
		h := hold(b, n)
		h.refill()
		runtime.GC()
		var ds []time.Duration
		for range 7 {
			ds = append(ds, pause())
		}
		runtime.KeepAlive(h)
		return sample{time: time.Duration(median(ds))}
	}
}

// The workloads of the benchmarks.

// garbage is a place through which stored objects escape.
var garbage atomic.Pointer[[32 << 10]byte]

// skipBelow skips where there are fewer processors. Only the innermost benchmarks
// run with the GOMAXPROCS of -cpu.
func skipBelow(b *testing.B, processors int) {
	if runtime.GOMAXPROCS(0) < processors {
		b.Skipf("takes %d processors", processors)
	}
}

func quantile[T ~int64 | ~float64](sorted []T, q float64) float64 {
	return float64(sorted[int(q*float64(len(sorted)-1)+0.5)])
}

// A team runs the same work on several processors at once.
type team struct {
	size    int
	arrived atomic.Int64
	begun   atomic.Int64 // when the last one arrived
	lost    atomic.Int64 // preemptions until then
}

var epoch = time.Now()

func now() int64 { return int64(time.Since(epoch)) }

func newTeam(size int) *team { return &team{size: size} }

// run lets each worker do work(worker) and samples the time from the moment when
// all were running until the last was done.
func (t *team) run(work func(worker int)) sample {
	t.arrived.Store(0)
	var done sync.WaitGroup
	for w := range t.size {
		done.Go(func() {
			t.meet()
			work(w)
		})
	}
	done.Wait()
	return sample{time.Duration(now() - t.begun.Load()), preemptions() != t.lost.Load()}
}

// runWaiting is run for work in which the workers may wait for each other. They
// yield then, which the kernel counts like a loss of the core. So no round is
// reported as disturbed: to leave such rounds out would be to choose the result.
func (t *team) runWaiting(work func(worker int)) sample {
	return sample{time: t.run(work).time}
}

// meet waits for all workers. It keeps its processor meanwhile, so that each
// worker has one of its own, unless that would starve the others.
func (t *team) meet() {
	if t.arrived.Add(1) == int64(t.size) {
		t.lost.Store(preemptions())
		t.begun.Store(now())
	}
	yield := t.size > min(runtime.NumCPU(), runtime.GOMAXPROCS(0))
	for t.arrived.Load() < int64(t.size) {
		if yield {
			runtime.Gosched()
		}
	}
}

// overflow is a team whose workers hold 100 items each between rounds.
type overflow struct {
	*team
	c     contestant
	items [][]*item
}

func newOverflow(c contestant, workers int) *overflow {
	o := &overflow{team: newTeam(workers), c: c}
	for range workers {
		xs := make([]*item, 100)
		c.take(xs)
		o.items = append(o.items, xs)
	}
	return o
}

// round has each worker give its items and take as many again, n times.
func (o *overflow) round(n int) sample {
	return o.runWaiting(func(w int) {
		xs := o.items[w]
		for range n {
			o.c.give(xs)
			o.c.take(xs)
		}
	})
}

// A crossing is a ring with one producer, which takes items, and one consumer,
// which gives them back.
type crossing struct {
	*team
	c     contestant
	slots [16][]*item // full from read to written

	_       cacheLines
	written atomic.Int64
	_       cacheLines
	read    atomic.Int64
	_       cacheLines
}

func newCrossing(c contestant, batch int) *crossing {
	x := &crossing{team: newTeam(2), c: c}
	for i := range x.slots {
		// A line or more for each batch.
		x.slots[i] = make([]*item, batch, max(batch, 16))
	}
	return x
}

// round moves n items, rounded up to whole batches.
func (x *crossing) round(n int) sample {
	batches := (n + len(x.slots[0]) - 1) / len(x.slots[0])
	return x.runWaiting(func(w int) {
		if w == 0 {
			x.produce(batches)
		} else {
			x.consume(batches)
		}
	})
}

func (x *crossing) produce(batches int) {
	for range batches {
		w := x.written.Load()
		for i := 1; w-x.read.Load() == int64(len(x.slots)); i++ {
			breathe(i)
		}
		x.c.take(x.slots[w%int64(len(x.slots))])
		x.written.Store(w + 1)
	}
}

func (x *crossing) consume(batches int) {
	for range batches {
		r := x.read.Load()
		for i := 1; x.written.Load() == r; i++ {
			breathe(i)
		}
		x.c.give(x.slots[r%int64(len(x.slots))])
		x.read.Store(r + 1)
	}
}

// breathe gives the core away when the other side has evidently lost its own. A
// wait is never that long while both run.
func breathe(i int) {
	if i%100_000 == 0 {
		time.Sleep(20 * time.Microsecond)
	}
}

// stopped lists the ways in which items may be kept while the world is stopped.
var stopped = []struct {
	name string
	hold func(tb testing.TB, n int) *stock
}{
	{"penstock", func(tb testing.TB, n int) *stock { return holdIn(newPenstock(tb, n), n) }},
	{"syncPool", func(tb testing.TB, n int) *stock { return holdIn(newSyncPool(tb, n), n) }},
	{"slice", func(_ testing.TB, n int) *stock { return holdIn(newStack(n), n) }},
}

// stock holds items in a contestant. The slice that they pass through stays, so
// that each contestant is measured beside as much other memory.
type stock struct {
	c  keeper
	xs []*item
}

func holdIn(c keeper, n int) *stock { return &stock{c: c, xs: make([]*item, n)} }

// refill makes all items idle, again if the contestant has dropped any.
func (h *stock) refill() {
	h.c.take(h.xs)
	h.c.give(h.xs)
	clear(h.xs)
}

// stack keeps items as a program without any pool does.
type stack struct{ xs []*item }

func newStack(n int) *stack {
	s := &stack{make([]*item, n)}
	for i := range s.xs {
		s.xs[i] = new(item)
	}
	return s
}

func (s *stack) take(xs []*item) {
	n := len(s.xs) - len(xs)
	copy(xs, s.xs[n:])
	clear(s.xs[n:])
	s.xs = s.xs[:n]
}

func (s *stack) give(xs []*item) { s.xs = append(s.xs, xs...) }

// pause collects and returns how long the world was stopped for it. Before that
// it lets the processors come to rest. Otherwise their last work, which differs,
// would decide how soon they stop.
func pause() time.Duration {
	time.Sleep(time.Millisecond)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return time.Duration(m.PauseNs[(m.NumGC+255)%256])
}

// ratios are those of pairs of rounds.
type ratios []float64

// report sorts the ratios and reports their median and spread.
func (r ratios) report(b *testing.B) {
	slices.Sort(r)
	b.ReportMetric(quantile(r, 0.50), "ratio-p50")
	b.ReportMetric(quantile(r, 0.10), "ratio-p10")
	b.ReportMetric(quantile(r, 0.90), "ratio-p90")
}
