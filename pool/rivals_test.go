package pool_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// An item is the object that the contestants of the benchmarks hold by pointer.
// It fills two cache lines, the unit that hardware prefetches, so that items in
// different hands never share one.
type item struct {
	_ [128]byte
}

// A contestant is one way of keeping items. Its loops are its own, so that the
// calls within them are as direct as in a program.
type contestant interface {
	keeper
	pairs(n int)        // n times: take an item and give it back
	made() int64        // items made so far
	cost(time.Duration) // makes items take so long to make
}

type keeper interface {
	take(xs []*item) // fills xs, with new items if need be
	give(xs []*item)
}

// An entrant is a contestant before it is made, with room for maxIdle items at
// least.
type entrant struct {
	name string
	make func(tb testing.TB, maxIdle int) contestant
}

// contestants lists the pools to compare, Penstock's pool first and sync.Pool
// second.
var contestants = []entrant{
	{"penstock", newPenstock},
	{"syncPool", newSyncPool},
	{"perPLocked", newPerPLocked},
}

// A factory counts the items that it makes. It is apart from its contestant: a
// pool is not forgotten while its own New refers to it.
type factory struct {
	n     atomic.Int64
	sleep time.Duration // per item
}

func (f *factory) item() *item {
	f.n.Add(1)
	if f.sleep > 0 {
		time.Sleep(f.sleep)
	}
	return new(item)
}

func (f *factory) new() (*item, error)  { return f.item(), nil }
func (f *factory) made() int64          { return f.n.Load() }
func (f *factory) cost(d time.Duration) { f.sleep = d }

// penstock is Pool[*item].
type penstock struct {
	*factory
	p *pool.Pool[*item]
}

func newPenstock(tb testing.TB, maxIdle int) contestant {
	c := &penstock{factory: new(factory)}
	p := must.Get(pool.New(pool.Config[*item]{
		New:     func(context.Context) (*item, error) { return c.factory.new() },
		MaxIdle: maxIdle,
	}))(tb)
	c.p = p // of memory only, without a ticker: it may be forgotten
	return c
}

func (c *penstock) pairs(n int) {
	for range n {
		x, err := c.p.Get(context.Background())
		if err != nil {
			panic(err)
		}
		c.p.Put(x)
	}
}

func (c *penstock) take(xs []*item) {
	for i := range xs {
		x, err := c.p.Get(context.Background())
		if err != nil {
			panic(err)
		}
		xs[i] = x
	}
}

func (c *penstock) give(xs []*item) {
	for _, x := range xs {
		c.p.Put(x)
	}
}

// syncPool is sync.Pool, which knows no bound.
type syncPool struct {
	*factory
	p sync.Pool
}

func newSyncPool(testing.TB, int) contestant {
	c := &syncPool{factory: new(factory)}
	c.p.New = func() any { return c.item() }
	return c
}

func (c *syncPool) pairs(n int) {
	for range n {
		x := c.p.Get().(*item)
		c.p.Put(x)
	}
}

func (c *syncPool) take(xs []*item) {
	for i := range xs {
		xs[i] = c.p.Get().(*item)
	}
}

func (c *syncPool) give(xs []*item) {
	for _, x := range xs {
		c.p.Put(x)
	}
}

// cacheLines separates its two neighbours, adjacent-line prefetch included.
type cacheLines [128]byte

// perPLocked has the shape of sync.Pool before Go 1.13: for each P a private
// place that needs no lock and a slice under a mutex, from which the other Ps
// steal. Nothing collects it.
type perPLocked struct {
	*factory
	local []perPShard
}

type perPShard struct {
	private *item // owner only, pinned
	mu      sync.Mutex
	shared  []*item
	_       cacheLines
}

func newPerPLocked(testing.TB, int) contestant {
	return &perPLocked{factory: new(factory), local: make([]perPShard, runtime.GOMAXPROCS(0))}
}

func (c *perPLocked) get() *item {
	pid := procPin()
	l := &c.local[pid]
	x := l.private
	l.private = nil
	procUnpin()
	if x != nil {
		return x
	}
	if x := l.pop(); x != nil {
		return x
	}
	for i := range c.local {
		if x := c.local[(pid+1+i)%len(c.local)].pop(); x != nil {
			return x
		}
	}
	return c.item()
}

func (l *perPShard) pop() (x *item) {
	l.mu.Lock()
	if n := len(l.shared); n > 0 {
		x = l.shared[n-1]
		l.shared[n-1] = nil
		l.shared = l.shared[:n-1]
	}
	l.mu.Unlock()
	return x
}

func (c *perPLocked) put(x *item) {
	l := &c.local[procPin()]
	if l.private == nil {
		l.private, x = x, nil
	}
	procUnpin()
	if x != nil {
		l.mu.Lock()
		l.shared = append(l.shared, x)
		l.mu.Unlock()
	}
}

func (c *perPLocked) pairs(n int) {
	for range n {
		x := c.get()
		c.put(x)
	}
}

func (c *perPLocked) take(xs []*item) {
	for i := range xs {
		xs[i] = c.get()
	}
}

func (c *perPLocked) give(xs []*item) {
	for _, x := range xs {
		c.put(x)
	}
}

// The per-P rivals need the runtime functions that sync.Pool uses. While a
// goroutine is pinned it is neither moved to another P nor stopped, so it must
// not block.

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
