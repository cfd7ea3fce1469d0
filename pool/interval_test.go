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
	"weak"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

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
		synctest.Test(t, func(t *testing.T) {
			const step = time.Minute / 10
			for put := step / 2; put < time.Minute; put += step {
				var m maker
				cfg := m.config(maxIdle)
				cfg.IdleTime = time.Minute
				p := newPool(t, v, cfg)
				x := get(t, p)
				time.Sleep(put)
				p.Put(x)
				idle := time.Duration(0)
				for ; x.state.Load() != closed && idle < time.Hour; idle += step {
					time.Sleep(step)
				}
				if idle <= time.Minute || idle > 2*time.Minute {
					t.Errorf("put at %v, closed after %v", put, idle)
				}
			}
		})
	})
}

// TestAfterABubble: a pool that was made in a bubble of testing/synctest can be closed after the bubble's end.
func TestAfterABubble(t *testing.T) {
	t.Parallel()

	var p *pool.Pool[int]
	synctest.Test(t, func(t *testing.T) {
		p = must.Get(pool.New(pool.Config[int]{New: func(context.Context) (int, error) { return 1, nil }, IdleTime: time.Minute}))(t)
		p.Put(must.Get(p.Get(t.Context()))(t))
	})
	must.Do(t, p.Close())
}

// TestForgottenPool: of a pool that becomes garbage the items are closed, and neither then nor after Close does its timer keep
// anything alive.
func TestForgottenPool(t *testing.T) {
	eachSize(t, func(t *testing.T, v pool.Variant, maxIdle int) {
		for _, closes := range []bool{false, true} {
			var n atomic.Int64
			kept := func() weak.Pointer[maker] {
				m := new(maker)
				cfg := m.config(maxIdle)
				cfg.IdleTime, cfg.Close = time.Hour, func(x *probe) { m.close(x); n.Add(1) }
				p := must.Get(pool.NewVariant(v, cfg))(t)
				give(p, take(t, p, 7))
				if n.Load() != 0 {
					t.Fatalf("%d items closed too early", n.Load())
				}
				if closes {
					p.Close()
				}
				return weak.Make(m)
			}()
			eventually(t, "the items to be closed", func() bool { return n.Load() == 7 })
			eventually(t, "the timer to be stopped", func() bool { return kept.Value() == nil })
		}
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
