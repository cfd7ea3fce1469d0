package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// ErrBudget is returned by [Bytes.Get] when a new buffer would exceed the budget
// and nothing idle could be dropped to make room for it.
var ErrBudget = errors.New("penstock: pool: budget spent")

// ErrSize is returned by [Bytes.Get] for a negative size and for one above the
// largest class.
var ErrSize = errors.New("penstock: pool: no size class holds so many bytes")

// BytesConfig sets up a [Bytes]. The zero value means the defaults.
type BytesConfig struct {
	// MinSize and MaxSize are the capacities of the smallest and the largest
	// class, in bytes, rounded up to powers of two. Defaults: 512 B and 1 MiB.
	MinSize, MaxSize int

	// Budget bounds the sum of the capacities of all buffers, leased and idle,
	// in bytes; it is never exceeded. Default 64 MiB; negative means no bound.
	Budget int64

	// IdleTime drops a buffer that was not used for between one and two of it;
	// 0 means never.
	IdleTime time.Duration
}

const (
	defaultMinSize = 512
	defaultMaxSize = 1 << 20
	defaultBudget  = 64 << 20

	// maxClassSize keeps the rounding up to a power of two within an int.
	maxClassSize = 1 << 30
	// maxClassIdle bounds a class when the budget does not.
	maxClassIdle = 1 << 20
)

// Bytes is a pool of buffers in power-of-two size classes under one budget of
// bytes. It is safe for concurrent use and must not be copied. Make it with [NewBytes]: the zero
// Bytes is a closed one.
//
// Ownership: a buffer belongs to the caller from Get until Put or Discard, one of which must
// follow, once, with the slice that Get returned: its length may have changed, its start and
// capacity must not. Until then it counts against the budget, even if the caller has lost it.
// Afterwards no slice of it may be used. A slice with a capacity that is no class (grown by
// append, or sliced from its middle) is refused and counted in [BytesStats].Foreign, which is
// zero in a correct program; one from elsewhere that happens to have the capacity of a class
// cannot be distinguished and must not be given. The build tag invariants turns each of these
// mistakes into a panic.
type Bytes struct {
	budget   *budget
	minShift int
	classes  []*bytesClass
	closed   atomic.Bool

	refused atomic.Int64
	foreign atomic.Int64

	leases leases
}

// A bytesClass holds the buffers of one capacity. Headers are pooled by value:
// neither Get nor Put allocates one.
type bytesClass struct {
	size  int64
	count *atomic.Int64 // buffers charged to the budget, leased and idle
	pool  *Pool[[]byte]
}

// NewBytes returns an empty pool of buffers. The error says which field of cfg
// makes no sense.
func NewBytes(cfg BytesConfig) (*Bytes, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Bytes{budget: &budget{limit: cfg.Budget}, minShift: shiftFor(cfg.MinSize)}
	for s := b.minShift; s <= shiftFor(cfg.MaxSize); s++ {
		c, err := newBytesClass(1<<s, b.budget, cfg.IdleTime)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.classes = append(b.classes, c)
	}
	return b, nil
}

func (c BytesConfig) withDefaults() BytesConfig {
	if c.MaxSize == 0 {
		c.MaxSize = max(defaultMaxSize, c.MinSize)
	}
	if c.MinSize == 0 {
		c.MinSize = min(defaultMinSize, c.MaxSize)
	}
	switch {
	case c.Budget == 0:
		c.Budget = defaultBudget
		if c.MaxSize > 1 && c.MaxSize <= 1<<(bits.UintSize-2) {
			c.Budget = max(c.Budget, int64(1)<<bits.Len(uint(c.MaxSize-1))) // its class
		}
	case c.Budget < 0:
		c.Budget = math.MaxInt64
	}
	return c
}

func (c *BytesConfig) check() error {
	switch {
	case c.MinSize < 0 || c.MaxSize < c.MinSize || c.MaxSize > maxClassSize:
		return fmt.Errorf("penstock: pool: new bytes: sizes from %d to %d are not within 1 to %d",
			c.MinSize, c.MaxSize, maxClassSize)
	case c.Budget < 1<<shiftFor(c.MaxSize):
		return fmt.Errorf("penstock: pool: new bytes: a budget of %d holds no buffer of %d bytes", c.Budget, c.MaxSize)
	case c.IdleTime < 0:
		return fmt.Errorf("penstock: pool: new bytes: IdleTime is %v", c.IdleTime)
	}
	return nil
}

// newBytesClass returns the class of buffers of size bytes. Its pool's functions
// do not refer to the pool, which can thus be forgotten without Close.
func newBytesClass(size int64, budget *budget, idle time.Duration) (*bytesClass, error) {
	count := new(atomic.Int64)
	p, err := New(Config[[]byte]{
		New: func(context.Context) ([]byte, error) {
			if !budget.take(size) {
				return nil, ErrBudget
			}
			count.Add(1)
			return make([]byte, size), nil
		},
		Close: func([]byte) {
			count.Add(-1)
			budget.give(size)
		},
		MaxIdle:  int(min(budget.limit/size, maxClassIdle)),
		IdleTime: idle,
	})
	return &bytesClass{size: size, count: count, pool: p}, err
}

