package pipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/pool"
)

// ErrBudget is returned by Get when a pipe would take more pages, or more descriptors, than the pool may use:
// copy the bytes instead, or ask for a smaller pipe. It is never wrapped, and costs no allocation.
var ErrBudget = errors.New("penstock: pipe: get: the budget is used up")

// Defaults of Config.
const (
	defaultIdleTime = time.Minute
	defaultMaxIdle  = 4096
)

// Config says how much a Pool may hold. The zero value and nil mean the defaults.
type Config struct {
	// Size is the capacity in bytes of the pipes that Get(0) lends. Default: DefaultSize.
	Size int

	// Budget is the most pages that the pool's pipes may take, lent and idle together; a pipe takes Size divided
	// by the page size. Pipes above 64 KiB take half of it at most. It is never more than the user's quota.
	// Default: seven eighths of the quota (14336 pages with the kernel's own settings: 896 pipes of 64 KiB).
	// Without a quota it is 16 pages for each pipe that the descriptors allow, up to 1 GiB. Negative: none, so
	// that every Get returns ErrBudget.
	Budget int

	// MaxIdle is the most idle pipes to keep of each size. Default: 4096, more than an ordinary user's budget
	// allows; negative: keep none.
	MaxIdle int

	// IdleTime bounds how long a pipe stays idle: it is closed after one to two times IdleTime. Default: one
	// minute; negative: never, and without a timer.
	IdleTime time.Duration

	now    func() time.Time // for tests
	limits *limits          // for tests
}

// Stats are the counts of a Pool, and its present pipes. The counters never fall. When no operation is in
// flight, Made = Closed + Leased + Idle.
type Stats struct {
	Made   int64 // pipes opened in full size
	Reused int64 // leases served by an idle pipe
	Closed int64 // made pipes that were closed
	Dirty  int64 // pipes that came back with bytes inside, or broken; among Closed
	Yield  int64 // idle pipes closed to make room for another pipe; among Closed

	Degraded int64 // pipes that the kernel made smaller than its default; not among Made
	Refused  int64 // pipes that the kernel would not make, or make larger; not among Made
	Denied   int64 // leases answered with ErrBudget

	Leased int64 // pipes out now
	Idle   int64 // pipes in the pool now

	BudgetPages int64 // pages that may be used now: less than LinePages after a refusal
	LinePages   int64 // pages that may ever be used
	UsedPages   int64 // pages in use
}

// Pool lends pipes. It is safe for concurrent use. Whatever the number of pools
// and processes, all pipes of a user count against one quota, so a program makes
// one Pool. Make it with [NewPool]: the zero Pool is a closed one.
type Pool struct {
	cfg     Config
	shift   int // log2 of the smallest class's size
	classes []class
	budget  *budget

	mu     sync.Mutex // guards the making of class pools, and closed
	closed atomic.Bool

	denied, dirty atomic.Int64
	yield, taken  atomic.Int64 // yield: closed for another pipe; taken: taken by TryGet for that
	reused        atomic.Int64 // the highest value that Stats returned
	nextRecall    atomic.Int64 // earliest time of the next recall, on the budget's clock
}

// class holds the pipes of one size.
type class struct {
	size   int
	charge charge
	idle   atomic.Pointer[pool.Pool[*Pipe]] // nil until the size is asked for
}

// lease is what a Pipe keeps for its Pool.
type lease struct {
	owner *budget // charged for the pipe; nil if Open made it
	class int
	fresh bool // just made: its maker still has the reservation

	returned      // where it was put, with the build tag invariants
	out      bool // between Get and Put
}

// NewPool makes a pool; nil means the defaults. It reads the kernel's limits, and keeps no pipe open.
func NewPool(cfg *Config) (*Pool, error) {
	pl := &Pool{}
	if cfg != nil {
		pl.cfg = *cfg
	}
	if err := pl.cfg.setDefaults(); err != nil {
		return nil, err
	}
	l := pl.cfg.limits
	sizes := l.sizes()
	pl.classes = make([]class, len(sizes))
	for k, size := range sizes {
		pl.classes[k].size = size
		pl.classes[k].charge = charge{pages: int64(size / l.pageSize), large: k > 0}
	}
	pl.shift = bits.Len(uint(pl.classes[0].size)) - 1
	pl.budget = newBudget(l.line(pl.cfg.Budget), l.pipes(), pl.cfg.now)
	pl.budget.top = l.top()
	pl.budget.hard = !l.exempt && l.hard > 0
	return pl, nil
}

