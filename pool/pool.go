// Package pool keeps things that must be closed: kernel pipes, connections, mappings. Unlike
// sync.Pool it never forgets an item without closing it, never keeps more than its bound, and
// has nothing to do with the garbage collector: an item goes because it was not used for an
// interval of time. Unlike a channel or a locked list it is about as fast as sync.Pool, for
// each processor has items of its own.
package pool

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// ErrClosed is wrapped by the error of [Pool.Get] after [Pool.Close]. It is os.ErrClosed.
var ErrClosed = os.ErrClosed

var (
	errGetClosed = fmt.Errorf("pool: get: %w", ErrClosed)
	errNoNew     = errors.New("pool: new: Config.New is nil")
)

// DefaultMaxIdle is the bound of a pool if its Config has none.
const DefaultMaxIdle = 1024

// Config says how a [Pool] makes, keeps and drops items of type T. Only New is
// required.
//
// The functions may be called by several goroutines at once and may call the pool. The pool
// holds no lock meanwhile. One that panics takes the caller down with it, but not the pool:
// nothing is lost, and the other items that were to be closed are closed.
type Config[T any] struct {
	// New makes an item. Its error is returned by Get, wrapped.
	New func() (T, error)

	// Close is called exactly once for every item that the pool drops; nil means that there is
	// nothing to close. It runs in the goroutine that made the pool drop the item, or in one
	// of the pool's own if that was IdleTime or the garbage collector.
	Close func(T)

	// Reset is called by Put; false refuses the item, which is then closed. Nil
	// keeps every item.
	Reset func(T) bool

	// MaxIdle is the most idle items, never exceeded, not for a moment. 0 means
	// DefaultMaxIdle, or sixteen for each P where that is more; negative: keep none.
	//
	// Below about sixteen for each processor the items are not worth dividing:
	// they are kept in one place behind a mutex.
	MaxIdle int

	// MinIdle is how many idle items Sweep and IdleTime leave, used or not.
	MinIdle int

	// IdleTime is how long an item may stay idle: one that was not used for it is
	// closed after between one and two of them. 0 or negative: never; then the
	// pool has no timer.
	IdleTime time.Duration
}

// Pool holds idle items of type T. It is safe for concurrent use and must not be
// copied. Make it with [New]: the zero Pool cannot be used.
//
// An item belongs to the caller from Get or TryGet until Put or Discard, one of
// which must follow, once. With the build tag invariants a Put or Discard of an
// item that is idle panics with the places of both, if T is a pointer or something
// like one.
//
// A pool that becomes unreachable without having been closed is closed by the
// garbage collector, unless its own Config's functions refer to it.
type Pool[T any] struct {
	_     noCopy
	base  []shard[T]   // core.base, one load nearer
	reset func(T) bool // Config.Reset
	core  *core[T]     // all else; it does not refer to the Pool, so that this can be forgotten
}

// New returns an empty pool. It fails only if cfg has no New.
func New[T any](cfg Config[T]) (*Pool[T], error) {
	return newPool(cfg, defaultSetup())
}

// MustNew is New for a variable of a package, with a Config that is a literal: it panics if cfg has no New.
func MustNew[T any](cfg Config[T]) *Pool[T] {
	p, err := New(cfg)
	if err != nil {
		panic(err)
	}
	return p
}

func newPool[T any](cfg Config[T], u setup) (*Pool[T], error) {
	if cfg.New == nil {
		return nil, errNoNew
	}
	c := newCore(cfg, u)
	p := &Pool[T]{base: c.base, reset: cfg.Reset, core: c}
	// The cleanup keeps the core alive, and all that Config's functions refer to: where there
	// is nothing to close and no timer to stop, a forgotten pool that its own New refers to is
	// plain garbage without it.
	if cfg.Close != nil || cfg.IdleTime > 0 {
		runtime.AddCleanup(p, func(c *core[T]) {
			if !c.closed.Load() {
				go c.close() // Config.Close may block
			}
		}, c)
	}
	c.startTimer(u.afterFunc)
	return p, nil
}

