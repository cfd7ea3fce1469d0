package lb

import (
	"math/bits"
	"sync/atomic"
)

// A bitmap is a set of small numbers that several goroutines change.
type bitmap []atomic.Uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return b[i/64].Load()>>(i%64)&1 != 0 }

func (b bitmap) add(i int)    { b[i/64].Or(1 << (i % 64)) }
func (b bitmap) remove(i int) { b[i/64].And(^uint64(1 << (i % 64))) }

// keep makes i a member for as long as want returns true. It looks again after writing: of
// several concurrent calls the last one to write sees the present state.
func (b bitmap) keep(i int, want func() bool) {
	for {
		now := want()
		if now == b.has(i) {
			return
		}
		if now {
			b.add(i)
		} else {
			b.remove(i)
		}
	}
}

// next returns the least member from i on, or -1.
func (b bitmap) next(i int) int {
	if i/64 >= len(b) {
		return -1
	}
	if w := b[i/64].Load() >> (i % 64); w != 0 {
		return i + bits.TrailingZeros64(w)
	}
	for k := i/64 + 1; k < len(b); k++ {
		if w := b[k].Load(); w != 0 {
			return k*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// around returns the least member from i on, and then from 0 on, or -1.
func (b bitmap) around(i int) int {
	if n := b.next(i); n >= 0 {
		return n
	}
	return b.next(0)
}

// count returns how many members there are.
func (b bitmap) count() int {
	n := 0
	for k := range b {
		n += bits.OnesCount64(b[k].Load())
	}
	return n
}

// at returns the kth member, counted from 0, or -1.
func (b bitmap) at(k int) int {
	for i := range b {
		w := b[i].Load()
		if c := bits.OnesCount64(w); k >= c {
			k -= c
			continue
		}
		for ; k > 0; k-- {
			w &= w - 1
		}
		return i*64 + bits.TrailingZeros64(w)
	}
	return -1
}
