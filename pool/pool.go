// Package pool keeps things that must be closed: kernel pipes, connections, mappings. Unlike sync.Pool it
// closes each item that it drops. It never keeps more than its bound. A garbage collection drops nothing: an item
// is closed if it was not used for an interval of time. Unlike a channel or a locked list it is about as fast as
// sync.Pool, because each processor (one of GOMAXPROCS) has its own items; not with MaxOpen, Check or a small MaxIdle.
//
// It uses runtime.procPin by go:linkname. With the build tag penstock_nolinkname it does not, and each call
// takes one of the processors' shards at random.
package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/penstock/penstock/internal/closed"
)

// ErrClosed is returned by Get after Close. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: pool: the pool is closed, or was not made by New")

var errNilContext = fmt.Errorf("penstock: pool: get: ctx is nil: pass a context, such as context.Background(): %w", os.ErrInvalid)

var errNoNew = errors.New("penstock: pool: new: New is nil: write a function that makes an item")

// DefaultMaxIdle is the bound of a pool with a Config that has none.
const DefaultMaxIdle = 1024

// Config says how a [Pool] makes, keeps and drops items of type T. Only New is
// required.
//
// The functions may be called by several goroutines at once, and may call the pool, which holds no lock
// meanwhile. A panic of a function goes on in its caller, but does not harm the pool: nothing is lost, and
// other items that were to be closed are closed. A panic of Close that IdleTime or the garbage collector has called
// ends the program.
type Config[T any] struct {
	// New makes an item. It gets the context of Get. Get returns its error, wrapped.
	New func(context.Context) (T, error)

	// Close is called exactly once for every item that the pool drops; nil means that there is nothing to
	// close. It runs on the goroutine that made the pool drop the item, or on one of the pool's own if IdleTime
	// or the garbage collector did.
	Close func(T)

	// Reset is called by Put; false refuses the item, which is then closed. Nil
	// keeps every item.
	Reset func(T) bool

	// Check is called by Get and TryGet with an item that was put before, such as a connection that the other
	// side may have closed meanwhile. false refuses the item: it is closed, and the next one is taken. Nil
	// accepts every item. With a Check each Get and Put locks a mutex.
	Check func(T) bool

	// MaxOpen is the most open items, out and idle together; it is never exceeded. While MaxOpen items are out,
	// Get waits, first come, first served. 0 means no bound. A pool with MaxOpen keeps its items in one place
	// behind a mutex.
	MaxOpen int

	// MaxIdle is the most idle items; it is never exceeded, not even for a moment. 0 means the larger of
	// DefaultMaxIdle and sixteen for each processor, but at most MaxOpen; negative means none.
	//
	// With less than about sixteen for each processor, the pool keeps the items in one place behind a mutex.
	MaxIdle int

	// IdleTime bounds how long an item stays idle: an unused item is closed after one to two times IdleTime. 0
	// means never; then the pool has no timer.
	IdleTime time.Duration
}

func (c *Config[T]) check() error {
	switch {
	case c.New == nil:
		return errNoNew
	case c.MaxOpen < 0:
		return fmt.Errorf("penstock: pool: new: MaxOpen is %d: write 0 or more", c.MaxOpen)
	case c.IdleTime < 0:
		return fmt.Errorf("penstock: pool: new: IdleTime is %v: write 0 or more", c.IdleTime)
	case c.MaxOpen > 0 && c.MaxIdle > c.MaxOpen:
		return fmt.Errorf("penstock: pool: new: MaxIdle is %d and MaxOpen is %d: write a MaxIdle of at most MaxOpen", c.MaxIdle, c.MaxOpen)
	}
	return nil
}

// maxIdle returns MaxIdle with its default.
func (c *Config[T]) maxIdle() int {
	n := max(c.MaxIdle, 0)
	if c.MaxIdle == 0 {
		n = max(DefaultMaxIdle, minMagazine*magazinesPerP*runtime.GOMAXPROCS(0))
	}
	if c.MaxOpen > 0 {
		n = min(n, c.MaxOpen)
	}
	return n
}

// Pool holds idle items of type T. It is safe for concurrent use and must not be
// copied. Make it with [New]: the zero Pool is a closed one.
//
// An item belongs to the caller from Get or TryGet until Put or Discard. Call one of the two, once. With the
// build tag invariants, a Put or Discard of an idle item panics and names the places of both calls, if T is a
// pointer or something like one.
//
// The garbage collector closes a pool that becomes unreachable without having been closed, unless its own
// Config's functions refer to it.
type Pool[T any] struct {
	_     noCopy
	base  []shard[T]   // core.base, one load nearer
	reset func(T) bool // Config.Reset
	core  *core[T]     // everything else; it does not refer to the Pool, so that the Pool can become garbage
}

