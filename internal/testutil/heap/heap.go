// Package heap measures how much memory something takes.
package heap

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// The metrics of package runtime that are read: objects in use, including garbage that was not found yet, and
// everything ever allocated.
const (
	objects = "/memory/classes/heap/objects:bytes"
	allocs  = "/gc/heap/allocs:bytes"
)

// lookEvery is the time between two looks.
const lookEvery = 100 * time.Microsecond

func read(name string) int {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// InUse returns how many bytes are in use after a full collection.
func InUse() int {
	for range 3 { // finalizers and pools need more than one collection
		runtime.GC()
	}
	return read(objects)
}

// Taken calls f and returns how many bytes more were in use at most meanwhile, including garbage not yet
// collected, and how many were allocated in all. Nothing else should run.
func Taken(f func()) (most, all int) {
	before, allocated := InUse(), read(allocs)
	over, highest := make(chan struct{}), make(chan int)
	go func() {
		top := before
		for ended := false; !ended; {
			select {
			case <-over:
				ended = true
			case <-time.After(lookEvery):
			}
			top = max(top, read(objects))
		}
		highest <- top
	}()
	f()
	close(over)
	return <-highest - before, read(allocs) - allocated
}
