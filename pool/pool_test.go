package pool_test

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"weak"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/pool"
)

// scatter runs f, mostly in another goroutine, hence often on another P.
func scatter(i int, f func()) {
	if i%7 == 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	<-done
}

func TestDefaultBound(t *testing.T) {
	var m maker
	p := newPool(t, pool.Variants()[0], m.config(0))
	give(p, take(t, p, pool.DefaultMaxIdle+1))
	if st := p.Stats(); st.Idle != pool.DefaultMaxIdle {
		t.Errorf("%+v", st)
	}
}

func TestStealBeforeNew(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		setProcs(t, 4)
		var m maker
		p := newPool(t, v, m.config(4000))
		const n = 1000
		for range 20 {
			give(p, take(t, p, n))
			var xs []*probe
			for i := range n {
				scatter(i, func() { xs = append(xs, get(t, p)) })
			}
			give(p, xs)
		}
		// Some thefts of less than half a magazine are not worth it.
		if made := m.made.Load(); made > n+n/10 {
			t.Errorf("%d items made where %d were needed", made, n)
		}
	})
}

func TestResetRefuses(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		cfg := m.config(0)
		keep := true
		cfg.Reset = func(*probe) bool { return keep }
		p := newPool(t, v, cfg)
		x, y := get(t, p), get(t, p)
		p.Put(x)
		keep = false
		p.Put(y)
		if x.state.Load() == closed || y.state.Load() != closed {
			t.Error("the wrong one is closed")
		}
		if st := p.Stats(); st != (pool.Stats{Made: 2, Closed: 1, Idle: 1, Misses: 2, Refusals: 1}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestCloseMeetsNew closes the pool while an item is being made: Get fails as if it had been called after that, and the item is closed.
func TestCloseMeetsNew(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		var p *pool.Pool[*probe]
		cfg := m.config(0)
		cfg.New = func(context.Context) (*probe, error) {
			p.Close()
			return m.new(context.Background())
		}
		for _, maxOpen := range []int{0, 1} {
			cfg.MaxOpen = maxOpen
			p = newPool(t, v, cfg)
			if x, err := p.Get(context.Background()); !errors.Is(err, pool.ErrClosed) || x != nil {
				t.Errorf("MaxOpen %d: Get returns %v, %v", maxOpen, x, err)
			}
			if s := p.Stats(); s.Made != 1 || s.Closed != 1 || s.Live != 0 {
				t.Errorf("MaxOpen %d: %+v", maxOpen, s)
			}
		}
		if m.closed.Load() != 2 {
			t.Errorf("%d items were closed, want 2", m.closed.Load())
		}
	})
}

func TestNewFails(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		p := newPool(t, v, pool.Config[int]{New: func(context.Context) (int, error) { return 7, io.ErrNoProgress }})
		for range 3 {
			x, err := p.Get(context.Background())
			if x != 0 || !errors.Is(err, io.ErrNoProgress) || !strings.HasPrefix(err.Error(), "penstock: pool: get: ") {
				t.Errorf("Get = %v, %v", x, err)
			}
		}
		if st := p.Stats(); st != (pool.Stats{Misses: 3}) {
			t.Errorf("%+v", st)
		}
	})
}

// TestItemsAreForgotten verifies that the pool does not keep items alive that
// have left it.
func TestItemsAreForgotten(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		p := newPool(t, v, pool.Config[*[64]int]{New: func(context.Context) (*[64]int, error) { return new([64]int), nil }})
		xs := take(t, p, 300)
		var weaks []weak.Pointer[[64]int]
		for _, x := range xs {
			weaks = append(weaks, weak.Make(x))
		}
		give(p, xs)
		clear(xs)
		take(t, p, 150)
		p.Sweep()
		p.Sweep()
		p.Beyond(func(x *[64]int) {
			if x != nil {
				t.Error("a magazine holds on to an item that is gone")
			}
		})
		eventually(t, "items to be collected", func() bool {
			for _, w := range weaks {
				if w.Value() != nil {
					return false
				}
			}
			return true
		})
		runtime.KeepAlive(p)
	})
}

