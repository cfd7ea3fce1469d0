package arena_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
)

// A plainOffset is an atomic.Uint32 that is none.
type plainOffset struct{ n uint32 }

func (o *plainOffset) Load() uint32   { return o.n }
func (o *plainOffset) Store(n uint32) { o.n = n }

// Two rings that differ in the kind of their offsets alone: atomic ones are the least that a ring for one
// producer and one consumer needs.
type (
	plainRing  struct{ head, tail plainOffset }
	atomicRing struct{ head, tail atomic.Uint32 }
)

func (r *plainRing) Write(slot, p []byte) int {
	tail := r.tail.Load()
	n := putAt(slot, p, tail, r.head.Load())
	r.tail.Store(tail + uint32(n))
	return n
}

func (r *plainRing) Read(slot, p []byte) int {
	head := r.head.Load()
	n := getAt(slot, p, head, r.tail.Load())
	r.head.Store(head + uint32(n))
	return n
}

func (r *atomicRing) Write(slot, p []byte) int {
	tail := r.tail.Load()
	n := putAt(slot, p, tail, r.head.Load())
	r.tail.Store(tail + uint32(n))
	return n
}

func (r *atomicRing) Read(slot, p []byte) int {
	head := r.head.Load()
	n := getAt(slot, p, head, r.tail.Load())
	r.head.Store(head + uint32(n))
	return n
}

func putAt(slot, p []byte, tail, head uint32) int {
	n := min(len(p), len(slot)-int(tail-head))
	at := int(tail) & (len(slot) - 1)
	k := copy(slot[at:], p[:n])
	copy(slot, p[k:n])
	return n
}

func getAt(slot, p []byte, head, tail uint32) int {
	n := min(len(p), int(tail-head))
	at := int(head) & (len(slot) - 1)
	k := copy(p[:n], slot[at:])
	copy(p[k:n], slot)
	return n
}

// BenchmarkRingAtomic is the time of a message through a ring, by one goroutine, with atomic offsets and
// with plain ones: rounds take turns, and ratio is that of the two. ring-ns is that of a Ring.
func BenchmarkRingAtomic(b *testing.B) {
	for _, size := range []int{64, 1000, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			slot, message, got := make([]byte, 16<<10), make([]byte, size), make([]byte, size)
			var ring arena.Ring
			var plain plainRing
			var shared atomicRing
			const messages = 2000
			ns := make(map[string][]float64)
			for b.Loop() {
				begin := time.Now()
				for range messages {
					ring.Write(slot, message)
					ring.Read(slot, got)
				}
				first := time.Now()
				for range messages {
					plain.Write(slot, message)
					plain.Read(slot, got)
				}
				second := time.Now()
				for range messages {
					shared.Write(slot, message)
					shared.Read(slot, got)
				}
				x, y := float64(second.Sub(first)), float64(time.Since(second))
				ns["ring-ns"] = append(ns["ring-ns"], float64(first.Sub(begin))/messages)
				ns["plain-ns"] = append(ns["plain-ns"], x/messages)
				ns["atomic-ns"] = append(ns["atomic-ns"], y/messages)
				ns["ratio"] = append(ns["ratio"], y/x)
			}
			b.ReportMetric(0, "ns/op")
			for name, v := range ns {
				slices.Sort(v)
				b.ReportMetric(v[len(v)/2], name)
			}
		})
	}
}

// TestAtomicRing: the ring of the benchmark passes on all bytes, between two goroutines.
func TestAtomicRing(t *testing.T) {
	var r atomicRing
	slot := make([]byte, 256)
	const n = 100_000
	go func() {
		for i := 0; i < n; {
			i += r.Write(slot, []byte{byte(i)})
		}
	}()
	var p [100]byte
	for i := 0; i < n; {
		for _, c := range p[:r.Read(slot, p[:])] {
			if c != byte(i) {
				t.Fatalf("byte %d is %d", i, c)
			}
			i++
		}
	}
}
