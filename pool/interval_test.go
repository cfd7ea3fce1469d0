package pool_test

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// These tests check of intervals the same as the tests of sync.Pool check of
// collections.

// A clock is a time.AfterFunc that is wound by hand. It has one timer.
type clock struct {
	now, due time.Duration
	f        func()
	stopped  atomic.Bool
}

func (c *clock) afterFunc(d time.Duration, f func()) pool.Stopper {
	c.due, c.f = c.now+d, f
	return c
}

func (c *clock) Stop() bool {
	c.stopped.Store(true)
	return true
}

func (c *clock) Reset(d time.Duration) bool {
	c.due = c.now + d
	return true
}

// advance lets time pass.
func (c *clock) advance(d time.Duration) {
	for end := c.now + d; ; c.f() {
		if c.due > end || c.stopped.Load() {
			c.now = end
			return
		}
		c.now = c.due
	}
}

// withClock returns a pool whose intervals are a second long.
func withClock(t *testing.T, v pool.Variant, cfg pool.Config[*probe]) (*pool.Pool[*probe], *clock) {
	c := new(clock)
	cfg.IdleTime = time.Second
	return newPool(t, v.WithClock(c.afterFunc), cfg), c
}

// eachSize runs a test with a small pool, which has one shard, and with a large one.
func eachSize(t *testing.T, f func(t *testing.T, v pool.Variant, maxIdle int)) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		t.Run("small", func(t *testing.T) { f(t, v, 10) })
		t.Run("large", func(t *testing.T) { f(t, v, 2000) })
	})
}

// TestIdleTime puts an item at each of several times within an interval and looks
// when it goes: after more than one idle time and not more than two.
func TestIdleTime(t *testing.T) {
	eachSize(t, func(t *testing.T, v pool.Variant, maxIdle int) {
		const step = 100 * time.Millisecond
		for put := time.Duration(0); put < time.Second; put += step {
			var m maker
			p, c := withClock(t, v, m.config(maxIdle))
			x := get(t, p)
			c.advance(put)
			p.Put(x)
			var idle time.Duration
			for x.state.Load() != closed && idle < 10*time.Second {
				c.advance(step)
				idle += step
			}
			if idle <= time.Second && put != 0 || idle < time.Second || idle > 2*time.Second {
				t.Errorf("put at %v, closed after %v", put, idle)
			}
		}
	})
}

// TestTimer uses the real timer, in a bubble in which time passes by itself.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m maker
		cfg := m.config(0)
		cfg.IdleTime = time.Minute
		p := must.Get(pool.New(cfg))(t)
		time.Sleep(25 * time.Second)
		x := get(t, p)
		p.Put(x)
		begin := time.Now()
		for x.state.Load() != closed {
			time.Sleep(time.Second)
		}
		if d := time.Since(begin); d < time.Minute || d > 2*time.Minute {
			t.Errorf("closed after %v", d)
		}
		p.Close()
		synctest.Wait()
	})
}

func TestCloseStopsTimer(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		p, c := withClock(t, v, m.config(0))
		p.Close()
		if !c.stopped.Load() {
			t.Error("the timer runs on")
		}
	})
}

// TestNoTimerWithoutIdleTime: none is even made.
func TestNoTimerWithoutIdleTime(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		c := new(clock)
		before := runtime.NumGoroutine()
		p := newPool(t, v.WithClock(c.afterFunc), m.config(0))
		give(p, take(t, p, 100))
		if c.f != nil {
			t.Error("there is a timer")
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines more", n-before)
		}
	})
}

// TestForgottenPool lets a pool become garbage: its items are closed and its timer
// stops.
func TestForgottenPool(t *testing.T) {
	eachSize(t, func(t *testing.T, v pool.Variant, maxIdle int) {
		m, c := new(maker), new(clock)
		func() {
			cfg := m.config(maxIdle)
			cfg.IdleTime = time.Second
			p := must.Get(pool.NewVariant(v.WithClock(c.afterFunc), cfg))(t)
			give(p, take(t, p, 7))
			if n := m.closed.Load(); n != 0 {
				t.Fatalf("%d items closed too early", n)
			}
		}()
		eventually(t, "the items to be closed", func() bool { return m.closed.Load() == 7 })
		eventually(t, "the timer to be stopped", c.stopped.Load)
	})
}

// TestPointerFreeItemsAreNotScanned compares the bytes that a collection has to
// scan before and after a million integers became idle.
func TestPointerFreeItemsAreNotScanned(t *testing.T) {
	scannable := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	const n = 1_000_000
	p := newPool(t, pool.Variants()[0], pool.Config[int64]{
		New:     func(context.Context) (int64, error) { return 0, nil },
		MaxIdle: n,
	})
	xs := take(t, p, n)
	before := scannable()
	give(p, xs)
	after := scannable()
	if after > before && after-before > 8*n/4 {
		t.Errorf("%d bytes more to scan", after-before)
	}
	if st := p.Stats(); st.Idle != n {
		t.Errorf("%+v", st)
	}
	runtime.KeepAlive(xs)
}

// TestGrow uses more processors than the machine has, and then fewer than items
// lie with: all are found.
func TestGrow(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		setProcs(t, 2)
		p := newPool(t, v, m.config(5000))
		for _, procs := range []int{2, runtime.NumCPU() + 7, runtime.NumCPU() + 14, 1} {
			runtime.GOMAXPROCS(procs)
			var done sync.WaitGroup
			for range 4 * procs {
				done.Go(func() {
					for range 20 {
						give(p, take(t, p, 20))
						runtime.Gosched()
					}
				})
			}
			done.Wait()
			must.Do(t, p.Check())
		}
		st := p.Stats()
		if st.Live != 0 || st.Idle != m.made.Load() {
			t.Errorf("%+v", st)
		}
		if n := p.Trim(0); int64(n) != st.Idle {
			t.Errorf("%d of %d trimmed", n, st.Idle)
		}
	})
}
