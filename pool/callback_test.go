package pool_test

import (
	"context"
	"testing"

	"github.com/penstock/penstock/pool"
)

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

func TestPanickingNew(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		cfg := m.config(0)
		bad := true
		cfg.New = func(context.Context) (*probe, error) {
			if bad {
				panic("new")
			}
			return m.new(context.Background())
		}
		p := newPool(t, v, cfg)
		if !panics(func() { p.Get(context.Background()) }) {
			t.Error("the panic was swallowed")
		}
		bad = false
		p.Put(get(t, p))
		if st := p.Stats(); st.Made != 1 || st.Live != 0 || st.Idle != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPanickingReset(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		cfg := m.config(0)
		cfg.Reset = func(*probe) bool { panic("reset") }
		p := newPool(t, v, cfg)
		x := get(t, p)
		if !panics(func() { p.Put(x) }) {
			t.Error("the panic was swallowed")
		}
		if st := p.Stats(); x.state.Load() != closed || st.Closed != 1 || st.Live != 0 {
			t.Errorf("%+v", st)
		}
	})
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
