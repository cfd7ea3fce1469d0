package pool

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// core is a Pool without its handle. Nothing in it refers to the Pool.
//
// Locks are taken in this order: growing, shards in the order of their numbers, depot, gate. Only lockAll takes
// more than one shard. No lock is held while a function of Config runs.
type core[T any] struct {
	cfg     Config[T]
	divided bool       // one shard for each P; otherwise a single shard
	base    []shard[T] // for the Ps that the machine can use
	more    atomic.Pointer[[]*shard[T]]
	growing sync.Mutex // guards more

	depot  depot[T]
	gate   *gate[T] // nil without MaxOpen
	closed atomic.Bool
	timer  *ticker // nil without an idle time
	ledger ledger[T]
	counts
}

const (
	// minMagazine is the smallest magazine that is worth a shard.
	minMagazine = 4

	// magazinesPerP is how many magazines each P gets of the bound: it holds two, and two are for the depot.
	magazinesPerP = 4
)

// newCore makes a core. If shared is true every shard is entered through its mutex.
func newCore[T any](cfg Config[T], shared bool) *core[T] {
	procs := runtime.GOMAXPROCS(0)
	cfg.MaxIdle = cfg.maxIdle()
	// The bound is divided by the Ps that run, not by the machine's: a container with two of ninety-six CPUs
	// has two. If more run later, the depot keeps the bound.
	ps := max(procs, runtime.NumCPU())
	size := min(cfg.MaxIdle/(magazinesPerP*procs), magazineSize)
	c := &core[T]{cfg: cfg, divided: size >= minMagazine && cfg.MaxOpen == 0}
	if cfg.MaxOpen > 0 {
		c.gate = &gate[T]{free: cfg.MaxOpen}
	}
	shared = shared || cfg.Check != nil // or an item would leave by the fast path unchecked
	if !c.divided {
		ps, size, shared = 1, min(cfg.MaxIdle, DefaultMaxIdle), true
	}
	c.base = make([]shard[T], ps)
	c.depot.size, c.depot.free = uint32(size), cfg.MaxIdle
	for i := range c.base {
		c.base[i].size = c.depot.size
		if shared {
			c.base[i].share()
		}
	}
	return c
}

// at returns the shard of a P, or nil if there is none yet.
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

// shards returns the number of shards; at reaches each of them.
func (c *core[T]) shards() int {
	n := len(c.base)
	if more := c.more.Load(); more != nil {
		n += len(*more)
	}
	return n
}

// grow makes shards for all Ps up to pid, after GOMAXPROCS was raised beyond the machine's CPUs.
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

// patience is how often an operation tries again before it locks its shard. Inside a locked shard it can wait
// for the depot.
const patience = 8

// own enters the shard of the current P. If another goroutine has the shard, it waits: another shard has another
// processor's items.
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

// release leaves a shard that own has entered.
func (c *core[T]) release(s *shard[T], e entry) {
	if e == asOwner {
		s.leave()
		procUnpin()
		return
	}
	s.unlock()
}

// lockDepot locks the depot for a caller that is inside s. An owner must not wait inside: if the depot is
// taken, lockDepot releases s, waits, and returns false.
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

// donate gives away items that another processor has asked for, if the depot is not busy. The caller is inside
// s and may be pinned.
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

// A shard holds the items of one processor, in two magazines: one is in use, and the other usually full or
// empty, so that a program that takes and gives across the edge of a magazine does not visit the depot each
// time (Bonwick and Adams, "Magazines and Vmem", 2001).
//
// Everything but the latch belongs to the goroutine inside the latch. A shard fills 128 bytes, two cache lines,
// because hardware prefetches lines in pairs; BenchmarkFalseSharing shows the effect. Fields of the fast path
// come first.
type shard[T any] struct {
	latch
	loaded magazine[T]
	hits   int64 // items taken from this shard
	prev   magazine[T]
	size   uint32 // how many slots to reserve for a magazine: see depot.surrender
	shut   bool   // the pool is closed: nothing comes in
	_      [16]byte
}

func (s *shard[T]) swap() { s.loaded, s.prev = s.prev, s.loaded }

// stocked reports whether the loaded magazine has an item. It swaps the magazines if that helps.
func (s *shard[T]) stocked() bool {
	if s.loaded.n == 0 && s.prev.n > 0 {
		s.swap()
	}
	return s.loaded.n > 0
}

// roomy reports whether the loaded magazine has room. It swaps the magazines if that helps.
func (s *shard[T]) roomy() bool {
	if s.loaded.n == s.loaded.lim && s.prev.n < s.prev.lim {
		s.swap()
	}
	return s.loaded.n < s.loaded.lim
}

