package arena_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/arena"
)

var sink []byte

// BenchmarkLease takes a buffer, writes a byte to it and gives it back.
func BenchmarkLease(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("arena/%d", size), func(b *testing.B) {
			l := plain(b, 64, 1).Local(0)
			b.ReportAllocs()
			for b.Loop() {
				lease(b, l, size)
			}
		})
		b.Run(fmt.Sprintf("sync.Pool/%d", size), func(b *testing.B) {
			p := sync.Pool{New: func() any { s := make([]byte, size); return &s }}
			b.ReportAllocs()
			for b.Loop() {
				s := p.Get().(*[]byte)
				(*s)[0] = 1
				p.Put(s)
			}
		})
		b.Run(fmt.Sprintf("make/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = make([]byte, size)
				sink[0] = 1
			}
		})
	}
}

func lease(b *testing.B, l *arena.Local, size int) {
	h, err := l.Get(size, arena.Residue)
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.Bytes(h)
	if err != nil {
		b.Fatal(err)
	}
	s[0] = 1
	if err := l.Put(h); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMany has a thousand buffers of 4 KiB out, puts the oldest and takes another,
// as residue does. The collector runs as it likes.
func BenchmarkMany(b *testing.B) {
	const many, size = 1000, 4 << 10
	b.Run("arena", func(b *testing.B) {
		l := plain(b, 64, 1).Local(0)
		var out [many]arena.Handle
		for i := range out {
			out[i] = get(b, l, size, arena.Residue)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if err := l.Put(out[i]); err != nil {
				b.Fatal(err)
			}
			var err error
			if out[i], err = l.Get(size, arena.Residue); err != nil {
				b.Fatal(err)
			}
			i = (i + 1) % many
		}
		put(b, l, out[:]...)
	})
	b.Run("sync.Pool", func(b *testing.B) {
		p := sync.Pool{New: func() any { s := make([]byte, size); return &s }}
		var out [many]*[]byte
		for i := range out {
			out[i] = p.Get().(*[]byte)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			p.Put(out[i])
			out[i] = p.Get().(*[]byte)
			i = (i + 1) % many
		}
	})
	b.Run("make", func(b *testing.B) {
		var out [many][]byte
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			out[i] = make([]byte, size)
			i = (i + 1) % many
		}
		runtime.KeepAlive(out)
	})
}

// BenchmarkChunk takes a chunk from the arena and gives it back: the rare case.
func BenchmarkChunk(b *testing.B) {
	l := plain(b, 4, 1).Local(0)
	for b.Loop() {
		lease(b, l, 4<<10)
		l.Trim()
	}
}

// BenchmarkNeighbours leases in one Local while the next one does, too, or does not:
// Locals share no cache line.
func BenchmarkNeighbours(b *testing.B) {
	for name, busy := range map[string]bool{"alone": false, "beside another": true} {
		b.Run(name, func(b *testing.B) {
			a := plain(b, 64, 2)
			var stop atomic.Bool
			var wg sync.WaitGroup
			defer wg.Wait()
			defer stop.Store(true)
			if busy {
				wg.Go(func() {
					for l := a.Local(1); !stop.Load(); {
						lease(b, l, 4<<10)
					}
				})
			}
			for b.Loop() {
				lease(b, a.Local(0), 4<<10)
			}
		})
	}
}

// BenchmarkRing moves a message through a ring in a slot.
func BenchmarkRing(b *testing.B) {
	l := plain(b, 1, 1).Local(0)
	h := get(b, l, 16<<10, arena.Residue)
	slot, err := l.Bytes(h)
	if err != nil {
		b.Fatal(err)
	}
	var r arena.Ring
	message, got := make([]byte, 1000), make([]byte, 1000)
	b.SetBytes(int64(len(message)))
	for b.Loop() {
		r.Write(slot, message)
		readRing(&r, slot, got)
	}
	put(b, l, h)
}

// BenchmarkNew maps, populates and unmaps the memory of one Local.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		a, err := arena.New(&arena.Config{Locals: 1})
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPages writes 64 bytes to a slot of 4 KiB, each time to another one in no order: to all
// of an arena of the default size of a loop, and of one that no TLB covers with plain pages.
func BenchmarkPages(b *testing.B) {
	for _, size := range []int64{arena.DefaultSizePerLocal, 64 << 20} {
		for name, cfg := range map[string]arena.Config{
			"plain":  {Pages: arena.PagesPlain},
			"huge":   {Pages: arena.PagesTransparent},
			"locked": {Pages: arena.PagesPlain, Mlock: true},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size>>20), func(b *testing.B) {
				cfg.Size, cfg.Locals = size, 1
				a, err := arena.New(&cfg)
				if err != nil {
					b.Skip(err)
				}
				defer a.Close()
				scatter(b, a.Local(0), int(size>>12))
			})
		}
	}
}

// scatter leases n slots of 4 KiB, a power of two, and writes to them.
func scatter(b *testing.B, l *arena.Local, n int) {
	handles, slots := make([]arena.Handle, n), make([][]byte, n)
	for i := range slots {
		var err error
		if handles[i], err = l.Get(4<<10, arena.Residue); err != nil {
			b.Fatal(err)
		}
		if slots[i], err = l.Bytes(handles[i]); err != nil {
			b.Fatal(err)
		}
	}
	from, at := make([]byte, 64), uint32(1)
	for b.Loop() {
		at = at*1664525 + 1013904223
		copy(slots[int(at>>8)&(n-1)][at>>28<<6:], from)
	}
	for _, h := range handles {
		if err := l.Put(h); err != nil {
			b.Error(err)
		}
	}
}

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

// readRing moves bytes of a Ring to p.
func readRing(r *arena.Ring, slot, p []byte) {
	first, second := r.Peek(slot)
	n := copy(p, first)
	n += copy(p[n:], second)
	r.Discard(n)
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
// with plain ones: rounds take turns, and ratio compares the two. ring-ns is the time of a Ring.
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
					readRing(&ring, slot, got)
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
