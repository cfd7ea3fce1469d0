//go:build !gc || penstock_portable || penstock_nolinkname || !linux || !amd64

package pool

import "sync/atomic"

// The portable latch is the same handshake within Go's memory model:
//
//	The owner:                            The holder of mu:
//
//	swap entered, 1       (O1)            state = revoked   (R1)
//	load state            (O2)
//	open: use the shard                   load entered      (R3)
//	entered = 0           (O3)            0: use the shard
//
// All of these are atomic, and Go's atomics are sequentially consistent: O1 or R1 comes first, and the other
// side sees it. So no barrier is needed. O1 is a swap, not a store, so that it observes the O3 of the previous
// owner, which may have been another goroutine.

// owner is the owner's part of a latch.
type owner struct {
	entered atomic.Uint32 // 1 while the owner is inside or tries to enter; only the owner writes it
}

// canOwn reports whether latches may have owners, one at a time.
func canOwn() bool { return canPin }

// tryEnter lets the owner in if the latch is open. The caller is pinned.
func (l *latch) tryEnter() bool {
	l.entered.Swap(1)
	if l.state.Load() == open {
		return true
	}
	l.entered.Store(0)
	return false
}

// leave lets the owner out.
func (o *owner) leave() { o.entered.Store(0) }

// occupied reports whether the owner is inside. The caller has revoked the latch.
func (o *owner) occupied() bool { return o.entered.Load() != 0 }

// peek would be a data race here: only the owner can read the counters.
func (l *latch) peek(_, _ *uint32) (uint32, bool) { return 0, false }

func barrier() {}