func TestNothingAllocates(t *testing.T) {
	if pool.Invariants {
		t.Skip("the invariants build remembers items in a map")
	}
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{8, 4000} {
			var m maker
			p := newPool(t, v, m.config(maxIdle))
			xs := take(t, p, min(1000, maxIdle))
			for name, f := range map[string]func(){
				"a pair": func() {
					x, _ := p.Get(context.Background())
					p.Put(x)
				},
				"overflow": func() {
					for i := range xs {
						xs[i], _ = p.Get(context.Background())
					}
					give(p, xs)
				},
				"Stats": func() { p.Stats() },
			} {
				give(p, xs)
				f()
				if n := testing.AllocsPerRun(50, f); n != 0 {
					t.Errorf("MaxIdle %d: %s: %v allocations", maxIdle, name, n)
				}
				for i := range xs {
					xs[i], _ = p.Get(context.Background())
				}
			}
		}
	})
}

func TestShardFillsCacheLines(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the size is right for 64-bit words")
	}
	for _, n := range []uintptr{pool.ShardSize[int](), pool.ShardSize[*probe](), pool.ShardSize[[]byte]()} {
		if n != 128 {
			t.Errorf("a shard has %d bytes", n)
		}
	}
}

// TestCallbacksMayCallThePool uses the pool in every way from within its own
// functions.
func TestCallbacksMayCallThePool(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{2, 2000} {
			var m maker
			var p *pool.Pool[*probe]
			depth := 0
			use := func() {
				if depth > 0 {
					return
				}
				depth++
				defer func() { depth-- }()
				p.Stats()
				x := get(t, p)
				p.Put(x)
				y, ok := p.TryGet()
				if ok {
					p.Discard(y)
				}
				p.Sweep()
				p.Trim(1)
			}
			p = newPool(t, v, pool.Config[*probe]{
				New:     func(context.Context) (*probe, error) { use(); return m.new(context.Background()) },
				Close:   func(x *probe) { use(); m.close(x) },
				Reset:   func(*probe) bool { use(); return true },
				MaxIdle: maxIdle,
			})
			for range 3 {
				give(p, take(t, p, 5))
				p.Trim(0)
			}
			p.Close()
			if made := m.made.Load(); made == 0 || m.closed.Load() != made {
				t.Errorf("%d of %d closed", m.closed.Load(), made)
			}
			m.verify(t)
		}
	})
}

// panics reports whether f panics.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// TestPanickingClose has every other Close panic: all items are closed, the first
// panic to the last one is the caller's, and the pool is as good as before.
func TestPanickingClose(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{10, 2000} {
			var m maker
			cfg := m.config(maxIdle)
			n := 0
			cfg.Close = func(x *probe) {
				m.close(x)
				if n++; n%2 == 0 {
					panic("close")
				}
			}
			p := newPool(t, v, cfg)
			for what, f := range map[string]func(){
				"Trim":  func() { p.Trim(0) },
				"Sweep": func() { p.Sweep() },
			} {
				before := m.closed.Load()
				give(p, take(t, p, 10))
				panics(func() { p.Sweep() }) // nothing to close yet
				if !panics(f) {
					t.Errorf("%s: the panic was swallowed", what)
				}
				if got := m.closed.Load() - before; got != 10 {
					t.Errorf("%s: %d of 10 closed", what, got)
				}
			}
			if st := p.Stats(); st.Made != st.Closed || st.Idle != 0 {
				t.Errorf("%+v", st)
			}
			m.verify(t)
		}
	})
}

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

	maxIdle  int
	interval int64
	out      []*probe
	idle     map[*probe]int64 // the interval in which it was put
	ended    bool

	evictions, discards, overflows int64
}

