package arena_test

import (
	"testing"

	"github.com/penstock/penstock/arena"
)

// TestRelease: a slot comes back by any piece that begins in it, and nothing else does.
func TestRelease(t *testing.T) {
	a := plain(t, 4, 2)
	l, other := a.Local(0), a.Local(1)
	for _, size := range []int{256, 1000, 4096, arena.MaxSlot} {
		for _, from := range []int{0, 1, 255} {
			first, second := get(t, l, size, arena.Residue), get(t, l, size, arena.Residue)
			b, err := l.Bytes(second)
			if err != nil {
				t.Fatal(err)
			}
			l.Release(b[from:])
			if _, err := l.Bytes(second); err != arena.ErrStale {
				t.Errorf("slot of %d bytes, released from %d on: %v", size, from, err)
			}
			if b, err = l.Bytes(first); err != nil {
				t.Errorf("its neighbour: %v", err)
			}
			last := len(b) - 1
			l.Release(b[last:last:last]) // no piece at all
			if _, err := l.Bytes(first); err != nil {
				t.Errorf("released by nothing: %v", err)
			}
			l.Release(b[last:])
			if _, err := l.Bytes(first); err != arena.ErrStale {
				t.Errorf("slot of %d bytes, released from its last one on: %v", size, err)
			}
		}
	}
	l.Flush()
	before := l.Stats().Stale
	foreign := get(t, other, 256, arena.Other)
	b, err := other.Bytes(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][]byte{nil, make([]byte, 10), b} {
		l.Release(p)
	}
	l.Flush()
	if n := l.Stats().Stale - before; n != 3 {
		t.Errorf("%d of 3 foreign pieces counted", n)
	}
	put(t, other, foreign)
	if n := testing.AllocsPerRun(100, func() {
		b, err := l.Bytes(get(t, l, 5000, arena.Residue))
		if err != nil {
			t.Fatal(err)
		}
		l.Release(b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
