package claims

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/pool"
)

// measurePool has every P take an item and give it back.
func measurePool(ctx context.Context) (Result, error) {
	return measureKeepers(ctx, func(k keeper) contestant {
		return onAllPs(k.name, func(_, n int) { k.pairs(n) })
	})
}

// measureOverflow has every P give a hundred items and take as many.
func measureOverflow(ctx context.Context) (Result, error) {
	return measureKeepers(ctx, func(k keeper) contestant {
		held := make([][]*item, runtime.GOMAXPROCS(0))
		for p := range held {
			held[p] = make([]*item, 100)
			k.take(held[p])
		}
		return onAllPs(k.name, func(p, n int) {
			for range n {
				k.give(held[p])
				k.take(held[p])
			}
		})
	})
}

func measureKeepers(ctx context.Context, work func(keeper) contestant) (r Result, err error) {
	ks, err := keepers(0, 1<<13)
	if err != nil {
		return r, err
	}
	var ways []contestant
	for _, k := range ks {
		ways = append(ways, work(k))
	}
	times, err := alternate(ctx, 200, ways...)
	if err != nil {
		return r, err
	}
	ps := float64(runtime.GOMAXPROCS(0))
	for _, k := range ks {
		r.Figures = append(r.Figures, times.median(k.name, 1/ps))
	}
	r.Figures = append(r.Figures, times.ratio(syncPool, locks), times.ratio(penstock, syncPool))
	return r, nil
}

// idleItems is how many items lie idle while measurePauses stops the world, as in
// Go's BenchmarkPoolSTW.
const idleItems = 100_000

// measurePauses forces collections while items lie idle in a pool that was filled
// just before, or in a slice; each is alone in the heap. One P does it: with more,
// most of a pause is to wake their threads.
func measurePauses(ctx context.Context) (r Result, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pauses := map[string]report.Sample{}
	held := make([]*item, idleItems)
	for round := range 30 {
		for i := range 3 {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			k, err := pausedKeeper((i + round) % 3)
			if err != nil {
				return r, err
			}
			k.take(held)
			k.give(held)
			clear(held)
			pauses[k.name] = append(pauses[k.name], pause().Seconds())
			runtime.KeepAlive(k)
			runtime.GC() // the first of two that a sync.Pool takes to go
			runtime.GC()
		}
	}
	overSlice := spread(penstock+" / "+plainSlice, Ratio, pauses[penstock].Over(pauses[plainSlice]))
	for _, name := range []string{syncPool, penstock, plainSlice} {
		p := pauses[name]
		slices.Sort(p)
		r.Figures = append(r.Figures, of(name,
			Figure{Name: "p50", Unit: Seconds, Value: p.Median()},
			Figure{Name: "p95", Unit: Seconds, Value: p[len(p)*95/100]})...)
	}
	r.Figures = append(r.Figures, overSlice)
	return r, nil
}

// pausedKeeper makes one of the three that measurePauses has.
func pausedKeeper(which int) (keeper, error) {
	switch which {
	case 0:
		return newSyncKeeper(0), nil
	case 1:
		return newPenstockKeeper(0, idleItems)
	}
	return newSliceKeeper(), nil
}

// pause collects, once the processors have come to rest, and returns how long the
// world was stopped for it.
func pause() time.Duration {
	time.Sleep(time.Millisecond)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return time.Duration(m.PauseNs[(m.NumGC+255)%256])
}

// garbage is a place that makes stored objects escape.
var garbage atomic.Pointer[[32 << 10]byte]

// measureExpensive has every P hold a hundred items that took a millisecond each
// to make, while garbage is made, and counts how many have to be made again: Go's
// BenchmarkPoolExpensiveNew. The locked pool is left out: no collection empties it
// here.
func measureExpensive(ctx context.Context) (r Result, err error) {
	const ops = 100
	ballast := make([]byte, 8<<20) // so that collections come at a sensible pace
	defer runtime.KeepAlive(ballast)
	times := map[string]report.Sample{}
	news := map[string]report.Sample{}
	for round := range 6 {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		ours, err := newPenstockKeeper(time.Millisecond, pool.DefaultMaxIdle)
		if err != nil {
			return r, err
		}
		ks := []keeper{ours, newSyncKeeper(time.Millisecond)}
		for i := range ks {
			k := ks[(i+round)%len(ks)]
			took := stopwatch(func() { onAllPs("", func(_, n int) { k.hold(n) }).run(ops) })
			all := float64(ops * runtime.GOMAXPROCS(0))
			times[k.name] = append(times[k.name], took.Seconds()/all)
			news[k.name] = append(news[k.name], float64(k.made.Load())/all)
		}
	}
	for _, name := range []string{syncPool, penstock} {
		r.Figures = append(r.Figures, of(name,
			spread("an operation", Seconds, times[name]), spread("New in it", Number, news[name]))...)
	}
	r.Figures = append(r.Figures, spread(penstock+" / "+syncPool, Ratio, times[penstock].Over(times[syncPool])))
	return r, nil
}

// hold takes a hundred items and gives them back, n times.
func (k *keeper) hold(n int) {
	held := make([]*item, 100)
	for range n {
		for i := range held {
			k.take(held[i : i+1])
			garbage.Store(new([32 << 10]byte))
		}
		k.give(held)
	}
}

// loss lets things that have to be closed lie idle during three collections. It counts how
// many of them are left, and how many our pool has closed in the end.
func loss() ([]Figure, error) {
	const n = 1000
	var closed int64
	ours, err := pool.New(pool.Config[*item]{
		New:   func(context.Context) (*item, error) { return new(item), nil },
		Close: func(*item) { closed++ }, MaxIdle: n,
	})
	if err != nil {
		return nil, err
	}
	var theirs sync.Pool
	held := make([]*item, n)
	for i := range held {
		theirs.Put(new(item))
		held[i], _ = ours.Get(context.Background()) // making an item cannot fail
	}
	for _, x := range held {
		ours.Put(x)
	}
	for range 3 {
		runtime.GC()
	}
	kept := 0
	for theirs.Get() != nil {
		kept++
	}
	idle := ours.Stats().Idle
	ours.Close()
	return []Figure{
		{Of: "of 1,000 idle during three collections are left", Name: syncPool, Unit: Exact, Value: float64(kept)},
		{Of: "of 1,000 idle during three collections are left", Name: penstock, Unit: Exact, Value: float64(idle)},
		{Name: "Penstock closes in the end", Unit: Exact, Value: float64(closed)},
	}, nil
}
