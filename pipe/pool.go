package pipe

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/pool"
)

// ErrBudget is returned by Get when a pipe would take more pages, or more
// descriptors, than the pool may use. The caller copies instead, or asks for a
// smaller pipe. It is returned bare and costs no allocation.
var ErrBudget = errors.New("penstock: pipe: get: budget is spent")

// Defaults of Config.
const (
	defaultIdleTime = time.Minute
	defaultMaxIdle  = 4096
)

// Config says how much a Pool may hold. The zero value and nil mean the defaults.
type Config struct {
	// Size is the capacity in bytes of the pipes that Get(0) lends. Default
	// DefaultSize.
	Size int

	// Budget is the most pages that the pool's pipes may take, lent and idle
	// together; a pipe takes Size divided by the page size. It never goes beyond
	// the user's quota. Default: seven eighths of that quota (14336 pages where
	// the kernel's settings are untouched: 896 pipes of 64 KiB), or, for a process
	// that no quota binds, 16 pages for each pipe that the descriptors allow, up
	// to 1 GiB. Negative: none, so that every Get returns ErrBudget.
	Budget int

	// MaxIdle is the most idle pipes to keep of each size. Default 4096, more than
	// an ordinary user's budget allows; negative: keep none.
	MaxIdle int

	// IdleTime is how long a pipe may lie idle: it is closed after between one
	// and two of them. Default one minute; negative: for ever, and without a timer.
	IdleTime time.Duration

	now    func() time.Time // for tests
	limits *limits          // for tests
}

// Stats are the counts of a Pool, and its present pipes. Each counter only ever rises. Taken
// while nothing else happens, Made = Closed + Leased + Idle.
type Stats struct {
	Made   int64 // pipes opened whole
	Reused int64 // leases served by an idle pipe
	Closed int64 // pipes closed, of those made
	Dirty  int64 // pipes that came back with bytes inside, or broken; among Closed
	Yield  int64 // idle pipes closed to make room for another pipe; among Closed

	Degraded int64 // pipes that the kernel made smaller than its default; not among Made
	Refused  int64 // pipes that the kernel would not make, or make larger; not among Made
	Denied   int64 // leases answered with ErrBudget

	Leased int64 // pipes out now
	Idle   int64 // pipes in the pool now

	BudgetPages int64 // how many pages may be used now: lower than LinePages after a refusal
	LinePages   int64 // how many may ever be used
	UsedPages   int64 // how many are
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
	yield, taken  atomic.Int64 // closed for another pipe's sake; of those, taken by TryGet
	reused        atomic.Int64 // highest value reported
	nextRecall    atomic.Int64 // budget's time
}

// class is the pipes of one size.
type class struct {
	size   int
	charge charge
	idle   atomic.Pointer[pool.Pool[*Pipe]] // nil until the size is asked for
}

// lease is a Pipe's part in a Pool.
type lease struct {
	owner *budget // the budget it is charged to; nil if made by Open
	class int
	fresh bool // just made: it has taken over its maker's reservation

	returned      // where it was put, with the build tag invariants
	out      bool // between Get and Put: the caller's
}

// NewPool makes a pool; nil means the defaults. It reads the kernel's limits and
// opens no pipe that it keeps.
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
	pl.budget.hard = !l.exempt && l.hard > 0
	return pl, nil
}

func (c *Config) setDefaults() error {
	if c.Size < 0 {
		return fmt.Errorf("penstock: pipe: new pool: size %d: %w", c.Size, os.ErrInvalid)
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
		c.IdleTime = 0 // as package pool says never
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

// Get lends an empty pipe of at least size bytes, 0 meaning Config.Size, or of the
// largest size there is (pipe-max-size) if that is less. It never lends a
// smaller one because pages are short: that is ErrBudget, and the caller may ask
// for less. The pipe is the caller's until Put.
//
// Errors: ErrBudget, bare; an error that matches ErrNotSupported where pipes or
// splice(2) are refused for good; EMFILE or ENFILE, wrapped, when there are no
// descriptors left even without the pool's idle pipes, which have then been
// closed; ErrClosed after Close.
func (pl *Pool) Get(size int) (*Pipe, error) {
	if len(pl.classes) == 0 {
		return nil, ErrClosed
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

// Put takes back a pipe that Get lent, whatever its state: one that holds bytes
// or has been closed is dropped, and counted as Dirty. A pipe from Open is
// closed. A pipe that is not out, or that another Pool lent, is left alone; with
// the build tag invariants that panics with the places of both Puts.
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

// Close closes the idle pipes. Pipes that are out stay good and are closed when
// they are Put. A second Close returns ErrClosed.
func (pl *Pool) Close() error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.closed.Swap(true) {
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
	// Hits include the pipes taken to be closed. Each was counted in taken before
	// it was in hits, and taken is read after them: s.Reused is never too high.
	s.Reused = pl.raiseReused(s.Reused - pl.taken.Load())
	return s
}

// raiseReused returns the highest value reported so far, n included.
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
