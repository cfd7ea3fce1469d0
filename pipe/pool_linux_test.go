package pipe_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/pipe"
)

// newPool makes a pool that is closed when the test ends. By then everything must
// have come back.
func newPool(t testing.TB, cfg *pipe.Config) *pipe.Pool {
	t.Helper()
	pl, err := pipe.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pl.Close(); err != nil {
			t.Error(err)
		}
		if s := pl.Stats(); s.UsedPages != 0 || s.Leased != 0 || s.Idle != 0 || s.Made != s.Closed {
			t.Errorf("after Close: %+v", s)
		}
	})
	return pl
}

func get(t testing.TB, pl *pipe.Pool, size int) *pipe.Pipe {
	t.Helper()
	p, err := pl.Get(size)
	if err != nil {
		t.Fatal(err)
	}
	if p.Len() != 0 || p.Size() < size {
		t.Fatalf("Get(%d) lent %d bytes with %d inside", size, p.Size(), p.Len())
	}
	return p
}

// wantStats compares the fields of want that are not zero.
func wantStats(t testing.TB, pl *pipe.Pool, want pipe.Stats) {
	t.Helper()
	got := pl.Stats()
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"Made", got.Made, want.Made},
		{"Reused", got.Reused, want.Reused},
		{"Closed", got.Closed, want.Closed},
		{"Dirty", got.Dirty, want.Dirty},
		{"Yield", got.Yield, want.Yield},
		{"Degraded", got.Degraded, want.Degraded},
		{"Refused", got.Refused, want.Refused},
		{"Denied", got.Denied, want.Denied},
		{"Leased", got.Leased, want.Leased},
		{"Idle", got.Idle, want.Idle},
		{"UsedPages", got.UsedPages, want.UsedPages},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
}

func TestPoolReuses(t *testing.T) {
	pl := newPool(t, nil)
	p := get(t, pl, 0)
	wantStats(t, pl, pipe.Stats{Made: 1, Leased: 1, UsedPages: pages(p)})
	pl.Put(p)
	wantStats(t, pl, pipe.Stats{Made: 1, Idle: 1, UsedPages: pages(p)})
	q := get(t, pl, 0)
	wantStats(t, pl, pipe.Stats{Made: 1, Reused: 1, Leased: 1, UsedPages: pages(p)})
	if p != q {
		t.Error("another pipe")
	}
	pl.Put(q)
	if n := pl.Trim(); n != 1 {
		t.Errorf("trimmed %d, want 1", n)
	}
	wantStats(t, pl, pipe.Stats{Made: 1, Reused: 1, Closed: 1})
}

func pages(p *pipe.Pipe) int64 { return int64(p.Size() / os.Getpagesize()) }

func TestPoolSizes(t *testing.T) {
	pl := newPool(t, pipe.With(pipe.Config{Size: 100 << 10}, nil, pipe.NewLimits(1<<20, 0, 0, 1000, true)))
	for _, c := range []struct{ ask, want int }{
		{0, 128 << 10},
		{1, 64 << 10},
		{64 << 10, 64 << 10},
		{64<<10 + 1, 128 << 10},
		{512 << 10, 512 << 10},
		{1<<20 - 1, 1 << 20},
		{1 << 20, 1 << 20},
	} {
		p := get(t, pl, c.ask)
		if p.Size() != c.want {
			t.Errorf("Get(%d) lent %d bytes, want %d", c.ask, p.Size(), c.want)
		}
		pl.Put(p)
	}
	p, err := pl.Get(math.MaxInt)
	if err != nil || p.Size() != 1<<20 {
		t.Errorf("above the largest: %v, %v; want the largest", p, err)
	}
	pl.Put(p)
}

// TestPoolDirty: a pipe with bytes inside never goes back, nor does one that has
// been closed.
func TestPoolDirty(t *testing.T) {
	pl := newPool(t, nil)
	before := leak.Take()
	p := get(t, pl, 0)
	fill(t, p, 1)
	pl.Put(p)
	wantStats(t, pl, pipe.Stats{Made: 1, Closed: 1, Dirty: 1})
	p = get(t, pl, 0)
	p.Close()
	pl.Put(p)
	wantStats(t, pl, pipe.Stats{Made: 2, Closed: 2, Dirty: 2})
	for _, fd := range leak.Take().Since(before) {
		if !strings.Contains(fd, "socket:") {
			t.Errorf("left open: %s", fd)
		}
	}
}

