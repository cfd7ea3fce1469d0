package pool_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The workloads of the benchmarks.

// garbage is a place through which stored objects escape.
var garbage atomic.Pointer[[32 << 10]byte]

func sizeName(what string, n int) string {
	if n >= 1000 {
		return fmt.Sprintf("%s=%.0e", what, float64(n))
	}
	return fmt.Sprintf("%s=%d", what, n)
}

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

// A holder keeps a number of items idle, somehow.
type holder interface{ refill() }

// stopped lists the holders that may keep items while the world is stopped.
var stopped = []struct {
	name string
	hold func(tb testing.TB, n int) holder
}{
	{"penstock", func(tb testing.TB, n int) holder { return holdIn(newPenstock(tb, n), n) }},
	{"syncPool", func(tb testing.TB, n int) holder { return holdIn(newSyncPool(tb, n), n) }},
	{"slice", func(_ testing.TB, n int) holder { return holdIn(newStack(n), n) }},
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

// divided holds so many items in a pool, and the rest in a stack.
type divided struct{ pool, rest *stock }

func holdDivided(pooled int) func(testing.TB, int) holder {
	return func(tb testing.TB, n int) holder {
		return divided{holdIn(newPenstock(tb, pooled), pooled), holdIn(newStack(n-pooled), n-pooled)}
	}
}

func (d divided) refill() {
	d.pool.refill()
	d.rest.refill()
}

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

// words keeps one item for each P and nothing else, in words that are stride
// apart. With 1 it has false sharing itself. With 16 it has the least cost of a
// pool per P, and the cost that a second busy core causes the first on this
// machine.
type words struct {
	*factory
	slots  []*item
	stride int
}

func newWords(stride int) func(testing.TB, int) contestant {
	return func(testing.TB, int) contestant {
		return &words{new(factory), make([]*item, stride*(runtime.GOMAXPROCS(0)+1)), stride}
	}
}

func (c *words) pairs(n int) {
	for range n {
		x := c.get()
		c.put(x)
	}
}

func (c *words) get() *item {
	slot := &c.slots[(procPin()+1)*c.stride]
	x := *slot
	*slot = nil
	procUnpin()
	if x == nil {
		return c.item()
	}
	return x
}

func (c *words) put(x *item) {
	c.slots[(procPin()+1)*c.stride] = x
	procUnpin()
}

func (c *words) take(xs []*item) {
	for i := range xs {
		xs[i] = c.get()
	}
}

func (c *words) give(xs []*item) {
	for _, x := range xs {
		c.put(x)
	}
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
