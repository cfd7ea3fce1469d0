package pool

import (
	"sync"
	"sync/atomic"
	"time"
)

// A latch lets one goroutine at a time into a shard. There are two ways in:
//
//   - The owner is the goroutine that runs on the shard's P. It enters by tryEnter and leaves
//     by leave, pinned to the P throughout, so that there is never more than one.
//     This takes no atomic read-modify-write: see owner_biased_linux_amd64.go; or
//     one, where that cannot be: see owner_portable.go.
//   - Any other goroutine locks mu and keeps the owner out: revoke, barrier, expel. A
//     shared latch has no owner; then mu is enough.
type latch struct {
	owner
	state atomic.Uint32 // open, asked, revoked or shared
	mu    sync.Mutex
}

// The states of a latch. The owner, or a goroutine that asks it, changes open and asked; only the holder of mu
// changes revoked.
const (
	open    = iota // the owner may enter
	asked          // the owner may enter, but should first give something away
	revoked        // a holder of mu is inside, or will be
	shared         // for good: the owner locks mu, too
)

// share takes the latch from its owner for good. The caller is inside, or no goroutine can be.
func (l *latch) share() { l.state.Store(shared) }

func (l *latch) isShared() bool { return l.state.Load() == shared }

// lock enters the latch for a goroutine that is not the owner. It may wait.
func (l *latch) lock() {
	l.mu.Lock()
	if l.revoke() {
		barrier()
		l.expel()
	}
}

// unlock leaves the latch.
func (l *latch) unlock() {
	switch {
	case l.state.Load() == shared:
	case canOwn():
		l.state.Store(open)
	default: // barriers have begun to fail
		l.share()
	}
	l.mu.Unlock()
}

// revoke forbids the owner to enter; after a barrier the owner knows. It returns false if there is no owner.
// The caller holds mu.
func (l *latch) revoke() bool {
	if l.state.Load() == shared {
		return false
	}
	l.state.Store(revoked)
	return true
}

// expel waits until the owner has left. The caller has passed a barrier.
func (l *latch) expel() {
	for i := 0; l.occupied(); i++ {
		// An owner is inside for nanoseconds, unless the kernel has taken its core away; then give this core to
		// the kernel.
		if i > 100 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// await waits until the latch is open, and returns false. If the latch is shared, it returns true with the
// mutex locked.
func (l *latch) await() bool {
	l.mu.Lock()
	if l.state.Load() == shared {
		return true
	}
	l.mu.Unlock()
	return false
}

// ask asks the owner for its surplus, and reports whether the owner may see the question.
func (l *latch) ask() bool { return l.state.CompareAndSwap(open, asked) }

// grant is tryEnter for an owner that was asked. The caller is pinned.
func (l *latch) grant() bool {
	return l.state.CompareAndSwap(asked, open) && l.tryEnter()
}
