package pool_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/penstock/penstock/pool"
	"pgregory.net/rapid"
)

// TestModel compares a pool with a simple model of it, one operation at a time.
// On one processor the model is exact. On several it cannot know which item Get
// finds, nor whether it finds one that another processor holds on to.
func TestModel(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for name, procs := range map[string]int{"one": 1, "several": 4} {
			t.Run(name, func(t *testing.T) {
				setProcs(t, procs)
				rapid.Check(t, func(t *rapid.T) {
					m := newModel(t, v, procs == 1)
					t.Repeat(map[string]func(*rapid.T){
						"get":     m.get,
						"tryGet":  m.tryGet,
						"put":     m.put,
						"putMany": m.putMany,
						"discard": m.discard,
						"sweep":   m.sweep,
						"trim":    m.trim,
						"close":   m.closePool,
						"":        m.check,
					})
					for _, x := range m.out {
						m.p.Put(x)
					}
					m.p.Close()
					if m.maker.closed.Load() != m.made.Load() {
						t.Fatal("an item was lost")
					}
				})
			})
		}
	})
}

type model struct {
	maker
	p     *pool.Pool[*probe]
	exact bool

	maxIdle, minIdle int
	interval         int64
	out              []*probe
	idle             map[*probe]int64 // the interval in which it was put
	ended            bool

	evictions, discards, overflows int64
}

func newModel(t *rapid.T, v pool.Variant, exact bool) *model {
	m := &model{exact: exact, idle: map[*probe]int64{}}
	m.maxIdle = rapid.SampledFrom([]int{1, 2, 3, 10, 70, 150, 1000}).Draw(t, "MaxIdle")
	m.minIdle = min(rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "MinIdle"), m.maxIdle)
	cfg := m.config(m.maxIdle)
	cfg.MinIdle = m.minIdle
	p, err := pool.NewVariant(v, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.p = p
	return m
}

// took moves x, which came from the pool, into the caller's hands.
func (m *model) took(t *rapid.T, x *probe, made bool) {
	_, known := m.idle[x]
	switch {
	case known == made:
		t.Fatalf("made %v, was idle %v", made, known)
	case m.exact && made && len(m.idle) > 0:
		t.Fatalf("an item was made while %d were idle", len(m.idle))
	}
	delete(m.idle, x)
	m.maker.got(x)
	m.out = append(m.out, x)
}

func (m *model) get(t *rapid.T) {
	made := m.made.Load()
	x, err := m.p.Get(context.Background())
	if err != nil {
		if !m.ended {
			t.Fatal(err)
		}
		return
	}
	m.took(t, x, m.made.Load() > made)
}

func (m *model) tryGet(t *rapid.T) {
	if x, ok := m.p.TryGet(); ok {
		m.took(t, x, false)
	} else if m.exact && len(m.idle) > 0 {
		t.Fatalf("nothing found where %d are idle", len(m.idle))
	}
}

// hand takes an item out of the caller's hands.
func (m *model) hand(t *rapid.T) *probe {
	if len(m.out) == 0 {
		t.Skip("no item out")
	}
	i := rapid.IntRange(0, len(m.out)-1).Draw(t, "item")
	x := m.out[i]
	m.out[i] = m.out[len(m.out)-1]
	m.out = m.out[:len(m.out)-1]
	return x
}

func (m *model) put(t *rapid.T) { m.putOne(t, m.hand(t)) }

func (m *model) putOne(t *rapid.T, x *probe) {
	m.gives(x, 0)
	m.p.Put(x)
	full := m.ended || len(m.idle) == m.maxIdle
	if (x.state.Load() == closed) != full {
		t.Fatalf("closed %v with %d of %d idle", !full, len(m.idle), m.maxIdle)
	}
	if full {
		m.overflows++
		return
	}
	m.idle[x] = m.interval
	if !m.exact {
		runtime.Gosched()
	}
}

// putMany takes and gives back enough for the depot to be used.
func (m *model) putMany(t *rapid.T) {
	if m.ended {
		t.Skip("closed")
	}
	first := len(m.out)
	for range rapid.IntRange(1, 250).Draw(t, "n") {
		m.get(t)
	}
	xs := m.out[first:]
	m.out = m.out[:first:first]
	for _, x := range xs {
		m.putOne(t, x)
	}
}

func (m *model) discard(t *rapid.T) {
	x := m.hand(t)
	m.p.Discard(x)
	m.discards++
	if x.state.Load() != closed {
		t.Fatal("not closed")
	}
}

// sweep closes items that were put before this interval, as long as more than
// MinIdle remain.
func (m *model) sweep(t *rapid.T) {
	old := 0
	for _, since := range m.idle {
		if since < m.interval {
			old++
		}
	}
	want := max(min(old, len(m.idle)-m.minIdle), 0)
	if n := m.p.Sweep(); n != want {
		t.Fatalf("Sweep = %d where %d of %d are old, %d have to stay", n, old, len(m.idle), m.minIdle)
	}
	m.evicted(t, want, m.interval)
	m.interval++
}

func (m *model) trim(t *rapid.T) {
	keep := rapid.IntRange(-1, 200).Draw(t, "keep")
	want := max(len(m.idle)-max(keep, 0), 0)
	if n := m.p.Trim(keep); n != want {
		t.Fatalf("Trim = %d with %d idle", n, len(m.idle))
	}
	m.evicted(t, want, m.interval+1)
}

// evicted verifies that n items, put before an interval, have been closed.
func (m *model) evicted(t *rapid.T, n int, before int64) {
	m.evictions += int64(n)
	for x, since := range m.idle {
		if x.state.Load() != closed {
			continue
		}
		if n--; since >= before {
			t.Fatal("an item was closed before its time")
		}
		delete(m.idle, x)
	}
	if n != 0 {
		t.Fatalf("%d items were counted and not closed", n)
	}
}

func (m *model) closePool(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		t.Skip("not yet")
	}
	m.p.Close()
	m.ended = true
	for x := range m.idle {
		if x.state.Load() != closed {
			t.Fatal("an idle item was not closed")
		}
	}
	clear(m.idle)
}

func (m *model) check(t *rapid.T) {
	if what := m.wrong.Load(); what != nil {
		t.Fatal(*what)
	}
	if err := m.p.Check(); err != nil {
		t.Fatal(err)
	}
	st := m.p.Stats()
	if st.Idle != int64(len(m.idle)) || st.Live != int64(len(m.out)) ||
		st.Made != m.made.Load() || st.Closed != m.maker.closed.Load() ||
		st.Evictions != m.evictions || st.Discards != m.discards || st.Overflows != m.overflows {
		t.Fatalf("%d idle, %d out: %+v", len(m.idle), len(m.out), st)
	}
}