func (c *Config) setDefaults() error {
	if c.Size < 0 {
		return fmt.Errorf("penstock: pipe: new pool: a size of %d bytes: write 0 or more: %w", c.Size, os.ErrInvalid)
	}
	if c.Size == 0 {
		c.Size = DefaultSize
	}
	if c.MaxIdle == 0 {
		c.MaxIdle = defaultMaxIdle
	}
	switch {
	case c.IdleTime == 0:
		c.IdleTime = defaultIdleTime
	case c.IdleTime < 0:
		c.IdleTime = 0 // 0 means never in package pool
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.limits == nil {
		l := readLimits()
		c.limits = &l
	}
	return nil
}

// Get lends an empty pipe of at least size bytes, or of the largest size (pipe-max-size) if that is less; 0 means
// Config.Size. If pages are short it returns ErrBudget, never a smaller pipe; the caller may ask for less. The
// pipe belongs to the caller until Put.
//
// Errors: ErrBudget, unwrapped; an error that matches ErrNotSupported where pipes or splice(2) are refused for
// good; EMFILE or ENFILE, wrapped, when no descriptors are left even after the pool has closed its idle pipes;
// EINVAL, wrapped, if size is negative; ErrClosed after Close.
func (pl *Pool) Get(size int) (*Pipe, error) {
	if len(pl.classes) == 0 {
		return nil, ErrClosed
	}
	if size < 0 {
		return nil, fmt.Errorf("penstock: pipe: get: a size of %d bytes: write 0 or more: %w", size, syscall.EINVAL)
	}
	k := pl.classOf(size)
	if idle := pl.classes[k].idle.Load(); idle != nil {
		if p, ok := idle.TryGet(); ok {
			p.out = true
			p.take()
			return p, nil
		}
	}
	return pl.getNew(k)
}

// Put takes back a pipe that Get lent, whatever its state: it drops a pipe that holds bytes or was closed, and
// counts it as Dirty. It closes a pipe from Open. It ignores a pipe that is not out, or that another Pool lent;
// with the build tag invariants it panics instead, and names the places of both Puts.
func (pl *Pool) Put(p *Pipe) {
	switch {
	case p == nil:
		return
	case p.owner == nil:
		p.give()
		p.Close()
		return
	case p.owner != pl.budget:
		p.refuse()
		return
	}
	p.give()
	if !p.out {
		return
	}
	p.out = false
	idle := pl.classes[p.class].idle.Load()
	if p.n != 0 || p.r < 0 {
		pl.dirty.Add(1)
		idle.Discard(p)
		return
	}
	idle.Put(p)
}

// Trim closes the idle pipes of every size and returns how many there were.
func (pl *Pool) Trim() int {
	n := 0
	for k := range pl.classes {
		if idle := pl.classes[k].idle.Load(); idle != nil {
			n += idle.Trim(0)
		}
	}
	return n
}

// Close closes the idle pipes. Pipes that are out stay usable; Put closes them. A second Close, or Close of the
// zero Pool, returns ErrClosed.
func (pl *Pool) Close() error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed.Swap(true) || len(pl.classes) == 0 {
		return ErrClosed
	}
	var errs []error
	for k := range pl.classes {
		if idle := pl.classes[k].idle.Load(); idle != nil {
			errs = append(errs, idle.Close())
		}
	}
	return errors.Join(errs...)
}