// shiftFor returns the least s with n ≤ 1<<s, for n > 0.
func shiftFor(n int) int { return bits.Len(uint(n - 1)) }

// class returns the class of buffers that hold n bytes, or nil.
func (b *Bytes) class(n int) *bytesClass {
	if n < 0 {
		return nil
	}
	i := max(bits.Len(uint(max(n, 1)-1))-b.minShift, 0)
	if i >= len(b.classes) {
		return nil
	}
	return b.classes[i]
}

// classOf returns the class that buf came from, or nil.
func (b *Bytes) classOf(buf []byte) *bytesClass {
	n := cap(buf)
	if c := b.class(n); c != nil && c.size == int64(n) {
		return c
	}
	return nil
}

// Get returns a buffer of n bytes whose capacity is the least class of at least n. Its
// contents are arbitrary: bytes of a former owner, or zeros. It does not allocate unless it
// makes a buffer.
//
// When the budget is spent, idle buffers of any class are dropped to make room;
// if there are none Get fails with ErrBudget, at once and without allocating: it
// never waits and never hands out a buffer beside the budget. Other errors are
// ErrSize and ErrClosed.
func (b *Bytes) Get(n int) ([]byte, error) {
	c := b.class(n)
	if c == nil {
		return nil, b.noClass()
	}
	if !b.budget.holds(c.size) {
		return b.getSpent(c, n)
	}
	x, err := c.pool.Get(context.Background())
	if err != nil {
		return b.getFailed(c, n, err)
	}
	b.leases.add(x)
	return x[:n], nil
}

// noClass is the error for a size that no class holds.
func (b *Bytes) noClass() error {
	if len(b.classes) == 0 {
		return ErrClosed
	}
	return ErrSize
}

// TryGet is like Get but never makes a buffer and drops none: it returns false
// when no buffer of the class is idle.
func (b *Bytes) TryGet(n int) ([]byte, bool) {
	c := b.class(n)
	if c == nil {
		return nil, false
	}
	x, ok := c.pool.TryGet()
	if !ok {
		return nil, false
	}
	b.leases.add(x)
	return x[:n], true
}

// getFailed handles an error of c's pool: if another Get has taken the rest of the budget
// meanwhile, there may still be something idle.
func (b *Bytes) getFailed(c *bytesClass, n int, err error) ([]byte, error) {
	if errors.Is(err, ErrBudget) {
		return b.getSpent(c, n)
	}
	return nil, err
}

// getSpent is Get for a budget without room for one more buffer of c.
func (b *Bytes) getSpent(c *bytesClass, n int) ([]byte, error) {
	for {
		if x, ok := b.TryGet(n); ok {
			return x, nil
		}
		if b.closed.Load() {
			return nil, ErrClosed
		}
		if !b.makeRoom(c.size) {
			b.refused.Add(1)
			return nil, ErrBudget
		}
		x, err := c.pool.Get(context.Background())
		if err == nil {
			b.leases.add(x)
			return x[:n], nil
		}
		if !errors.Is(err, ErrBudget) {
			return nil, err
		}
	}
}

// Put gives back a buffer that Get or TryGet returned; see [Bytes] for the slices that it
// refuses. It does not allocate.
func (b *Bytes) Put(buf []byte) {
	c := b.classOf(buf)
	if c == nil {
		b.refuse(buf)
		return
	}
	b.leases.remove(buf)
	c.pool.Put(buf[:c.size])
}

// Discard ends the lease of a buffer that must not come back, for instance one
// that a stuck writer may still hold: it leaves the budget and is the garbage
// collector's.
func (b *Bytes) Discard(buf []byte) {
	c := b.classOf(buf)
	if c == nil {
		b.refuse(buf)
		return
	}
	b.leases.remove(buf)
	c.pool.Discard(buf[:c.size])
}

func (b *Bytes) refuse(buf []byte) {
	b.leases.refuse(buf)
	b.foreign.Add(1)
}

// Sweep ends an interval: it drops the buffers that were not used for a whole
// one and returns how many. It is for callers that keep time themselves and
// leave IdleTime zero.
func (b *Bytes) Sweep() int {
	n := 0
	for _, c := range b.classes {
		n += c.pool.Sweep()
	}
	return n
}

// Trim drops idle buffers, the largest first, until at most keep bytes are idle;
// it returns the bytes dropped.
func (b *Bytes) Trim(keep int64) int64 {
	return b.free(b.idle() - max(keep, 0))
}

// Close drops the idle buffers. Leased ones are dropped when they are put;
// Get fails with ErrClosed from now on.
func (b *Bytes) Close() error {
	b.closed.Store(true)
	var errs []error
	for _, c := range b.classes {
		errs = append(errs, c.pool.Close())
	}
	return errors.Join(errs...)
}
