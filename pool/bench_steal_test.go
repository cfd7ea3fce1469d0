package pool_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/pool"
)

// A quarry is a place of items from which one processor takes those that another one has put.
type quarry interface {
	tryGet() *item // nil if there is none in reach
	put(x *item)
}

// stock is how many items the victim has: more than half a magazine, so that to steal from it is not
// dear, and less than two, so that all of them lie with it.
const stolenStock = 100

// BenchmarkSteal is the time of the first Get by a processor that has nothing, of items that lie with
// another one: p50 and p99, where the victim is busy, taking an item and putting it back all the time,
// and where it is quiet. ns/item is for all that the victim had. The contestants take turns round by
// round; an operation is a round of each. "theft" is a Penstock pool that is new in each round, so that
// its victim has to be robbed; in "penstock", which stays, it sends its surplus to the depot by itself
// from the second round on. "thefts" is the share of the rounds of "theft" with one. "clock" takes
// nothing: the cost of measuring.
func BenchmarkSteal(b *testing.B) {
	for _, busy := range []bool{true, false} {
		name := "quiet"
		if busy {
			name = "busy"
		}
		b.Run(name, func(b *testing.B) {
			skipBelow(b, 2)
			heists := []*heist{
				{name: "theft", fresh: func() quarry { return newTried(b) }},
				{name: "penstock", q: newTried(b)},
				{name: "ring", q: newRings()},
				{name: "spinlist", q: new(spinList)},
				{name: "clock", q: nothing{}},
			}
			v := &victim{busy: busy}
			var done sync.WaitGroup
			done.Go(v.live)
			b.ResetTimer()
			for i := range b.N {
				for j := range heists {
					heists[(i+j)%len(heists)].round(v)
				}
			}
			b.StopTimer()
			v.over.Store(true)
			done.Wait()
			b.ReportMetric(0, "ns/op")
			for _, h := range heists {
				h.report(b)
			}
			b.ReportMetric(float64(heists[0].thefts)/float64(max(len(heists[0].first), 1)), "thefts")
		})
	}
}

// A heist is a contestant, its items between rounds, and the samples.
type heist struct {
	name  string
	fresh func() quarry // makes q anew for each round, unless nil
	q     quarry
	items []*item

	first, all []int64 // ns of the first Get, and of all of them for each item
	thefts     int64   // that Penstock's pool has counted, if it is new
}

// A victim is a goroutine that puts the items of one heist after the other.
type victim struct {
	busy bool
	pid  int // where it put them

	_       cacheLines
	of      atomic.Pointer[heist] // nil: the round is over
	_       cacheLines
	stocked atomic.Bool
	over    atomic.Bool
	_       cacheLines
}

func (v *victim) live() {
	for i := 1; !v.over.Load(); i++ {
		if h := v.of.Load(); h != nil {
			v.put(h)
		}
		breathe(i)
	}
}

// put puts the items, and waits for the end of the round, at work or not.
func (v *victim) put(h *heist) {
	if h.fresh != nil {
		h.q, h.items = h.fresh(), h.items[:0]
	}
	for x := h.q.tryGet(); x != nil; x = h.q.tryGet() { // the last round's
		h.items = append(h.items, x)
	}
	for len(h.items) < stolenStock {
		h.items = append(h.items, new(item))
	}
	v.pid = procPin()
	procUnpin()
	for _, x := range h.items {
		h.q.put(x)
	}
	h.items = h.items[:0]
	v.stocked.Store(true)
	for i := 1; v.of.Load() != nil; i++ {
		if v.busy {
			if x := h.q.tryGet(); x != nil {
				h.q.put(x)
			}
		}
		breathe(i)
	}
	v.stocked.Store(false)
}

// round has the victim put all items, and takes them.
func (h *heist) round(v *victim) {
	v.of.Store(h)
	for i := 1; !v.stocked.Load(); i++ {
		breathe(i)
	}
	taken := h.rob(v.pid)
	v.of.Store(nil)
	for i := 1; v.stocked.Load(); i++ {
		breathe(i)
	}
	h.items = append(h.items, taken...)
}

// rob takes the items, and samples that unless the thief turns out to be the victim.
func (h *heist) rob(victim int) []*item {
	var taken [2 * stolenStock]*item
	n := 0
	thief := procPin()
	procUnpin()
	begin := now()
	x := h.q.tryGet()
	first := now() - begin
	for x != nil && n < len(taken) {
		taken[n] = x
		n++
		x = h.q.tryGet()
	}
	all := now() - begin
	if thief != victim {
		h.first, h.all = append(h.first, first), append(h.all, all/int64(max(n, 1)))
		if h.fresh != nil {
			h.thefts += min(h.q.(tried).p.Stats().Steals, 1)
		}
	}
	return taken[:n]
}

