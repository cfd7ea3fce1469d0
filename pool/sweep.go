package pool

import (
	"sync"
	"time"
)

// sweep ends an interval: it closes the items that were idle throughout.
func (c *core[T]) sweep() int {
	return c.evict(0, func(m *magazine[T]) uint32 {
		return m.low
	}, func(m *magazine[T]) {
		m.low = m.n
	})
}

func (c *core[T]) trim(keep int) int {
	return c.evict(keep, func(m *magazine[T]) uint32 {
		return m.n
	}, func(*magazine[T]) {})
}

// evict closes the oldest items of each magazine: as many as the function which returns, while more than keep
// items remain in all. Then it calls after for each magazine. The depot comes first, oldest magazines first:
// roughly, its items were idle for longest.
func (c *core[T]) evict(keep int, which func(*magazine[T]) uint32, after func(*magazine[T])) int {
	c.lockAll()
	surplus := max(c.idle()-max(keep, 0), 0)
	if c.gate != nil { // an item keeps its place until it is closed
		surplus = c.gate.take(surplus)
	}
	var out [][]T
	n := 0
	c.eachMagazine(func(m *magazine[T]) {
		if k := min(int(which(m)), surplus-n); k > 0 {
			lim := m.lim
			out = append(out, m.shed(uint32(k)))
			c.depot.free += int(lim - m.lim)
			n += k
		}
		after(m)
	})
	c.depot.compact()
	c.evictions.Add(int64(n))
	c.forget(out)
	c.unlockAll()
	if c.gate != nil {
		c.gate.give(surplus - n)
		defer c.gate.give(n)
	}
	c.dropAll(out)
	return n
}

// eachMagazine visits all magazines. The caller holds all locks.
func (c *core[T]) eachMagazine(f func(*magazine[T])) {
	for i := range c.depot.full {
		f(&c.depot.full[i])
	}
	for i := range c.shards() {
		f(&c.at(i).prev)
	}
	for i := range c.shards() {
		f(&c.at(i).loaded)
	}
}

// idle returns the number of idle items. The caller holds all locks.
func (c *core[T]) idle() int {
	n := 0
	c.eachMagazine(func(m *magazine[T]) { n += int(m.n) })
	return n
}

// close closes the pool. A second call finds nothing to do.
func (c *core[T]) close() {
	c.timer.stop()
	c.lockAll()
	c.closed.Store(true)
	if c.gate != nil {
		c.gate.close()
	}
	for i := range c.shards() {
		c.at(i).shut = true
		c.at(i).share() // for good: who enters by the mutex looks at shut
	}
	var out [][]T
	c.eachMagazine(func(m *magazine[T]) {
		c.depot.unreserve(m)
		c.depot.free += int(m.n)
		out = append(out, m.shed(m.n))
	})
	c.depot.compact()
	c.depot.spare = nil
	c.forget(out)
	c.unlockAll()
	c.dropAll(out)
}

// forget tells the ledger that batches are no longer idle.
func (c *core[T]) forget(batches [][]T) {
	if !invariants {
		return
	}
	for _, xs := range batches {
		for _, x := range xs {
			c.ledger.out(x)
		}
	}
}

// A ticker ends the intervals of a pool. Its timer is set again at the start of each sweep, because Config.Close may
// take long: sweeps may overlap. A goroutine exists only during a sweep.
type ticker struct {
	mu    sync.Mutex
	timer *time.Timer
	sweep func() int // nil once the pool is closed
}

// startTimer starts the intervals if there is an idle time. The timer refers to the core, not to the Pool.
func (c *core[T]) startTimer() {
	d := c.cfg.IdleTime
	if d <= 0 {
		return
	}
	t := &ticker{sweep: c.sweep}
	c.timer = t
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		sweep := t.sweep
		if sweep != nil {
			t.timer.Reset(d)
		}
		t.mu.Unlock()
		if sweep != nil {
			sweep()
		}
	})
}

// stop ends the intervals. The timer runs out by itself, and holds no more than the ticker meanwhile: a timer that was
// made in a bubble of testing/synctest may not be stopped from outside of it, where the pool may be closed.
func (t *ticker) stop() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.sweep = nil
	t.mu.Unlock()
}