// Stats returns a snapshot.
func (pl *Pool) Stats() Stats {
	b := pl.budget
	if b == nil {
		return Stats{}
	}
	s := Stats{
		Dirty: pl.dirty.Load(), Yield: pl.yield.Load(), Denied: pl.denied.Load(),
		Degraded: b.degraded.Load(), Refused: b.refused.Load(),
		BudgetPages: b.limit.Load(), LinePages: b.line, UsedPages: b.used.Load(),
	}
	for k := range pl.classes {
		if idle := pl.classes[k].idle.Load(); idle != nil {
			c := idle.Stats()
			s.Made += c.Made
			s.Closed += c.Closed
			s.Idle += c.Idle
			s.Leased += c.Live
			s.Reused += c.Hits
		}
	}
	// Hits include the pipes that were taken to be closed. Each of these is counted in taken before it is in hits,
	// and taken is read after hits, so s.Reused is never too high.
	s.Reused = pl.raiseReused(s.Reused - pl.taken.Load())
	return s
}

// raiseReused raises the reported value to n if it is lower, and returns it.
func (pl *Pool) raiseReused(n int64) int64 {
	for {
		old := pl.reused.Load()
		if old >= n {
			return old
		}
		if pl.reused.CompareAndSwap(old, n) {
			return n
		}
	}
}

// classOf returns the class of the smallest pipes with at least size bytes.
func (pl *Pool) classOf(size int) int {
	if size <= 0 {
		size = pl.cfg.Size
	}
	if size <= pl.classes[0].size {
		return 0
	}
	return min(bits.Len(uint(size-1))-pl.shift, len(pl.classes)-1)
}

// getNew is Get when no idle pipe of class k is in reach.
func (pl *Pool) getNew(k int) (*Pipe, error) {
	if pl.closed.Load() {
		return nil, ErrClosed
	}
	if err := feature.Splice(); err != nil && errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	for range attempts {
		if !pl.reserve(k) {
			break
		}
		p, err := pl.openOrTrim(k)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, os.ErrClosed): // the pool was closed meanwhile
			return nil, ErrClosed
		case !errors.Is(err, errDegraded) && !errors.Is(err, errRefused):
			return nil, fmt.Errorf("penstock: pipe: get: %w", cmp.Or(errors.Unwrap(err), err)) // removes the words of package pool
		}
		// The limit has fallen; closing idle pipes of another size may help.
	}
	pl.denied.Add(1)
	return nil, ErrBudget
}

// attempts bounds how often one Get asks the kernel. Each refusal lowers the limit to the pages in use, so a
// further attempt first closes idle pipes.
const attempts = 3

var (
	errDegraded = errors.New("the kernel gave less than its default size")
	errRefused  = errors.New("the kernel refused to make the pipe larger")
)

func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// reserve reserves the cost of a pipe of class k, if need be by closing idle pipes.
func (pl *Pool) reserve(k int) bool {
	c := pl.classes[k].charge
	for !pl.budget.take(c) {
		if !pl.yieldLarger(k) {
			return pl.recall(pl.budget.lacks(c)) && pl.budget.take(c)
		}
	}
	return true
}

// yieldLarger closes an idle pipe of a class larger than k.
func (pl *Pool) yieldLarger(k int) bool {
	for j := len(pl.classes) - 1; j > k; j-- {
		idle := pl.classes[j].idle.Load()
		if idle == nil {
			continue
		}
		pl.taken.Add(1) // before TryGet counts a hit: see Stats
		if p, ok := idle.TryGet(); ok {
			pl.yield.Add(1)
			idle.Discard(p)
			return true
		}
		pl.taken.Add(-1)
	}
	return false
}

// recallInterval is the least time between two recalls.
const recallInterval = time.Millisecond

// recall closes idle pipes until they have freed the pages, the largest first; with large set, only large pipes.
// It also closes pipes that yieldLarger leaves alone: smaller ones, and pipes that package pool leaves to the
// processor that works with them. It runs only once in a while: the search stops the pool for some microseconds,
// and small pipes that were closed for a large one have to be made again for the next small flows.
func (pl *Pool) recall(pages int64, large bool) bool {
	if pages <= 0 {
		return true // others have given pages back meanwhile
	}
	now, next := pl.budget.elapsed(), pl.nextRecall.Load()
	if now < next || !pl.nextRecall.CompareAndSwap(next, now+int64(recallInterval)) {
		return false
	}
	left := pages
	for j := len(pl.classes) - 1; j >= 0 && left > 0; j-- {
		c := &pl.classes[j]
		idle := c.idle.Load()
		if idle == nil || large && !c.charge.large {
			continue
		}
		want := (left + c.charge.pages - 1) / c.charge.pages
		n := int64(idle.Trim(int(max(idle.Stats().Idle-want, 0))))
		pl.yield.Add(n)
		left -= n * c.charge.pages
	}
	return left < pages
}

