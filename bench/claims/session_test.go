package claims

import (
	"context"
	"runtime"
)

// idleGoroutines is how many sessions with goroutines measureIdle has at most.
const idleGoroutines = 10_000

// measureMillion has a million idle sessions on a loop.
func measureMillion(ctx context.Context) (Result, error) { return measureIdle(ctx, 1_000_000) }

// measureIdle takes the memory of n sessions on a loop, and of goroutines that have a buffer each. That is the memory live in the heap
// and on stacks after a collection, without the sockets themselves. Then messages pass by them.
func measureIdle(ctx context.Context, n int) (r Result, err error) {
	for _, m := range []struct {
		name string
		make func(n int) (population, error)
		n    int
	}{
		{"sessions on a loop", newCrowd, n},
		{"two goroutines with 32 KiB each", newPumps, min(n, idleGoroutines)},
	} {
		figures, err := crowded(ctx, m.name, m.make, m.n)
		if err != nil {
			return r, err
		}
		r = append(r, figures...)
	}
	return r, nil
}

// grown returns the bytes that are live after f and were not before.
func grown(f func()) float64 {
	before := live()
	f()
	return live() - before
}

// live returns the bytes that the program lives on, its stacks included.
func live() float64 {
	runtime.GC()
	runtime.GC() // objects that the first has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