// idle returns the number of items.
func (s *shard[T]) idle() uint32 { return s.loaded.n + s.prev.n }

// room returns the number of free slots.
func (s *shard[T]) room() uint32 { return s.loaded.lim + s.prev.lim - s.idle() }

// hasIdle reports, from outside the latch, whether there may be more than n items. It only helps to decide
// whether to lock.
func (s *shard[T]) hasIdle(n uint32) bool {
	idle, ok := s.peek(&s.loaded.n, &s.prev.n)
	return !ok || idle > n
}

// hasRoom reports, as a hint like hasIdle, whether there may be a free slot.
func (s *shard[T]) hasRoom() bool {
	idle, ok := s.peek(&s.loaded.n, &s.prev.n)
	slots, _ := s.peek(&s.loaded.lim, &s.prev.lim)
	return !ok || idle != slots
}

// steal moves the surplus of another processor to the depot, where self and others can take it. It returns
// false if there is nothing to take.
//
// Taking half of a magazine or more pays: many items share the price. Taking less is dear, and taking the last
// item is worse, because its processor is about to use it and would only steal in turn. Yet an item must not be
// lost with a processor that the program has left, and surplus is to be used before an item is made. So dear
// thefts have a budget: each item made pays for dearPerItem of them. If processors really need an item each, the
// items will soon have been made; if the program just moves between processors, none is made. That costs at most a
// constant times the cost with foreknowledge (the ski rental problem). Where shards have no owners to lock out, no
// theft is dear.
func (c *core[T]) steal(self *shard[T]) bool {
	if c.stealFrom(self, c.depot.size/2) {
		return true
	}
	if c.dear.Load() >= dearPerItem*(1+c.made.Load()) {
		return false
	}
	if !c.stealFrom(self, 1) && !c.stealFrom(self, 0) {
		return false
	}
	if !self.isShared() {
		c.dear.Add(1)
	}
	return true
}

// dearPerItem is how many dear thefts an item pays for.
const dearPerItem = 16

// stealFrom takes from the first other shard that has more than least items.
func (c *core[T]) stealFrom(self *shard[T], least uint32) bool {
	n := c.shards()
	first := int(c.turn.Add(1) % uint32(n))
	for i := range n {
		s := c.at((first + i) % n)
		if s != self && s.hasIdle(least) && c.rob(s, least) {
			return true
		}
	}
	return false
}

// rob takes from s, if s has more than least items. It asks the owner first: a running owner gives items at a
// fraction of the cost of locking it out.
func (c *core[T]) rob(s *shard[T], least uint32) bool {
	if least > 0 && s.ask() && c.awaitGift() {
		c.steals.Add(1)
		return true
	}
	s.lock()
	defer s.unlock()
	if s.idle() <= least {
		return false
	}
	c.steals.Add(1)
	c.depot.mu.Lock()
	c.depot.surrender(s)
	c.depot.mu.Unlock()
	return true
}

// giftPolls bounds the wait for a gift: so many looks take about as long as locking the owner out.
const giftPolls = 2000

// awaitGift waits a moment, and reports whether something has come into the depot.
func (c *core[T]) awaitGift() bool {
	for range giftPolls {
		if c.depot.count.Load() > 0 {
			return true
		}
	}
	return false
}

// give is Put beyond the fast path.
func (c *core[T]) give(x T) {
	if c.gate != nil {
		if c.gate.hand(x) {
			return
		}
		defer c.gate.leave()
	}
	c.store(x)
}

// store makes x idle, or closes it if there is no room.
func (c *core[T]) store(x T) {
	for try := 0; ; try++ {
		s, e := c.own(try)
		if s.shut {
			c.release(s, e)
			break
		}
		ok := s.roomy()
		if !ok {
			if !c.lockDepot(s, e) {
				continue
			}
			ok = c.depot.widen(s)
			c.depot.mu.Unlock()
		}
		if ok {
			s.loaded.push(x)
			c.release(s, e)
			return
		}
		c.release(s, e)
		if !c.reclaim() {
			break
		}
	}
	c.overflow(x)
}

// overflow closes an item for which there is no room.
func (c *core[T]) overflow(x T) {
	if invariants {
		c.ledger.out(x)
	}
	c.overflows.Add(1)
	c.drop(x)
}

// reclaim calls back the slots that one processor has reserved and not filled, and reports whether it found
// any.
func (c *core[T]) reclaim() bool {
	for i := range c.shards() {
		if s := c.at(i); s.hasRoom() && c.callBack(s) {
			return true
		}
	}
	return false
}

