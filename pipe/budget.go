package pipe

import (
	"sync"
	"sync/atomic"
	"time"
)

// Intervals between attempts to get more from the kernel than last time.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// budget decides how many pages of pipes may be open at once. The kernel's quota is per user, and other processes
// use an unknown part of it. So there are two bounds. The line follows from the kernel's settings and is never
// crossed. The limit is below it: each refusal of the kernel lowers it to the pages in use, and it rises again
// step by step, only when a request exceeds it.
//
// Taking and returning pages is lock-free; refusals and growth are rare and take mu. A budget knows nothing of
// the Pool above it, so that a forgotten Pool can be collected while its idle pipes still refer to the budget.
type budget struct {
	line     int64 // pages
	maxPipes int64 // by RLIMIT_NOFILE: a pipe has two descriptors
	top      int   // no pipe has this descriptor or a higher one; 0: any

	// hard: the user has a hard quota, above which pipe2 fails with ENFILE (fs/pipe.c, create_pipe_files). A
	// full system table of files gives the same error, so the failure counts as both.
	hard bool

	limit atomic.Int64 // pages; at most line; written under mu
	used  atomic.Int64 // pages of pipes that are open or being opened
	large atomic.Int64 // the part of used for large pipes
	pipes atomic.Int64 // pipes that are open or being opened
	retry atomic.Int64 // earliest time of the next step up, counted from start; written under mu

	now   func() time.Time
	start time.Time

	mu      sync.Mutex
	step    int64         // the last step up, in pages; 0 after a refusal
	wait    time.Duration // from a refusal to the next attempt
	ceiling int64         // the limit that the last refusal set

	degraded, refused atomic.Int64 // pipes
}

func newBudget(line, maxPipes int64, now func() time.Time) *budget {
	b := &budget{line: line, maxPipes: maxPipes, now: now, start: now(), wait: minRetry, ceiling: line}
	b.limit.Store(line)
	return b
}

// charge is the cost of one pipe.
type charge struct {
	pages int64
	large bool // larger than the smallest size
}

// take reserves the cost of a pipe, and reports whether the budget allows it. The caller gives back the same
// cost.
//
// Large pipes get half of the line at most. A large pipe makes a flow a little faster, but a flow without a
// pipe is much slower, and a few dozen large pipes would leave nothing for the other flows of an ordinary user.
func (b *budget) take(c charge) bool {
	if b.pipes.Add(1) > b.maxPipes {
		b.pipes.Add(-1)
		return false
	}
	if c.large && b.large.Add(c.pages) > b.line/2 {
		b.large.Add(-c.pages)
		b.pipes.Add(-1)
		return false
	}
	if !b.takePages(c.pages) {
		b.giveShares(c)
		return false
	}
	return true
}

func (b *budget) takePages(pages int64) bool {
	for {
		used := b.used.Load()
		if used+pages > b.limit.Load() {
			if b.grow(pages) {
				continue
			}
			return false
		}
		if b.used.CompareAndSwap(used, used+pages) {
			return true
		}
	}
}

// give returns what take has reserved.
func (b *budget) give(c charge) {
	b.used.Add(-c.pages)
	b.giveShares(c)
}

func (b *budget) giveShares(c charge) {
	if c.large {
		b.large.Add(-c.pages)
	}
	b.pipes.Add(-1)
}

// lacks returns how many pages must be given back before a pipe fits, and whether these must be pages of large
// pipes.
func (b *budget) lacks(c charge) (pages int64, large bool) {
	if n := b.large.Load() + c.pages - b.line/2; c.large && n > 0 {
		return n, true
	}
	least := int64(0)
	if b.pipes.Load() >= b.maxPipes {
		least = 1 // any pipe will do
	}
	return max(b.used.Load()+c.pages-b.limit.Load(), least), false
}

// grow raises the limit by a step if it is below the line and the time has come. Steps double until the kernel
// refuses, so that a few of them use up a quota that has become free.
func (b *budget) grow(pages int64) bool {
	if b.limit.Load() >= b.line || b.elapsed() < b.retry.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.elapsed() < b.retry.Load() {
		return false // another goroutine has just grown it
	}
	b.step = max(pages, 2*b.step)
	b.limit.Store(min(b.line, max(b.limit.Load(), b.used.Load())+b.step))
	b.retry.Store(b.elapsed() + int64(minRetry))
	return b.used.Load()+pages <= b.limit.Load()
}

// deny lowers the limit to the pages in use plus left, after the kernel has refused a pipe and its reserved
// pages were given back. Each refusal doubles the time to the next attempt; allow resets it.
func (b *budget) deny(left int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ceiling = min(b.limit.Load(), b.used.Load()+left)
	b.limit.Store(b.ceiling)
	b.step = 0
	b.retry.Store(b.elapsed() + int64(b.wait))
	b.wait = min(2*b.wait, maxRetry)
}

// allow records that the kernel gave a pipe.
func (b *budget) allow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used.Load() > b.ceiling {
		b.wait = minRetry
	}
}

func (b *budget) elapsed() int64 { return int64(b.now().Sub(b.start)) }
