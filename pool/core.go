package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// core is a Pool without its handle. Nothing in it refers to the Pool.
//
// Locks are taken in this order: growing, shards in the order of their numbers,
// depot. No operation but a sweep and its like takes more than one shard. None is
// held while a function of Config runs.
type core[T any] struct {
	cfg     Config[T]
	divided bool       // one shard for each P; else one in all
	base    []shard[T] // for the Ps that the machine can use
	more    atomic.Pointer[[]*shard[T]]
	growing sync.Mutex // guards more

	depot  depot[T]
	gate   *gate[T] // nil without MaxOpen
	closed atomic.Bool
	timer  ticker
	ledger ledger[T]
	counts
}

// setup is the part that tests may change.
type setup struct {
	shared    bool // let every shard be entered through its mutex
	afterFunc afterFunc
}

func defaultSetup() setup {
	return setup{
		shared:    !canOwn(),
		afterFunc: func(d time.Duration, f func()) stopper { return time.AfterFunc(d, f) },
	}
}

const (
	// minMagazine is the least size of a magazine that is worth a shard.
	minMagazine = 4

	// magazinesPerP is by how many magazines for each P the bound is divided. A P
	// holds two, and as many again are for the depot.
	magazinesPerP = 4
)

func newCore[T any](cfg Config[T], u setup) *core[T] {
	procs := runtime.GOMAXPROCS(0)
	cfg.MaxIdle = cfg.maxIdle()
	// The bound is divided by the Ps that run, not by the machine's: a container
	// with two of ninety-six has two. The depot keeps it if more run later.
	ps := max(procs, runtime.NumCPU())
	size := min(cfg.MaxIdle/(magazinesPerP*procs), magazineSize)
	c := &core[T]{cfg: cfg, divided: size >= minMagazine && cfg.MaxOpen == 0}
	if cfg.MaxOpen > 0 {
		c.gate = &gate[T]{free: cfg.MaxOpen}
	}
	u.shared = u.shared || cfg.Check != nil // no item leaves unchecked by the fast path
	if !c.divided {
		ps, size, u.shared = 1, cfg.MaxIdle, true
	}
	c.base = make([]shard[T], ps)
	c.depot.size, c.depot.free = uint32(size), cfg.MaxIdle
	for i := range c.base {
		c.base[i].size = c.depot.size
		if u.shared {
			c.base[i].share()
		}
	}
	return c
}

// at returns the shard of a P, or nil if it has none yet.
func (c *core[T]) at(pid int) *shard[T] {
	if pid < len(c.base) {
		return &c.base[pid]
	}
	if !c.divided {
		return &c.base[0]
	}
	more := c.more.Load()
	if i := pid - len(c.base); more != nil && i < len(*more) {
		return (*more)[i]
	}
	return nil
}

// shards returns how many there are; at reaches each of them.
func (c *core[T]) shards() int {
	n := len(c.base)
	if more := c.more.Load(); more != nil {
		n += len(*more)
	}
	return n
}

// grow makes shards up to the one of pid: GOMAXPROCS has been raised beyond the machine's
// CPUs.
func (c *core[T]) grow(pid int) {
	c.growing.Lock()
	defer c.growing.Unlock()
	var more []*shard[T]
	if old := c.more.Load(); old != nil {
		more = append(more, *old...)
	}
	for len(c.base)+len(more) <= pid {
		s := &shard[T]{size: c.depot.size}
		if c.base[0].isShared() {
			s.share()
		}
		s.shut = c.closed.Load()
		more = append(more, s)
	}
	c.more.Store(&more)
}

// entry says how a shard was entered.
type entry uint8

const (
	asOwner entry = iota // through tryEnter: the goroutine is pinned and must not block
	byLock
)

// patience is how often an operation goes back before it locks its shard, from
// which it can wait for the depot.
const patience = 8

// own enters the shard of the current P. An owner that finds it taken waits: to
// go elsewhere would mean to take other processors' items in turn.
func (c *core[T]) own(try int) (*shard[T], entry) {
	for {
		pid := procPin()
		s := c.at(pid)
		if s != nil && s.tryEnter() {
			return s, asOwner
		}
		if s != nil && s.grant() {
			c.donate(s)
			return s, asOwner
		}
		procUnpin()
		switch {
		case s == nil:
			c.grow(pid)
		case try >= patience:
			s.lock()
			return s, byLock
		case s.await():
			return s, byLock
		}
	}
}

// release is the end of own.
func (c *core[T]) release(s *shard[T], e entry) {
	if e == asOwner {
		s.leave()
		procUnpin()
		return
	}
	s.unlock()
}

// lockDepot locks the depot for a caller that is inside s. An owner must not wait for it
// inside: if it is taken lockDepot releases s, waits, and returns false.
func (c *core[T]) lockDepot(s *shard[T], e entry) bool {
	if e == byLock {
		c.depot.mu.Lock()
		return true
	}
	if c.depot.mu.TryLock() {
		return true
	}
	c.release(s, e)
	c.depot.mu.Lock()
	c.depot.mu.Unlock() //lint:ignore SA2001 it was a wait
	return false
}

// donate gives the items that another processor asked for, if the depot is not busy. The
// caller is inside s and may be pinned.
func (c *core[T]) donate(s *shard[T]) {
	if s.idle() > 1 && c.depot.mu.TryLock() {
		c.depot.surrender(s)
		c.depot.mu.Unlock()
	}
}

// lockAll locks all shards and the depot: every item is then idle or live.
func (c *core[T]) lockAll() {
	c.growing.Lock()
	n := c.shards()
	for i := range n {
		c.at(i).mu.Lock()
	}
	revoked := false
	for i := range n {
		revoked = c.at(i).revoke() || revoked
	}
	if revoked {
		barrier()
	}
	for i := range n {
		c.at(i).expel()
	}
	c.depot.mu.Lock()
}

func (c *core[T]) unlockAll() {
	c.depot.mu.Unlock()
	for i := range c.shards() {
		c.at(i).unlock()
	}
	c.growing.Unlock()
}