// Get returns an idle item, or makes one if there is none in reach: processors
// take each other's surplus, but may leave alone the last few that another one is
// working with, if to take them again and again would cost more than to make an
// item. It fails with New's error, or with ErrClosed after Close, wrapped.
func (p *Pool[T]) Get() (T, error) {
	pid := procPin()
	if uint(pid) < uint(len(p.base)) {
		if s := &p.base[pid]; s.tryEnter() {
			if s.loaded.n > 0 {
				x := s.loaded.pop()
				s.hits++
				s.leave()
				procUnpin()
				if invariants {
					p.core.ledger.out(x)
				}
				return x, nil
			}
			s.leave()
		}
	}
	procUnpin()
	return p.getSlow()
}

// MustGet is [Pool.Get] for a pool whose New returns no error, and that is not closed as long as it is used: it
// panics with an error.
func (p *Pool[T]) MustGet() T {
	x, err := p.Get()
	if err != nil {
		panic(err)
	}
	return x
}

func (p *Pool[T]) getSlow() (T, error) {
	// Not before the operation has ended may the pool count as forgotten.
	defer runtime.KeepAlive(p)
	c := p.core
	if x, ok := c.take(); ok {
		return x, nil
	}
	if c.closed.Load() {
		var zero T
		return zero, errGetClosed
	}
	return c.make()
}

// TryGet is Get without making an item: false means that there is none in reach.
func (p *Pool[T]) TryGet() (T, bool) {
	pid := procPin()
	if uint(pid) < uint(len(p.base)) {
		if s := &p.base[pid]; s.tryEnter() {
			if s.loaded.n > 0 {
				x := s.loaded.pop()
				s.hits++
				s.leave()
				procUnpin()
				if invariants {
					p.core.ledger.out(x)
				}
				return x, true
			}
			s.leave()
		}
	}
	procUnpin()
	defer runtime.KeepAlive(p)
	return p.core.take()
}

// Put gives an item back. The pool closes it if Reset refuses it, if MaxIdle
// items are idle, or if the pool is closed.
func (p *Pool[T]) Put(x T) {
	if invariants {
		p.core.ledger.check("put", x)
	}
	if p.reset != nil && !p.core.accepts(x) {
		return
	}
	if invariants {
		p.core.ledger.in(x)
	}
	pid := procPin()
	if uint(pid) < uint(len(p.base)) {
		if s := &p.base[pid]; s.tryEnter() {
			if s.loaded.n < s.loaded.lim {
				s.loaded.push(x)
				s.leave()
				procUnpin()
				return
			}
			s.leave()
		}
	}
	procUnpin()
	p.core.give(x)
	runtime.KeepAlive(p)
}

// Discard closes an item that must not come back.
func (p *Pool[T]) Discard(x T) {
	if invariants {
		p.core.ledger.check("discard", x)
	}
	p.core.discards.Add(1)
	p.core.drop(x)
	runtime.KeepAlive(p)
}

// Sweep ends an interval: it closes the idle items that were not used since the Sweep before,
// the last one to be called by any goroutine or by IdleTime, as far as more than MinIdle
// remain. It returns how many it closed.
func (p *Pool[T]) Sweep() int {
	defer runtime.KeepAlive(p)
	return p.core.sweep()
}

// Trim closes the idle items beyond keep, by and large those that were idle for
// longest, and returns how many it closed.
func (p *Pool[T]) Trim(keep int) int {
	defer runtime.KeepAlive(p)
	return p.core.trim(keep)
}

// Stats returns a snapshot of a single moment. To take it costs some
// microseconds, during which the other operations wait.
func (p *Pool[T]) Stats() Stats {
	defer runtime.KeepAlive(p)
	return p.core.stats()
}

// Close closes the idle items, and makes Put close items that still come back, and Get fail.
// Items that are out stay good. Calling it again does nothing. It always returns nil.
func (p *Pool[T]) Close() error {
	p.core.close()
	runtime.KeepAlive(p)
	return nil
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
