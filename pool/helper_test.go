package pool_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

func TestMain(m *testing.M) { leak.Main(m) }

// eachVariant runs a test for each way of entering shards, with one and with
// several processors.
func eachVariant(t *testing.T, f func(t *testing.T, v pool.Variant)) {
	for _, v := range pool.Variants() {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

// setProcs sets GOMAXPROCS until the test has ended.
func setProcs(t *testing.T, n int) {
	old := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

// A probe is an item that notices when it is used wrongly.
type probe struct {
	state atomic.Int32
	since atomic.Int64 // the interval in which it was put
}

const (
	out int32 = iota
	idle
	closed
)

// A maker makes probes and knows all of them. It is the Config of their pool.
type maker struct {
	made   atomic.Int64
	closed atomic.Int64
	wrong  atomic.Pointer[string] // the first thing that went wrong
}

func (m *maker) config(maxIdle int) pool.Config[*probe] {
	return pool.Config[*probe]{New: m.new, Close: m.close, MaxIdle: maxIdle}
}

func (m *maker) new(context.Context) (*probe, error) { m.made.Add(1); return new(probe), nil }

func (m *maker) close(x *probe) {
	if x.state.Swap(closed) == closed {
		m.fail("an item was closed twice")
	}
	m.closed.Add(1)
}

// fail notes the first failure.
func (m *maker) fail(what string) { m.wrong.CompareAndSwap(nil, &what) }

// got is to be called with each item that Get returned.
func (m *maker) got(x *probe) {
	switch {
	case x == nil:
		m.fail("Get returned a zero item")
	case x.state.CompareAndSwap(idle, out):
	case x.state.Load() == closed:
		m.fail("Get returned a closed item")
	}
}

// gives is to be called before Put.
func (m *maker) gives(x *probe, interval int64) {
	x.since.Store(interval)
	if !x.state.CompareAndSwap(out, idle) {
		m.fail("an item was in two hands")
	}
}

// verify fails the test if anything went wrong.
func (m *maker) verify(t *testing.T) {
	t.Helper()
	if what := m.wrong.Load(); what != nil {
		t.Fatal(*what)
	}
}

func newPool[T any](t testing.TB, v pool.Variant, cfg pool.Config[T]) *pool.Pool[T] {
	t.Helper()
	p := must.Get(pool.NewVariant(v, cfg))(t)
	t.Cleanup(func() {
		p.Close()
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func get[T any](t testing.TB, p *pool.Pool[T]) T {
	t.Helper()
	return must.Get(p.Get(context.Background()))(t)
}

func take[T any](t testing.TB, p *pool.Pool[T], n int) []T {
	t.Helper()
	xs := make([]T, n)
	for i := range xs {
		xs[i] = get(t, p)
	}
	return xs
}

func give[T any](p *pool.Pool[T], xs []T) {
	for _, x := range xs {
		p.Put(x)
	}
}

// eventually waits for a condition that collections or other goroutines bring
// about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	condition.Await(t, what, func() bool { runtime.GC(); return ok() })
}