func newModel(t *rapid.T, v pool.Variant, exact bool) *model {
	m := &model{exact: exact, idle: map[*probe]int64{}}
	m.maxIdle = rapid.SampledFrom([]int{1, 2, 3, 10, 70, 150, 1000}).Draw(t, "MaxIdle")
	p := must.Get(pool.NewVariant(v, m.config(m.maxIdle)))(t)
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
	if m.ended {
		must.Is(t, err, os.ErrClosed)
		return
	}
	must.Do(t, err)
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

// sweep closes items that were put before this interval.
func (m *model) sweep(t *rapid.T) {
	old := 0
	for _, since := range m.idle {
		if since < m.interval {
			old++
		}
	}
	if n := m.p.Sweep(); n != old {
		t.Fatalf("Sweep = %d where %d of %d are old", n, old, len(m.idle))
	}
	m.evicted(t, old, m.interval)
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
	must.Do(t, m.p.Close())
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
	must.Do(t, m.p.Check())
	st := m.p.Stats()
	if st.Idle != int64(len(m.idle)) || st.Live != int64(len(m.out)) ||
		st.Made != m.made.Load() || st.Closed != m.maker.closed.Load() ||
		st.Evictions != m.evictions || st.Discards != m.discards || st.Overflows != m.overflows {
		t.Fatalf("%d idle, %d out: %+v", len(m.idle), len(m.out), st)
	}
}

func mustNew[T any](t *testing.T, cfg pool.Config[T]) *pool.Pool[T] {
	t.Helper()
	p := must.Get(pool.New(cfg))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// TestGetHandsItsContext: New gets the context of Get.
func TestGetHandsItsContext(t *testing.T) {
	t.Parallel()
	p := mustNew(t, pool.Config[string]{New: func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrProcessDone)
	must.Fail(p.Get(ctx))(t, os.ErrProcessDone)
}

// TestZero: the zero Pool is a closed one, and the methods of a nil Pool can be recovered from.
func TestZero(t *testing.T) {
	t.Parallel()
	var p pool.Pool[*int]
	must.Fail(p.Get(t.Context()))(t, pool.ErrClosed)
	if _, ok := p.TryGet(); ok || p.Sweep() != 0 || p.Trim(0) != 0 {
		t.Error("there is something in a zero Pool")
	}
	if !pool.Invariants {
		p.Put(new(int))
		p.Discard(new(int))
	}
	if s := p.Stats(); s.Idle != 0 {
		t.Errorf("%+v", s)
	}
	must.Do(t, p.Close())
	var none *pool.Pool[*int]
	for name, f := range map[string]func(){
		"Get":    func() { _, _ = none.Get(t.Context()) },
		"TryGet": func() { none.TryGet() },
		"Put":    func() { none.Put(nil) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
	}
}

// TestConfig: what makes no sense is refused.
func TestConfig(t *testing.T) {
	none := func(context.Context) (int, error) { return 0, nil }
	for want, cfg := range map[string]pool.Config[int]{
		"New is nil":                     {},
		"new: IdleTime is -1ns: write":   {New: none, IdleTime: -1},
		"new: MaxOpen is -1: write":      {New: none, MaxOpen: -1},
		"MaxIdle is 3 and MaxOpen is 2:": {New: none, MaxIdle: 3, MaxOpen: 2},
	} {
		if _, err := pool.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, cfg := range []pool.Config[int]{
		{New: none, MaxIdle: -1, MaxOpen: 1}, {New: none, MaxIdle: 2, MaxOpen: 2}, {New: none, MaxIdle: math.MaxInt, MaxOpen: math.MaxInt},
	} {
		p := mustNew(t, cfg)
		p.Put(get(t, p))
		if err := p.Check(); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestGetWithoutContext: a nil ctx is refused whether an item is idle, has to be made, or has to be waited for.
func TestGetWithoutContext(t *testing.T) {
	t.Parallel()
	var none context.Context
	for _, maxOpen := range []int{0, 1} {
		p := mustNew(t, pool.Config[int]{New: func(context.Context) (int, error) { return 1, nil }, MaxOpen: maxOpen})
		refused := func(when string) {
			t.Helper()
			if _, err := p.Get(none); !errors.Is(err, os.ErrInvalid) || !strings.Contains(err.Error(), "ctx is nil") {
				t.Errorf("MaxOpen %d, %s: %v", maxOpen, when, err)
			}
		}
		refused("none is idle")
		x := get(t, p)
		refused("one is out")
		p.Put(x)
		refused("one is idle")
	}
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(pool.Pool[int]), new(pool.Stats))
}
