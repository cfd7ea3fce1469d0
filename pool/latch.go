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

// The states of a latch.
const (
	open    = iota // the owner may enter; it alone, and a goroutine that asks, change this state
	asked          // likewise, but first it should give something away
	revoked        // a holder of mu is, or will be, inside; it alone changes this state
	shared         // for good: the owner uses mu, too
)

// share ends the time of owners. The caller is inside, or no goroutine can be.
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

// unlock leaves it.
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

// revoke forbids the owner to enter, which it will know after a barrier. The
// caller holds mu. It returns false if there is no owner.
func (l *latch) revoke() bool {
	if l.state.Load() == shared {
		return false
	}
	l.state.Store(revoked)
	return true
}

// expel waits until the owner has left. The barrier is behind the caller.
func (l *latch) expel() {
	if mutant == noWait {
		return
	}
	for i := 0; l.occupied(); i++ {
		// An owner is inside for nanoseconds unless the kernel has taken its core away; then
		// give this one back to the kernel.
		if i > 100 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// await waits until the latch is open, and returns false. If the owner has to use the mutex,
// as other goroutines do, await returns true with the mutex locked.
func (l *latch) await() bool {
	l.mu.Lock()
	if l.state.Load() == shared {
		return true
	}
	l.mu.Unlock()
	return false
}

// ask asks the owner for its surplus, and reports whether the owner may see that.
func (l *latch) ask() bool { return l.state.CompareAndSwap(open, asked) }

// grant is tryEnter for an owner that finds that it was asked: the caller is pinned.
func (l *latch) grant() bool {
	return l.state.CompareAndSwap(asked, open) && l.tryEnter()
}