// New returns an empty pool. Its error says which field of cfg is invalid.
func New[T any](cfg Config[T]) (*Pool[T], error) {
	return newPool(cfg, !canOwn())
}

func newPool[T any](cfg Config[T], shared bool) (*Pool[T], error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := newCore(cfg, shared)
	p := &Pool[T]{base: c.base, reset: cfg.Reset, core: c}
	// The cleanup keeps alive the core and everything that Config's functions refer to. So there is none if
	// there is nothing to close and no timer to stop: then a forgotten pool is plain garbage, even if its own
	// New refers to it.
	if cfg.Close != nil || cfg.IdleTime > 0 {
		runtime.AddCleanup(p, func(c *core[T]) {
			if !c.closed.Load() {
				go c.close() // Config.Close may block
			}
		}, c)
	}
	c.startTimer()
	return p, nil
}

// Get returns an idle item, or makes one if none is available. Processors take surplus items from each other. If
// making an item costs less, Get may make one while another processor still has a few idle. Get fails with the
// wrapped error of New, or with ErrClosed after Close.
//
// While MaxOpen items are out, Get waits until it is this caller's turn, the pool is closed, or ctx ends; then
// the error wraps the cause of ctx. New gets the same ctx. An item that is available at once is returned even
// if ctx has ended. If ctx is nil the error always wraps os.ErrInvalid.
func (p *Pool[T]) Get(ctx context.Context) (T, error) {
	if ctx == nil {
		var none T
		return none, errNilContext
	}
	base := p.base // a nil Pool faults here, before the goroutine is pinned
	pid := procPin()
	if uint(pid) < uint(len(base)) {
		if s := &base[pid]; s.tryEnter() {
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
	return p.getSlow(ctx)
}

func (p *Pool[T]) getSlow(ctx context.Context) (T, error) {
	// Keep the pool reachable until the operation has ended.
	defer runtime.KeepAlive(p)
	return p.rest().get(ctx)
}

// rest returns the core. The zero Pool gets a closed core.
func (p *Pool[T]) rest() *core[T] {
	if p.core != nil {
		return p.core
	}
	c := newCore(Config[T]{MaxIdle: -1}, true)
	c.close()
	return c
}

// TryGet is Get that neither makes an item nor waits. It returns false if none is in reach.
func (p *Pool[T]) TryGet() (T, bool) {
	base := p.base
	pid := procPin()
	if uint(pid) < uint(len(base)) {
		if s := &base[pid]; s.tryEnter() {
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
	return p.rest().tryGet()
}

// Put gives an item back. The pool closes it if Reset refuses it, if MaxIdle
// items are idle, or if the pool is closed.
func (p *Pool[T]) Put(x T) {
	if invariants {
		p.rest().ledger.check("put", x)
	}
	if p.reset != nil && !p.core.readmits(x) {
		return
	}
	if invariants {
		p.rest().ledger.in(x)
	}
	base := p.base
	pid := procPin()
	if uint(pid) < uint(len(base)) {
		if s := &base[pid]; s.tryEnter() {
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
	p.rest().give(x)
	runtime.KeepAlive(p)
}

// Discard closes an item that must not come back.
func (p *Pool[T]) Discard(x T) {
	c := p.rest()
	if invariants {
		c.ledger.check("discard", x)
	}
	c.discards.Add(1)
	defer c.leave()
	c.drop(x)
	runtime.KeepAlive(p)
}

// Trim closes the idle items beyond keep, roughly the items that were idle longest, and returns how many it
// closed.
func (p *Pool[T]) Trim(keep int) int {
	defer runtime.KeepAlive(p)
	return p.rest().trim(keep)
}

// Stats returns a snapshot of a single moment. It takes some microseconds, during which the other operations
// wait.
func (p *Pool[T]) Stats() Stats {
	defer runtime.KeepAlive(p)
	return p.rest().stats()
}

// Close closes the idle items. Items that are out stay usable, and Put closes them. After Close each Get fails
// with [ErrClosed], including a Get that was waiting for an item. Close does not interrupt [Config.New]: a Get
// that is in New fails when New has returned, and the new item is closed. A second Close does nothing. The
// error is always nil.
func (p *Pool[T]) Close() error {
	p.rest().close()
	runtime.KeepAlive(p)
	return nil
}

// noCopy makes go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
