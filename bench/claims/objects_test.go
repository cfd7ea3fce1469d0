package claims

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/report"
)

// small is the object of the article about sync.Pool, and objects is how many of
// them an operation needs, one after the other.
type small struct{ a int }

const objects = 10_000

// The ways of having an object for a moment.
const (
	noPool   = "no pool"
	syncPool = "sync.Pool"
	penstock = "Penstock"
)

// timer works like a benchmark's timer (testing.B, StartTimer and StopTimer). Both calls read
// the memory statistics, which stops the world and empties the allocator's caches, and the
// time between them counts.
type timer struct {
	begun time.Time
	sum   time.Duration
	stats runtime.MemStats
}

func (t *timer) start() {
	runtime.ReadMemStats(&t.stats)
	t.begun = time.Now()
}

func (t *timer) stop() {
	t.sum += time.Since(t.begun)
	runtime.ReadMemStats(&t.stats)
}

// interrupted returns the time that the timer counts for n operations, stopped
// after each and started again.
func interrupted(n int, run func(n int)) time.Duration {
	var t timer
	t.start()
	for range n {
		run(1)
		t.stop()
		t.start()
	}
	return t.sum
}

// measureStopTimer measures nothing, objects made and objects from sync.Pool. The loops have
// a timer that stops and starts for each object, or are timed whole.
func measureStopTimer(ctx context.Context) (r Result, err error) {
	var last *small // so that new objects are not kept on the stack
	idle := sync.Pool{New: func() any { return new(small) }}
	ways := []candidate{
		{"nothing", repeat(func() {})},
		{noPool, repeat(func() { last = &small{a: 1} })},
		{syncPool, repeat(func() {
			x := idle.Get().(*small)
			x.a = 1
			idle.Put(x)
		})},
	}
	stopped := make([]interruption, len(ways))
	for round := range 20 {
		for i := range ways {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			k := (i + round) % len(ways)
			stopped[k].measure(ways[k])
		}
	}
	for i, w := range ways {
		r = append(r, of(
			w.name,
			spread("timer stopped", Seconds, stopped[i].counted),
			spread("elapsed for that", Seconds, stopped[i].elapsed),
			Figure{Name: "allocated", Unit: Bytes, Value: slices.Min(stopped[i].allocated)},
			spread("timed whole", Seconds, stopped[i].whole),
		)...)
	}
	r = append(r,
		spread("sync.Pool / no pool, timer stopped", Ratio, stopped[2].counted.Over(stopped[1].counted)),
		spread("sync.Pool / no pool, timed whole", Ratio, stopped[2].whole.Over(stopped[1].whole)),
	)
	runtime.KeepAlive(last)
	return r, nil
}

// An interruption is the figures of a contestant: its time by a timer that stops for each
// operation, the time that passed and the bytes allocated meanwhile, and its real time. They
// are seconds and bytes for so many objects, a value for each round.
type interruption struct{ counted, elapsed, allocated, whole report.Sample }

func (i *interruption) measure(c candidate) {
	const few, many = 100, 10_000
	var counted time.Duration
	var elapsed time.Duration
	bytes := allocations(func() { elapsed = stopwatch(func() { counted = interrupted(few, c.run) }) })
	whole := stopwatch(func() { c.run(many) })
	i.counted = append(i.counted, counted.Seconds()/few*objects)
	i.elapsed = append(i.elapsed, elapsed.Seconds()/few*objects)
	i.allocated = append(i.allocated, bytes/few*objects)
	i.whole = append(i.whole, whole.Seconds()/many*objects)
}