func (c *core[T]) callBack(s *shard[T]) bool {
	s.lock()
	defer s.unlock()
	room := s.room()
	if room == 0 {
		return false
	}
	c.depot.mu.Lock()
	c.depot.unreserve(&s.loaded)
	c.depot.unreserve(&s.prev)
	c.depot.mu.Unlock()
	return true
}

// readmits asks Config.Reset whether an item may come back.
func (c *core[T]) readmits(x T) (ok bool) {
	defer func() {
		if !ok {
			c.leave()
		}
	}()
	return c.accepts(c.cfg.Reset, x)
}

// accepts asks a function of Config, and closes x if it refuses.
func (c *core[T]) accepts(f func(T) bool, x T) (ok bool) {
	defer func() {
		if !ok { // f has refused x, or panicked
			c.refusals.Add(1)
			c.drop(x)
		}
	}()
	return f(x)
}

// drop closes x, which is neither idle nor the caller's.
func (c *core[T]) drop(x T) {
	c.dropped.Add(1)
	if c.cfg.Close != nil {
		c.cfg.Close(x)
	}
}

// dropAll closes all items of batches, even if a Close panics.
func (c *core[T]) dropAll(batches [][]T) {
	done := false
	defer func() {
		if !done {
			c.dropAll(batches)
		}
	}()
	for ; len(batches) > 0; batches = batches[1:] {
		for len(batches[0]) > 0 {
			x := batches[0][0]
			batches[0] = batches[0][1:]
			c.drop(x)
		}
	}
	done = true
}

// get is Get beyond the fast path.
func (c *core[T]) get(ctx context.Context) (x T, err error) {
	if c.gate == nil {
		return c.takeOrMake(ctx)
	}
	x, handed, err := c.gate.enter(ctx)
	if err != nil {
		return x, err
	}
	got := false
	defer func() {
		if !got { // no item, or a function of Config has panicked
			c.gate.leave()
		}
	}()
	if handed && invariants {
		c.ledger.out(x)
	}
	if !handed || !c.checks(x) {
		x, err = c.takeOrMake(ctx)
	}
	got = err == nil
	return x, err
}

func (c *core[T]) takeOrMake(ctx context.Context) (x T, err error) {
	if x, ok := c.takeChecked(); ok {
		return x, nil
	}
	if c.closed.Load() {
		return x, ErrClosed
	}
	return c.make(ctx)
}

// tryGet is TryGet beyond the fast path.
func (c *core[T]) tryGet() (x T, ok bool) {
	if c.gate == nil {
		return c.takeChecked()
	}
	if c.gate.take(1) == 0 {
		c.misses.Add(1)
		return x, false
	}
	defer func() {
		if !ok {
			c.gate.leave()
		}
	}()
	return c.takeChecked()
}

// takeChecked takes an item that Check accepts.
func (c *core[T]) takeChecked() (T, bool) {
	for {
		x, ok := c.take()
		if !ok || c.checks(x) {
			return x, ok
		}
	}
}

// checks reports whether Check accepts x, and closes it if not.
func (c *core[T]) checks(x T) bool { return c.cfg.Check == nil || c.accepts(c.cfg.Check, x) }

// take takes an idle item: from the shard, then the depot, then from
// other processors.
func (c *core[T]) take() (T, bool) {
	for try := 0; ; try++ {
		s, e := c.own(try)
		if s.stocked() {
			return c.takeFrom(s, e), true
		}
		if c.depot.count.Load() > 0 {
			if !c.lockDepot(s, e) {
				continue
			}
			ok := c.depot.load(s)
			c.depot.mu.Unlock()
			if ok {
				return c.takeFrom(s, e), true
			}
		}
		c.release(s, e)
		if !c.steal(s) && c.depot.count.Load() == 0 {
			c.misses.Add(1)
			var zero T
			return zero, false
		}
	}
}

// takeFrom takes an item from s, which has one, and releases s.
func (c *core[T]) takeFrom(s *shard[T], e entry) T {
	x := s.loaded.pop()
	s.hits++
	c.release(s, e)
	if invariants {
		c.ledger.out(x)
	}
	return x
}

// make makes an item.
func (c *core[T]) make(ctx context.Context) (T, error) {
	x, err := c.cfg.New(ctx)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("penstock: pool: get: %w", err)
	}
	c.made.Add(1)
	if c.closed.Load() { // meanwhile
		c.drop(x)
		var zero T
		return zero, ErrClosed
	}
	return x, nil
}

// A gate holds the MaxOpen places of a pool. An item that is out has a place, and so does a call that is taking or
// making an item. A pool with a gate keeps its idle items behind one mutex, and makes an item only when none was
// idle a moment before. At that moment every open item has a place, including the new one, so there are never more
// than MaxOpen.
//
// Callers without a place wait in a queue. A place, or an item with its place, goes at once to the first of
// them, so no newcomer can get in between.
type gate[T any] struct {
	mu    sync.Mutex
	free  int       // places; 0 while calls wait
	queue list.List // of chan *T with room for one: the caller gets an item, or nil for a place without one
	waits int64
}