// TestPoolMisuse: a second Put, and pipes of others, do no harm.
func TestPoolMisuse(t *testing.T) {
	if pipe.Invariants {
		t.Skip("panics: see TestPutTwice")
	}
	pl, other := newPool(t, nil), newPool(t, nil)
	p := get(t, pl, 0)
	other.Put(p)
	wantStats(t, other, pipe.Stats{})
	pl.Put(p)
	pl.Put(p)
	pl.Put(nil)
	wantStats(t, pl, pipe.Stats{Made: 1, Idle: 1, UsedPages: pages(p)})
	own := open(t, 0)
	pl.Put(own)
	if err := own.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Put of a pipe from Open left it open: %v", err)
	}
}

func TestPoolMaxIdle(t *testing.T) {
	pl := newPool(t, &pipe.Config{MaxIdle: 2})
	var out []*pipe.Pipe
	for range 5 {
		out = append(out, get(t, pl, 0))
	}
	for _, p := range out {
		pl.Put(p)
	}
	if s := pl.Stats(); s.Idle != 2 || s.Closed != 3 {
		t.Errorf("%+v, want 2 idle and 3 closed", s)
	}
}

func TestPoolClosed(t *testing.T) {
	pl, err := pipe.NewPool(nil)
	if err != nil {
		t.Fatal(err)
	}
	p := get(t, pl, 0)
	pl.Put(get(t, pl, 0))
	if err := pl.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, p, 10) // still good
	pl.Put(p)
	if s := pl.Stats(); s.Closed != s.Made || s.UsedPages != 0 {
		t.Errorf("%+v, want all closed", s)
	}
	if _, err := pl.Get(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Get: %v, want os.ErrClosed", err)
	}
	if err := pl.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v, want os.ErrClosed", err)
	}
}

// TestPoolForgotten: a pool that is never closed leaves no descriptors behind.
func TestPoolForgotten(t *testing.T) {
	before := leak.Take()
	func() {
		pl, err := pipe.NewPool(nil)
		if err != nil {
			t.Fatal(err)
		}
		pl.Put(get(t, pl, 0))
		pl.Put(get(t, pl, 1<<20))
	}()
	await(t, "all closed", func() bool {
		runtime.GC()
		return len(leak.Take().Since(before)) == 0
	})
}

func TestPoolNoAllocations(t *testing.T) {
	pl := newPool(t, nil)
	pl.Put(get(t, pl, 0))
	if a := testing.AllocsPerRun(1000, func() {
		p, err := pl.Get(0)
		if err != nil {
			t.Fatal(err)
		}
		pl.Put(p)
	}); a != 0 {
		t.Fatalf("Get and Put cost %v allocations", a)
	}
}

func TestPoolIdleTime(t *testing.T) {
	pl := newPool(t, &pipe.Config{IdleTime: 5 * time.Millisecond})
	pl.Put(get(t, pl, 0))
	await(t, "idle pipe closed", func() bool { return pl.Stats().UsedPages == 0 })
}

func TestPoolBadConfig(t *testing.T) {
	if _, err := pipe.NewPool(&pipe.Config{Size: -1}); !errors.Is(err, os.ErrInvalid) {
		t.Fatalf("%v, want os.ErrInvalid", err)
	}
}

// TestPoolStress: many take and return pipes of all sizes under a budget that is
// always short. No pipe is in two hands, none is lent with bytes inside, and the
// counters only rise.
func TestPoolStress(t *testing.T) {
	pl := newPool(t, &pipe.Config{Budget: 512})
	var holders sync.Map
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				p, err := pl.Get(64 << 10 << ((g + i) % 5))
				if err == pipe.ErrBudget {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if _, taken := holders.LoadOrStore(p, g); taken || p.Len() != 0 {
					t.Errorf("lent twice (%v) or not empty (%d)", taken, p.Len())
				}
				if i%97 == 0 {
					pipe.Load(p, []byte("x"))
				}
				holders.Delete(p)
				pl.Put(p)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	watchStats(t, pl, done)
	if s := pl.Stats(); s.Made != s.Closed+s.Idle || s.Leased != 0 {
		t.Errorf("at rest: %+v", s)
	}
}

func watchStats(t *testing.T, pl *pipe.Pool, done chan struct{}) {
	var last pipe.Stats
	for {
		s := pl.Stats()
		if s.Made < last.Made || s.Reused < last.Reused || s.Closed < last.Closed || s.Dirty < last.Dirty ||
			s.Degraded < last.Degraded || s.Refused < last.Refused || s.Denied < last.Denied {
			t.Errorf("a counter fell: %+v after %+v", s, last)
		}
		if s.UsedPages > s.LinePages {
			t.Errorf("used %d pages of %d", s.UsedPages, s.LinePages)
		}
		last = s
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
