package pool

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Variant is one way of entering shards.
type Variant struct {
	Name   string
	shared bool
}

// Variants lists those that this build has on this machine.
func Variants() []Variant {
	vs := []Variant{{"mutex", true}}
	if canOwn() {
		vs = append(vs, Variant{"owner", false})
	}
	return vs
}

// NewVariant is New for a variant.
func NewVariant[T any](v Variant, cfg Config[T]) (*Pool[T], error) { return newPool(cfg, v.shared) }

// Sweep ends an interval, as IdleTime does, and returns how many items it closed.
func (p *Pool[T]) Sweep() int { return p.rest().sweep() }

// Owned reports whether shards of p are entered by owners.
func (p *Pool[T]) Owned() bool { return !p.core.base[0].isShared() }

// Divided reports whether each P has a shard.
func (p *Pool[T]) Divided() bool { return p.core.divided }

// Check returns an error if the state of p breaks a promise of the comments.
func (p *Pool[T]) Check() error {
	c := p.core
	c.lockAll()
	defer c.unlockAll()
	slots := c.depot.free
	for i := range c.shards() {
		s := c.at(i)
		slots += int(s.loaded.lim + s.prev.lim)
	}
	for _, m := range c.depot.full {
		if m.n == 0 || m.lim != m.n {
			return fmt.Errorf("depot has a magazine with n %d, lim %d", m.n, m.lim)
		}
		slots += int(m.n)
	}
	if slots != c.cfg.MaxIdle || c.depot.free < 0 {
		return fmt.Errorf("%d slots, %d of them free, where MaxIdle is %d", slots, c.depot.free, c.cfg.MaxIdle)
	}
	if n := int(c.depot.count.Load()); n != len(c.depot.full) {
		return fmt.Errorf("depot counts %d of %d magazines", n, len(c.depot.full))
	}
	var err error
	c.eachMagazine(func(m *magazine[T]) {
		if m.low > m.n || m.n > m.lim || int(m.lim) > len(m.items) {
			err = fmt.Errorf("magazine has low %d, n %d, lim %d, len %d", m.low, m.n, m.lim, len(m.items))
		}
	})
	return err
}

// Beyond calls f with the contents of magazines beyond their items, and with
// those of spare magazines.
func (p *Pool[T]) Beyond(f func(T)) {
	c := p.core
	c.lockAll()
	defer c.unlockAll()
	c.eachMagazine(func(m *magazine[T]) {
		for _, x := range m.items[m.n:] {
			f(x)
		}
	})
	for _, a := range c.depot.spare {
		for _, x := range a {
			f(x)
		}
	}
}

// ShardSize returns the size of a shard in bytes.
func ShardSize[T any]() uintptr { return unsafe.Sizeof(shard[T]{}) }

// Duel lets an owner and a rival enter a latch for a time, and reports whether
// each was alone inside. Several owners take turns, since only the one that runs
// on the first P is an owner. The world is stopped again and again, so that they
// change.
//
// Each stores to a contended cache line before it tries. The next store waits in
// the store buffer behind it, while loads continue. That is the case for which a
// barrier is needed.
func (v Variant) Duel(owners int, d time.Duration) bool {
	l := duel{turns: owners > 1}
	if v.shared {
		l.share()
	}
	var done sync.WaitGroup
	for i := range owners {
		done.Go(func() { l.own(&l.line[i]) })
	}
	done.Go(func() { l.rival(&l.line[owners]) })
	if l.turns {
		done.Go(l.stopWorld)
	}
	time.Sleep(d)
	l.stop.Store(true)
	done.Wait()
	return !l.clash.Load() && l.count == l.entered.Load()
}

type duel struct {
	latch
	busy  bool
	count int64
	_     [128]byte
	line  [8]int64
	_     [64]byte

	turns       bool
	stop, clash atomic.Bool
	entered     atomic.Int64
}

// own enters the latch as its owner. It yields now and then: a goroutine that is pinned nearly always
// may not be preempted for minutes, since each signal of the runtime finds it pinned.
func (l *duel) own(word *int64) {
	n := int64(0)
	for round := 1; !l.stop.Load(); round++ {
		if round%4096 == 0 {
			runtime.Gosched()
		}
		if pid := procPin(); pid == 0 || !l.turns {
			*word++
			if l.tryEnter() {
				l.inside()
				l.leave()
				n++
			}
		}
		procUnpin()
	}
	l.entered.Add(n)
}

// rival enters it by the lock.
func (l *duel) rival(word *int64) {
	n := int64(0)
	for ; !l.stop.Load(); n++ {
		*word++
		l.lock()
		l.inside()
		l.unlock()
		for range n % 64 { // not always when the owner has just seen this
			spin()
		}
	}
	l.entered.Add(n)
}

func (l *duel) stopWorld() {
	for !l.stop.Load() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
	}
}

func (l *duel) inside() {
	if l.busy {
		l.clash.Store(true)
	}
	l.busy = true
	l.count++
	spin()
	l.busy = false
}

//go:noinline
func spin() {}

// Invariants is whether the build tag is set.
const Invariants = invariants
