//go:build gc && !penstock_portable && !penstock_nolinkname

package pool

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
)

// A biased latch: it costs the owner almost nothing, and others more. It relies on more than Go's memory model,
// so here is why it is right.
//
// The owner, pinned to its P: The holder of mu, on another thread:
//
//	entered = 1        (O1, plain store)      state = revoked   (R1)
//	load state         (O2)                   membarrier        (R2)
//	open: use the shard                       load entered      (R3)
//	entered = 0        (O3, plain store)      0: use the shard
//
// This is Dekker's handshake. On its own it fails, because x86 lets a load overtake an earlier store: O2 may
// read "open" while O1 still waits in the store buffer, and R3 reads 0. A fence of the owner between O1 and O2
// would prevent that, at the price of an atomic read-modify-write. Instead the other side pays: membarrier(2)
// with MEMBARRIER_CMD_PRIVATE_EXPEDITED makes every running thread of the process execute a full barrier; a
// thread that does not run executed one when it was switched out (membarrier_private_expedited in
// kernel/sched/membarrier.c). So between R1 and R3 each owner passes a full barrier, and there are two cases.
//
//  - O1 comes before its barrier: then R3, or a later load in expel, sees the 1 unless O3 has followed.
//   - O1 comes after its barrier: then so does O2, which reads "revoked".
//
// So at least one side always sees the other. Writes of the owner between O2 and O3 are visible to a holder
// that has read O3's 0, because x86 makes stores visible in the order in which they were made, and no later
// store overtakes a load. Conversely the holder's writes come before its store of "open" to state, which is
// atomic, as is the owner's load of it.
//
// The compiler must keep O1 before O2 and O3 last. It does: gc puts all stores, and atomic loads, on one chain
// of memory states and emits them in its order. It drops no store that an atomic operation might observe. A
// plain load may move up, but not above the atomic load O2 or a store. Other compilers get the portable latch.
//
// There is one owner at a time: while a goroutine is pinned, it neither moves to another P nor is preempted,
// and its P runs nothing else. If the P goes to another thread between two entries, the runtime's hand-over of
// the P and the kernel's of the core order the two entries. An owner inside never blocks, so it leaves as soon
// as its thread runs.
//
// The race detector knows nothing of this. In its builds these functions are not instrumented, but report to it
// the order that they make, so that it checks everything else (owner_race.go).

// owner is the owner's part of a latch.
type owner struct {
	entered uint32 // 1 while the owner is inside or tries to enter; only the owner writes it
}

// tryEnter lets the owner in if the latch is open. The caller is pinned.
//
//go:norace
func (l *latch) tryEnter() bool {
	l.entered = 1
	if l.state.Load() == open {
		l.acquired()
		return true
	}
	l.entered = 0
	return false
}

// leave lets the owner out.
//
//go:norace
func (o *owner) leave() {
	o.releases()
	o.entered = 0
}

// occupied reports whether the owner is inside. The caller has revoked the latch and passed a barrier.
func (o *owner) occupied() bool {
	if atomic.LoadUint32(&o.entered) != 0 {
		return true
	}
	o.acquired()
	return false
}

// peek returns the sum of two counters of the shard without entering it: a hint. It returns false if only the
// owner can read them.
func (l *latch) peek(a, b *uint32) (uint32, bool) {
	return hint(a) + hint(b), l.state.Load() != shared
}

// owners says whether membarrier works.
var owners struct {
	once sync.Once
	ok   atomic.Bool
}

// canOwn reports whether latches may have owners: whether the kernel has registered the process for membarrier,
// and no barrier has failed since.
func canOwn() bool {
	owners.once.Do(func() { owners.ok.Store(sys.RegisterMembarrier() == nil) })
	return canPin && owners.ok.Load()
}

// barrier makes every other thread of the process execute a memory barrier.
//
// membarrier may cease to work: because of a seccomp filter, or a checkpoint restored without the registration.
// Then no latch gets an owner any more. To end the present owners it is enough to stop the world: that waits
// for all pinned goroutines, and is a barrier.
func barrier() {
	if !brokenBarrier.Load() && owners.ok.Load() && sys.Membarrier() == nil {
		return
	}
	owners.ok.Store(false)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
}

// brokenBarrier lets tests break the barrier.
var brokenBarrier atomic.Bool
