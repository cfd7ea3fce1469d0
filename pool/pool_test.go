package pool_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"weak"

	"github.com/penstock/penstock/pool"
)

func TestNewNeedsNew(t *testing.T) {
	if _, err := pool.New(pool.Config[int]{}); err == nil {
		t.Error("a pool that cannot make items")
	}
}

func TestGetReturnsWhatWasPut(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{1, 2, 3, 100, 5000} {
			var m maker
			p := newPool(t, v, m.config(maxIdle))
			x := get(t, p)
			for i := range 20 {
				p.Put(x)
				scatter(i, func() {
					if y := get(t, p); y != x {
						t.Errorf("MaxIdle %d: another item", maxIdle)
					}
				})
			}
			if y, ok := p.TryGet(); ok {
				t.Fatalf("MaxIdle %d: TryGet made %v", maxIdle, y)
			}
			p.Put(x)
		}
	})
}

// TestBoundIsExact fills the pool from a goroutine that moves: the slots that
// other processors have reserved must come back to the last.
func TestBoundIsExact(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		setProcs(t, 6)
		for _, maxIdle := range []int{-1, 1, 2, 3, 5, 17, 99, 100, 101, 1000, 3333} {
			var m maker
			p := newPool(t, v, m.config(maxIdle))
			want := max(maxIdle, 0)
			xs := take(t, p, want+10)
			for i, x := range xs {
				scatter(i, func() { p.Put(x) })
				idle := int64(min(i+1, want))
				if i%97 == 0 || i >= want-2 {
					if st := p.Stats(); st.Idle != idle || st.Overflows != int64(i+1)-idle {
						t.Fatalf("MaxIdle %d: after %d Puts: %+v", maxIdle, i+1, st)
					}
				}
			}
			if n := m.closed.Load(); n != 10 {
				t.Errorf("MaxIdle %d: %d of 10 closed", maxIdle, n)
			}
		}
	})
}

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

func TestDiscard(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		p := newPool(t, v, m.config(0))
		x := get(t, p)
		p.Discard(x)
		if x.state.Load() != closed {
			t.Error("not closed")
		}
		if st := p.Stats(); st != (pool.Stats{Made: 1, Closed: 1, Misses: 1, Discards: 1}) {
			t.Errorf("%+v", st)
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

func TestTrim(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{20, 2000} {
			var m maker
			p := newPool(t, v, m.config(maxIdle))
			n := maxIdle / 2
			give(p, take(t, p, n))
			for _, tt := range []struct{ keep, closed int }{
				{n + 1, 0}, {n, 0}, {n - 3, 3}, {3, n - 6}, {0, 3}, {-1, 0},
			} {
				if got := p.Trim(tt.keep); got != tt.closed {
					t.Errorf("Trim(%d) = %d, want %d", tt.keep, got, tt.closed)
				}
			}
			if st := p.Stats(); st.Evictions != int64(n) || m.closed.Load() != int64(n) {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestClose(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{20, 2000} {
			var m maker
			p := newPool(t, v, m.config(maxIdle))
			xs := take(t, p, 10)
			give(p, xs[:5])
			for range 2 {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				if n := m.closed.Load(); n != 5 {
					t.Errorf("%d closed, want the 5 idle ones", n)
				}
			}
			if _, err := p.Get(context.Background()); !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
			if _, ok := p.TryGet(); ok {
				t.Error("TryGet found something")
			}
			give(p, xs[5:9])
			p.Discard(xs[9])
			if n := m.closed.Load(); n != 10 {
				t.Errorf("%d closed, want 10", n)
			}
			if n := p.Sweep() + p.Trim(0); n != 0 {
				t.Errorf("%d items in a closed pool", n)
			}
		}
	})
}

// TestCloseMeetsNew closes the pool while an item is being made: the item is the
// caller's, and closed when it is put.
func TestCloseMeetsNew(t *testing.T) {
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		var m maker
		var p *pool.Pool[*probe]
		cfg := m.config(0)
		cfg.New = func(context.Context) (*probe, error) {
			p.Close()
			return m.new(context.Background())
		}
		p = newPool(t, v, cfg)
		x := get(t, p)
		p.Put(x)
		if x.state.Load() != closed {
			t.Error("not closed")
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

func TestVetReportsCopies(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command: ", err)
	}
	out, err := exec.Command(goTool, "vet", "./testdata/copied").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "copies lock value") {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