// enter takes a place, and waits for it as long as ctx allows. handed says that the item x came with the place.
func (g *gate[T]) enter(ctx context.Context) (x T, handed bool, err error) {
	ready, e := g.line()
	if ready == nil {
		return x, false, nil
	}
	var item *T
	select {
	case item = <-ready:
	case <-ctx.Done():
		if g.cancel(e) {
			return x, false, fmt.Errorf("penstock: pool: get: MaxOpen items are in use: %w", context.Cause(ctx))
		}
		item = <-ready
	}
	if item != nil {
		x = *item
	}
	return x, item != nil, nil
}

// line takes a place and returns nil, or joins the queue.
func (g *gate[T]) line() (chan *T, *list.Element) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 {
		g.free--
		return nil, nil
	}
	g.waits++
	ready := make(chan *T, 1) // a channel's items must be smaller than 64 KiB, a pool's need not be
	return ready, g.queue.PushBack(ready)
}

// take takes at most n places, and returns how many.
func (g *gate[T]) take(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, g.free)
	g.free -= n
	return n
}

// cancel leaves the queue, and reports whether the caller was still in it.
func (g *gate[T]) cancel(e *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Value == nil {
		return false
	}
	g.queue.Remove(e)
	return true
}

// first takes the first caller out of the queue, or returns nil if none waits. The caller holds g.mu.
func (g *gate[T]) first() chan *T {
	e := g.queue.Front()
	if e == nil {
		return nil
	}
	ready := g.queue.Remove(e).(chan *T)
	e.Value = nil
	return ready
}

// hand gives an item and its place to the first caller in the queue, if there is one.
func (g *gate[T]) hand(x T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ready := g.first()
	if ready != nil {
		item := x // x itself stays off the heap while nobody waits
		ready <- &item
	}
	return ready != nil
}

// give gives n places back.
func (g *gate[T]) give(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for ; n > 0; n-- {
		if ready := g.first(); ready != nil {
			close(ready)
		} else {
			g.free++
		}
	}
}

func (g *gate[T]) leave() { g.give(1) }

// close lets all callers in, for good. They will see that the pool is closed.
func (g *gate[T]) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = math.MaxInt / 2
	for ready := g.first(); ready != nil; ready = g.first() {
		close(ready)
	}
}

func (g *gate[T]) waited() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waits
}

// leave gives back the place of an item that is no longer out.
func (c *core[T]) leave() {
	if c.gate != nil {
		c.gate.leave()
	}
}

// Stats has the counts of a pool, and its present items. Only Live and Idle ever fall. When no operation is in
// flight,
//
//	Made = Closed + Live + Idle
//
// and during an operation, an item between two states counts as live.
type Stats struct {
	Made   int64 // items made
	Closed int64 // items closed, for whatever reason
	Live   int64 // items out; with Idle: open items
	Idle   int64 // items in the pool now

	Hits   int64 // idle items that Get and TryGet took, even if Check then refused them
	Misses int64 // Gets and TryGets that found none; a Get that waited and got an item is only in Waits
	Steals int64 // times that one processor took from another
	Waits  int64 // Gets that had to wait because MaxOpen items were out

	Evictions int64 // items closed by IdleTime or Trim
	Discards  int64 // items given to Discard
	Refusals  int64 // items that Reset or Check refused
	Overflows int64 // items put when MaxIdle were idle, or after Close
}

// counts are the counters off the fast path.
type counts struct {
	made, dropped, misses, steals            atomic.Int64
	evictions, discards, refusals, overflows atomic.Int64

	dear atomic.Int64  // dear thefts, see steal
	turn atomic.Uint32 // where the next search for surplus begins
}

func (c *core[T]) stats() Stats {
	c.lockAll()
	defer c.unlockAll()
	s := Stats{
		Closed:    c.dropped.Load(), // read before made: no item is closed that was not made
		Made:      c.made.Load(),
		Idle:      int64(c.idle()),
		Misses:    c.misses.Load(),
		Steals:    c.steals.Load(),
		Evictions: c.evictions.Load(),
		Discards:  c.discards.Load(),
		Refusals:  c.refusals.Load(),
		Overflows: c.overflows.Load(),
	}
	for i := range c.shards() {
		s.Hits += c.at(i).hits
	}
	if c.gate != nil {
		s.Waits = c.gate.waited()
	}
	s.Live = s.Made - s.Closed - s.Idle
	return s
}
