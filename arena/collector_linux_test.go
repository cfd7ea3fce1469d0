package arena_test

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/penstock/penstock/arena"
)

// scanned returns how many bytes of the heap the collector has to look through.
func scanned() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestNothingIsScanned: the collector scans neither the memory nor the records of its
// slots, whatever is out. It scans a thousandth of the size at most. As many buffers of
// the heap with a table of them would be 24 bytes each.
func TestNothingIsScanned(t *testing.T) {
	const size, slot = 32 << 20, 1024
	before := scanned()
	a := open(t, &arena.Config{Size: size, Locals: 1})
	l := a.Local(0)
	handles := make([]arena.Handle, size/slot)
	rings := make([]arena.Ring, size/slot)
	for i := range handles {
		handles[i] = get(t, l, slot, arena.Residue)
		b, err := l.Bytes(handles[i])
		if err != nil {
			t.Fatal(err)
		}
		rings[i].Write(b, []byte("left behind"))
	}
	if after := scanned(); after > before+size/1000 {
		t.Errorf("%d bytes more are scanned for an arena of %d", after-before, size)
	}
	for i, h := range handles {
		if rings[i].Len() != 11 {
			t.Fatal("rings were lost")
		}
		put(t, l, h)
	}
	runtime.KeepAlive(rings)
}

// TestAllocs: nothing is allocated, whether a chunk is taken or not, or refused.
func TestAllocs(t *testing.T) {
	l := plain(t, 2, 1).Local(0)
	kept := get(t, l, 256, arena.Other)
	defer func() { put(t, l, kept) }()
	var ring arena.Ring
	for name, op := range map[string]func(){
		"same chunk": func() { put(t, l, get(t, l, 100, arena.Residue)) },
		"new chunk":  func() { put(t, l, get(t, l, 5000, arena.Peek)); l.Trim() },
		"refused": func() {
			h := get(t, l, arena.MaxSlot, arena.Read)
			if _, err := l.Get(arena.MaxSlot, arena.Read); err != arena.ErrBudget {
				t.Error(err)
			}
			put(t, l, h)
			if l.Put(h) != arena.ErrStale {
				t.Error("put twice")
			}
		},
		"ring": func() {
			b, err := l.Bytes(kept)
			if err != nil {
				t.Fatal(err)
			}
			ring.Write(b, b[:200])
			first, second := ring.Peek(b)
			ring.Discard(len(first) + len(second))
		},
		"flush": func() { l.Flush(); l.Stats() },
	} {
		if n := testing.AllocsPerRun(500, op); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
