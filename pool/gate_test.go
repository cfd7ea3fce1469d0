package pool_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/pool"
)

// numbers makes the numbers from 1 on, and counts those that are open.
type numbers struct {
	made, open, most atomic.Int64
}

func (n *numbers) new(context.Context) (int64, error) {
	open := n.open.Add(1)
	for most := n.most.Load(); open > most && !n.most.CompareAndSwap(most, open); most = n.most.Load() {
	}
	return n.made.Add(1), nil
}

func (n *numbers) close(int64) { n.open.Add(-1) }

// TestMaxOpen: callers that find MaxOpen items out wait in a queue. An item that is put goes to the first of
// them, the place of one that is discarded too, and a caller whose context has ended is passed over.
func TestMaxOpen(t *testing.T) {
	t.Parallel()
	for _, maxIdle := range []int{0, -1} { // an item goes to a caller that waits for it although none may be idle
		synctest.Test(t, func(t *testing.T) { testMaxOpen(t, maxIdle) })
	}
}

func testMaxOpen(t *testing.T, maxIdle int) {
	var n numbers
	p := mustNew(t, pool.Config[int64]{New: n.new, Close: n.close, MaxOpen: 2, MaxIdle: maxIdle})
	ctx := t.Context()
	for want := range int64(2) {
		if x, err := p.Get(ctx); x != want+1 || err != nil {
			t.Fatal(x, err)
		}
	}
	if x, ok := p.TryGet(); ok {
		t.Errorf("TryGet: %d, a third one", x)
	}
	type result struct {
		caller int
		x      int64
		err    error
	}
	results := make(chan result, 10)
	wait := func(ctx context.Context, caller int) {
		go func() {
			x, err := p.Get(ctx)
			results <- result{caller, x, err}
		}()
		synctest.Wait() // it is in the queue
	}
	expect := func(caller int, x int64, target error) {
		t.Helper()
		synctest.Wait()
		select {
		case r := <-results:
			if r.caller != caller || r.x != x || !errors.Is(r.err, target) {
				t.Errorf("caller %d got %d, %v; want caller %d to get %d, %v", r.caller, r.x, r.err, caller, x, target)
			}
		default:
			t.Errorf("caller %d waits", caller)
		}
		if len(results) > 0 {
			t.Errorf("caller %d got something as well", (<-results).caller)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	wait(ctx, 1)
	wait(short, 2)
	wait(ctx, 3)
	wait(ctx, 4)
	p.Put(1)
	expect(1, 1, nil)
	time.Sleep(time.Second)
	expect(2, 0, context.DeadlineExceeded)
	p.Discard(2)
	expect(3, 3, nil)
	p.Put(1)
	expect(4, 1, nil)
	wait(ctx, 5)
	p.Close()
	expect(5, 0, pool.ErrClosed)
	if _, err := p.Get(ctx); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	p.Put(1)
	p.Put(3)
	if s := p.Stats(); n.most.Load() != 2 || n.open.Load() != 0 || s.Waits != 5 || s.Live != 0 {
		t.Errorf("%d open at a time, %d now; %+v", n.most.Load(), n.open.Load(), s)
	}
}

// TestPanics: a function of Config that panics has its panic come to the caller, closes what it was about, and takes no place away.
func TestPanics(t *testing.T) {
	t.Parallel()
	for _, maxOpen := range []int{0, 1} {
		testPanics(t, maxOpen)
	}
}

func testPanics(t *testing.T, maxOpen int) {
	fail := false
	may := func() {
		if fail {
			panic("as told")
		}
	}
	var n numbers
	p := mustNew(t, pool.Config[int64]{
		New:     func(ctx context.Context) (int64, error) { may(); return n.new(ctx) },
		Close:   func(x int64) { n.close(x); may() },
		Reset:   func(int64) bool { may(); return true },
		Check:   func(int64) bool { may(); return true },
		MaxOpen: maxOpen,
	})
	get := func() int64 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return must.Get(p.Get(ctx))(t)
	}
	for name, f := range map[string]func(){
		"New":     func() { fail = true; get() },
		"Reset":   func() { x := get(); fail = true; p.Put(x) },
		"Check":   func() { p.Put(get()); fail = true; get() },
		"TryGet":  func() { p.Put(get()); fail = true; p.TryGet() },
		"Discard": func() { x := get(); fail = true; p.Discard(x) },
		"Trim":    func() { p.Put(get()); fail = true; p.Trim(0) },
	} {
		if !panics(f) {
			t.Errorf("%s: no panic", name)
		}
		fail = false
		p.Discard(get())
	}
	if s := p.Stats(); n.most.Load() != 1 || n.open.Load() != 0 || s.Live != 0 || s.Made != s.Closed {
		t.Errorf("%d open at a time, %d now; %+v", n.most.Load(), n.open.Load(), s)
	}
}

// TestMaxOpenStress: many callers, some of which give up, with items that are refused in every way, never have more
// than MaxOpen items open; none waits for ever, and in the end all places are free.
func TestMaxOpenStress(t *testing.T) {
	t.Parallel()
	errNone := errors.New("none")
	for _, maxIdle := range []int{-1, 1, 0} {
		const maxOpen = 3
		var n numbers
		var m maker
		chance := func(of int) bool { return rand.IntN(of) == 0 }
		p := mustNew(t, pool.Config[*probe]{
			New: func(ctx context.Context) (*probe, error) {
				if chance(8) {
					return nil, errNone
				}
				_, _ = n.new(ctx)
				return m.new(ctx)
			},
			Close:   func(x *probe) { m.close(x); n.close(0) },
			Reset:   func(*probe) bool { return !chance(8) },
			Check:   func(*probe) bool { return !chance(8) },
			MaxOpen: maxOpen,
			MaxIdle: maxIdle,
		})
		var callers sync.WaitGroup
		for i := range 12 {
			callers.Go(func() {
				for range 2000 {
					ctx, cancel := context.WithCancel(t.Context())
					if i%3 == 0 {
						time.AfterFunc(time.Duration(rand.IntN(50))*time.Microsecond, cancel)
					}
					x, err := p.Get(ctx)
					if err == nil {
						m.got(x)
					}
					runtime.Gosched() // others find it out
					switch {
					case err == nil && chance(8):
						p.Discard(x)
					case err == nil:
						m.gives(x, 0)
						p.Put(x)
					case !errors.Is(err, errNone) && !errors.Is(err, context.Canceled):
						t.Error(err)
					}
					cancel()
					if chance(50) {
						p.Trim(rand.IntN(2))
					}
				}
			})
		}
		callers.Wait()
		var xs []*probe
		for len(xs) < maxOpen {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			x, err := p.Get(ctx)
			cancel()
			if err == nil {
				xs = append(xs, x)
			} else if !errors.Is(err, errNone) {
				t.Fatalf("%d of %d places are lost: %v", maxOpen-len(xs), maxOpen, err)
			}
		}
		if _, ok := p.TryGet(); ok || n.most.Load() > maxOpen {
			t.Errorf("%d open at a time, want %d; another one: %v", n.most.Load(), maxOpen, ok)
		}
		if s := p.Stats(); s.Waits == 0 || s.Live != maxOpen {
			t.Errorf("%+v", s)
		}
		give(p, xs)
		p.Close()
		m.verify(t)
		if n.open.Load() != 0 {
			t.Errorf("%d are open after Close", n.open.Load())
		}
	}
}

// TestCheck: an idle item that Check refuses is closed, and the next one taken, by Get and by TryGet.
func TestCheck(t *testing.T) {
	t.Parallel()
	eachVariant(t, func(t *testing.T, v pool.Variant) {
		for _, maxIdle := range []int{4, 1000} {
			var n numbers
			bad := int64(0)
			p := newPool(t, v, pool.Config[int64]{
				New: n.new, Close: n.close, MaxIdle: maxIdle,
				Check: func(x int64) bool { return x != bad },
			})
			give(p, take(t, p, 3))
			var got []int64
			for bad = 1; ; {
				x, ok := p.TryGet()
				if !ok {
					break
				}
				got = append(got, x)
			}
			if len(got) != 2 || n.open.Load() != 2 {
				t.Errorf("MaxIdle %d: TryGet has %v, %d are open; want 2", maxIdle, got, n.open.Load())
			}
			p.Put(got[0])
			bad = got[0]
			if x := get(t, p); x != 4 {
				t.Errorf("MaxIdle %d: Get has %d, want a new one", maxIdle, x)
			}
			if s := p.Stats(); s.Refusals != 2 || s.Closed != 2 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestLargeItems: an item may be too large for a channel, and is handed to a caller that waits all the same.
func TestLargeItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := mustNew(t, pool.Config[[1 << 16]byte]{New: func(context.Context) (x [1 << 16]byte, err error) { x[1<<16-1] = 1; return x, nil }, MaxOpen: 1})
		x := get(t, p)
		x[0] = 2
		go func() { synctest.Wait(); p.Put(x) }()
		if y := get(t, p); y != x || p.Stats().Made != 1 {
			t.Errorf("another item: %+v", p.Stats())
		}
	})
}
