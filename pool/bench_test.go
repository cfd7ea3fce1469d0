package pool_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

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

// BenchmarkPool takes one item and gives it back: one goroutine, and one for
// each processor.
func BenchmarkPool(b *testing.B) {
	b.Run("sequential", func(b *testing.B) {
		eachContestant(b, func(b *testing.B, c contestant) {
			c.pairs(100)
			b.ResetTimer()
			c.pairs(b.N)
		})
	})
	b.Run("parallel", func(b *testing.B) {
		eachContestant(b, func(b *testing.B, c contestant) {
			t := newTeam(runtime.GOMAXPROCS(0))
			pairs := func(int) { c.pairs(b.N/t.size + 1) }
			t.run(pairs)
			b.ResetTimer()
			t.run(pairs)
		})
	})
}

// BenchmarkPoolOverflow gives 100 items, then takes 100, on each processor: more
// than any one keeps at hand.
func BenchmarkPoolOverflow(b *testing.B) {
	eachContestant(b, func(b *testing.B, c contestant) {
		o := newOverflow(c, runtime.GOMAXPROCS(0))
		o.round(10)
		b.ResetTimer()
		o.round(b.N/o.size + 1)
	})
}

// BenchmarkPoolAtBound is BenchmarkPoolOverflow with a bound that just holds the
// items of all processors, where slots that one has reserved and does not fill
// have to be called back for another.
func BenchmarkPoolAtBound(b *testing.B) {
	ps := runtime.GOMAXPROCS(0)
	c := newPenstock(b, 100*ps)
	o := newOverflow(c, ps)
	o.round(10)
	b.ReportAllocs()
	b.ResetTimer()
	o.round(b.N/o.size + 1)
}

// BenchmarkPoolCrossP takes items on one processor and gives them back on
// another; an operation is one item. They travel in batches.
func BenchmarkPoolCrossP(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(sizeName("batch", batch), func(b *testing.B) {
			eachContestant(b, func(b *testing.B, c contestant) {
				skipBelow(b, 2)
				x := newCrossing(c, batch)
				x.round(10 * batch)
				b.ResetTimer()
				x.round(b.N)
			})
		})
	}
}

// BenchmarkPoolSTW measures how long a collection stops the world while a pool
// holds idle items; "slice" is the same program without any pool. The pause that
// the runtime reports includes the time to stop the processors, so compare
// medians.
func BenchmarkPoolSTW(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, n := range []int{1e3, 1e5, 1e6} {
		b.Run(sizeName("idle", n), func(b *testing.B) {
			for _, c := range stopped {
				b.Run(c.name, func(b *testing.B) {
					h := c.hold(b, n)
					var pauses []time.Duration
					for b.Loop() {
						h.refill()
						pauses = append(pauses, pause())
					}
					runtime.KeepAlive(h)
					reportPauses(b, pauses)
				})
			}
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

// A person is the object of WithoutPool and WithPool.
type person struct{ age int }

// objects is how many of them an operation needs, one after the other.
const objects = 10_000

// gcEvery has the number of objects after which a collection follows.
var gcEvery = []struct {
	name string
	n    int
}{{"gc=none", 0}, {"gc=op", objects}, {"gc=object", 1}}

// BenchmarkWithoutPool makes 10,000 objects per operation; with a collection
// after each operation, and after each object.
func BenchmarkWithoutPool(b *testing.B) {
	for _, gc := range gcEvery {
		b.Run(gc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				withoutPool(objects, gc.n)
			}
		})
	}
}

// BenchmarkWithPool is BenchmarkWithoutPool with the objects from a pool.
func BenchmarkWithPool(b *testing.B) {
	for _, gc := range gcEvery {
		b.Run(gc.name, func(b *testing.B) {
			b.Run("penstock", func(b *testing.B) {
				b.ReportAllocs()
				p := newPersons(b)
				for b.Loop() {
					withPool(p, objects, gc.n)
				}
			})
			b.Run("syncPool", func(b *testing.B) {
				b.ReportAllocs()
				p := sync.Pool{New: func() any { return new(person) }}
				for b.Loop() {
					withSyncPool(&p, objects, gc.n)
				}
			})
		})
	}
}

func newPersons(tb testing.TB) *pool.Pool[*person] {
	p, err := pool.New(pool.Config[*person]{New: func(context.Context) (*person, error) { return new(person), nil }})
	if err != nil {
		tb.Fatal(err)
	}
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