// openOrTrim is like open, but when descriptors run out it closes all idle pipes and tries once more.
func (pl *Pool) openOrTrim(k int) (*Pipe, error) {
	p, err := pl.open(k)
	if !outOfDescriptors(err) || pl.Trim() == 0 || !pl.reserve(k) {
		return p, err
	}
	return pl.open(k)
}

// open makes a pipe of class k, or takes an idle pipe that has turned up meanwhile. The cost was reserved: unless
// open made a pipe, it gives the reservation back.
func (pl *Pool) open(k int) (*Pipe, error) {
	p, err := pl.getOrMake(k)
	fresh := err == nil && p.fresh
	if !fresh {
		pl.budget.give(pl.classes[k].charge)
	}
	switch {
	case fresh:
		pl.budget.allow()
	case errors.Is(err, errRefused):
		// This number of pages was too large; half of it may be allowed.
		pl.budget.deny(pl.classes[k].charge.pages / 2)
	case errors.Is(err, errDegraded), pl.budget.hard && errors.Is(err, syscall.ENFILE):
		pl.budget.deny(0)
	}
	if err != nil {
		return nil, err
	}
	p.fresh, p.out = false, true
	p.take()
	return p, nil
}

func (pl *Pool) getOrMake(k int) (*Pipe, error) {
	idle, err := pl.pool(k)
	if err != nil {
		return nil, err
	}
	return idle.Get(context.Background())
}

// pool returns the pool of class k. The first call makes it.
func (pl *Pool) pool(k int) (*pool.Pool[*Pipe], error) {
	c := &pl.classes[k]
	if idle := c.idle.Load(); idle != nil {
		return idle, nil
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed.Load() {
		return nil, ErrClosed
	}
	if idle := c.idle.Load(); idle != nil {
		return idle, nil
	}
	idle, err := pl.budget.newClass(k, c, &pl.cfg)
	if err == nil {
		c.idle.Store(idle)
	}
	return idle, err
}

// newClass makes the pool of one class. Its callbacks refer to the budget, not to the Pool, so that a forgotten
// Pool becomes garbage.
func (b *budget) newClass(k int, c *class, cfg *Config) (*pool.Pool[*Pipe], error) {
	size, cost := c.size, c.charge
	return pool.New(pool.Config[*Pipe]{
		New: func(context.Context) (*Pipe, error) { return b.open(k, size) },
		Close: func(p *Pipe) {
			p.Close() // its holder may have closed it already
			if !p.fresh {
				b.give(cost)
			} // otherwise the pool was closed meanwhile, and getOrMake's caller gives the reservation back
		},
		MaxIdle:  cfg.MaxIdle,
		IdleTime: cfg.IdleTime,
	})
}

// open opens a pipe of class k after its cost was reserved. It closes and counts a pipe that comes out too
// small.
func (b *budget) open(k, size int) (*Pipe, error) {
	p, err := Open(size)
	switch {
	case err != nil:
		if b.hard && errors.Is(err, syscall.ENFILE) {
			b.refused.Add(1)
		}
		return nil, err
	case b.top > 0 && max(p.r, p.w) >= b.top: // the remaining descriptors are not for pipes
		p.Close()
		return nil, os.NewSyscallError("pipe2", syscall.EMFILE)
	case p.size >= size:
		p.lease = lease{owner: b, class: k, fresh: true}
		return p, nil
	}
	p.Close()
	if p.size < slots*os.Getpagesize() {
		b.degraded.Add(1)
		return nil, errDegraded
	}
	b.refused.Add(1)
	return nil, errRefused
}