func (h *heist) report(b *testing.B) {
	if len(h.first) == 0 {
		return
	}
	slices.Sort(h.first)
	slices.Sort(h.all)
	b.ReportMetric(quantile(h.first, 0.50), h.name+"-p50")
	b.ReportMetric(quantile(h.first, 0.99), h.name+"-p99")
	b.ReportMetric(quantile(h.all, 0.50), h.name+"-ns/item")
}

// nothing has no items.
type nothing struct{}

func (nothing) tryGet() *item { return nil }
func (nothing) put(*item)     {}

// tried is a pool that makes no items.
type tried struct{ p *pool.Pool[*item] }

func newTried(b *testing.B) tried { return tried{newPenstock(b, benchIdle).(*penstock).p} }

func (t tried) tryGet() *item {
	x, _ := t.p.TryGet()
	return x
}

func (t tried) put(x *item) { t.p.Put(x) }

// rings has a ring for each P, in which its owner works at one end, and thieves at the other, by
// compare-and-swap alone: the way of sync.Pool.
type rings struct{ local []ring }

// A ring has the items from tail to head. Both ends are in one word, so that whoever changes it has
// seen the other end unchanged; a slot is not written to while it lies between them.
type ring struct {
	ends  atomic.Uint64 // head in the upper half, tail in the lower
	slots [128]atomic.Pointer[item]
	_     cacheLines
}

func newRings() *rings { return &rings{make([]ring, runtime.GOMAXPROCS(0))} }

func (r *ring) pushHead(x *item) bool {
	ends := r.ends.Load()
	head, tail := uint32(ends>>32), uint32(ends)
	if head-tail == uint32(len(r.slots)) {
		return false
	}
	r.slots[head%uint32(len(r.slots))].Store(x)
	r.ends.Add(1 << 32)
	return true
}

func (r *ring) popHead() *item {
	for {
		ends := r.ends.Load()
		head, tail := uint32(ends>>32), uint32(ends)
		if head == tail {
			return nil
		}
		if head--; r.ends.CompareAndSwap(ends, uint64(head)<<32|uint64(tail)) {
			return r.slots[head%uint32(len(r.slots))].Load()
		}
	}
}

func (r *ring) popTail() *item {
	for {
		ends := r.ends.Load()
		head, tail := uint32(ends>>32), uint32(ends)
		if head == tail {
			return nil
		}
		x := r.slots[tail%uint32(len(r.slots))].Load()
		if r.ends.CompareAndSwap(ends, uint64(head)<<32|uint64(tail+1)) {
			return x
		}
	}
}

func (c *rings) tryGet() *item {
	pid := procPin()
	x := c.local[pid].popHead()
	procUnpin()
	for i := 1; x == nil && i < len(c.local); i++ {
		x = c.local[(pid+i)%len(c.local)].popTail()
	}
	return x
}

func (c *rings) put(x *item) {
	ok := c.local[procPin()].pushHead(x)
	procUnpin()
	if !ok {
		panic("the ring is full")
	}
}

// spinList is one list under a spin lock, for all Ps.
type spinList struct {
	locked atomic.Bool
	itemList
}

func (c *spinList) lock() {
	for i := 1; c.locked.Load() || !c.locked.CompareAndSwap(false, true); i++ {
		breathe(i)
	}
}

func (c *spinList) tryGet() *item {
	c.lock()
	x := c.pop()
	c.locked.Store(false)
	return x
}

func (c *spinList) put(x *item) {
	c.lock()
	c.push(x)
	c.locked.Store(false)
}

// TestQuarries: items that were put by one goroutine, and taken by others at once, are each taken by
// one of them.
func TestQuarries(t *testing.T) {
	setProcs(t, 4)
	for name, q := range map[string]quarry{"ring": newRings(), "spinlist": new(spinList)} {
		const n = 20_000
		var taken [3][]*item
		var all sync.WaitGroup
		var left atomic.Int64
		left.Store(n)
		for i := range taken {
			all.Go(func() {
				for left.Load() > 0 {
					if x := q.tryGet(); x != nil {
						taken[i] = append(taken[i], x)
						left.Add(-1)
					}
				}
			})
		}
		for i := range n {
			for n-int64(i) < left.Load()-100 {
				runtime.Gosched()
			}
			q.put(new(item))
		}
		all.Wait()
		seen := make(map[*item]bool)
		for _, x := range slices.Concat(taken[:]...) {
			seen[x] = true
		}
		if len(seen) != n {
			t.Errorf("%s: %d of %d items", name, len(seen), n)
		}
	}
}
