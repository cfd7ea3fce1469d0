package pool_test

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/pool"
)

// TestStatsAreMonotonic takes snapshots during operations: no counter falls, and
// each snapshot is consistent. At rest it equals the counts of the callers.
func TestStatsAreMonotonic(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		setProcs(t, 4)
		var m maker
		p := newPool(t, v, m.config(500))
		var stop atomic.Bool
		var gets, failed atomic.Int64
		var done sync.WaitGroup
		for w := range 4 {
			done.Go(func() {
				for !stop.Load() {
					xs := take(t, p, 10+w)
					gets.Add(int64(len(xs)))
					give(p, xs)
					if x, ok := p.TryGet(); ok {
						gets.Add(1)
						p.Discard(x)
					} else {
						failed.Add(1)
					}
				}
			})
		}
		var last pool.Stats
		for i := range 300 {
			st := p.Stats()
			if st.Made != st.Closed+st.Live+st.Idle || st.Live < 0 || st.Live > 60 {
				t.Errorf("inconsistent: %+v", st)
			}
			if name := fallen(last, st); name != "" {
				t.Errorf("%s fell: %+v, then %+v", name, last, st)
			}
			last = st
			if i%10 == 0 {
				p.Sweep()
			}
		}
		stop.Store(true)
		done.Wait()
		st := p.Stats()
		if st.Live != 0 || st.Made != m.made.Load() || st.Closed != m.closed.Load() {
			t.Errorf("at rest: %+v; made %d, closed %d", st, m.made.Load(), m.closed.Load())
		}
		// A Get that misses makes an item.
		if hits, misses := gets.Load()-st.Made, st.Made+failed.Load(); st.Hits != hits || st.Misses != misses {
			t.Errorf("hits %d, misses %d: %+v", hits, misses, st)
		}
		if st.Closed != st.Evictions+st.Discards+st.Refusals+st.Overflows {
			t.Errorf("reasons do not add up: %+v", st)
		}
	})
}

// fallen names a counter that is lower in y than in x.
func fallen(x, y pool.Stats) string {
	a, b := reflect.ValueOf(x), reflect.ValueOf(y)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if name != "Live" && name != "Idle" && b.Field(i).Int() < a.Field(i).Int() {
			return name
		}
	}
	return ""
}
