package pipe_test

import (
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/pipe"
	"pgregory.net/rapid"
)

// newPool makes a pool that is closed when the test ends. By then everything must
// have come back.
func newPool(t testing.TB, cfg *pipe.Config) *pipe.Pool {
	t.Helper()
	pl := must.Get(pipe.NewPool(cfg))(t)
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
	p := must.Get(pl.Get(size))(t)
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
	must.Fail(pl.Get(-1))(t, syscall.EINVAL)
	own := open(t, 0)
	pl.Put(own)
	must.Is(t, own.Close(), os.ErrClosed)
}

// TestCloseMeetsGet: a pool that is closed while a pipe is made for a Get keeps neither the pipe nor the pages that were reserved for it.
func TestCloseMeetsGet(t *testing.T) {
	for range 300 {
		pl := must.Get(pipe.NewPool(&pipe.Config{IdleTime: -1}))(t)
		got := make(chan error)
		for range 2 {
			go func() {
				p, err := pl.Get(0)
				if err == nil {
					pl.Put(p)
				}
				got <- err
			}()
		}
		first := <-got // often while the other one makes its pipe
		pl.Close()
		if err := <-got; first != nil || err != nil && !errors.Is(err, pipe.ErrClosed) {
			t.Fatalf("%v, then %v", first, err)
		}
		if s := pl.Stats(); s.UsedPages != 0 || s.Leased != 0 || s.Made != s.Closed {
			t.Fatalf("%+v", s)
		}
	}
}

func TestPoolClosed(t *testing.T) {
	pl := must.Get(pipe.NewPool(nil))(t)
	p := get(t, pl, 0)
	pl.Put(get(t, pl, 0))
	must.Do(t, pl.Close())
	fill(t, p, 10) // still good
	pl.Put(p)
	if s := pl.Stats(); s.Closed != s.Made || s.UsedPages != 0 {
		t.Errorf("%+v, want all closed", s)
	}
	must.Fail(pl.Get(0))(t, os.ErrClosed)
	must.Is(t, pl.Close(), os.ErrClosed)
	must.Is(t, new(pipe.Pool).Close(), os.ErrClosed)
}

// TestPoolForgotten: a pool that is never closed leaves no descriptors behind.
func TestPoolForgotten(t *testing.T) {
	before := leak.Take()
	func() {
		pl := must.Get(pipe.NewPool(nil))(t)
		pl.Put(get(t, pl, 0))
		pl.Put(get(t, pl, 1<<20))
	}()
	condition.Await(t, "all closed", func() bool {
		runtime.GC()
		return len(leak.Take().Since(before)) == 0
	})
}

func TestPoolIdleTime(t *testing.T) {
	pl := newPool(t, &pipe.Config{IdleTime: 5 * time.Millisecond})
	pl.Put(get(t, pl, 0))
	condition.Await(t, "idle pipe closed", func() bool { return pl.Stats().UsedPages == 0 })
}

func TestPoolBadConfig(t *testing.T) {
	must.Fail(pipe.NewPool(&pipe.Config{Size: -1}))(t, os.ErrInvalid)
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

// poolModel is a Pool of real pipes under a small budget, and its expected state.
type poolModel struct {
	clock   clock
	pool    *pipe.Pool
	line    int64
	maxIdle int
	out     []*pipe.Pipe
	dirty   int64
}

// TestPoolModel: in any order of leases, returns and trims the books balance, the
// budget holds, and a lease is refused only if the pipes that are out leave no
// room for it.
func TestPoolModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &poolModel{line: rapid.Int64Range(0, 600).Draw(t, "line"), maxIdle: rapid.SampledFrom([]int{-1, 1, 3, 100}).Draw(t, "MaxIdle")}
		budget := int(m.line)
		if budget == 0 {
			budget = -1
		}
		pl := must.Get(pipe.NewPool(pipe.With(pipe.Config{
			Budget:   budget,
			MaxIdle:  m.maxIdle,
			IdleTime: -1,
		}, m.clock.now, pipe.NewLimits(1<<20, 1000, 0, 10000, false))))(t)
		m.pool = pl
		defer m.close(t) // in any case: rapid may give a run up halfway
		t.Repeat(map[string]func(*rapid.T){
			"get":  m.get,
			"put":  func(t *rapid.T) { m.put(t, false) },
			"soil": func(t *rapid.T) { m.put(t, true) },
			"trim": func(t *rapid.T) {
				idle := pl.Stats().Idle
				if n := pl.Trim(); int64(n) != idle {
					t.Fatalf("trimmed %d of %d", n, idle)
				}
			},
			"time": func(*rapid.T) { m.clock.advance(time.Second) },
			"":     m.check,
		})
	})
}

func (m *poolModel) close(t *rapid.T) {
	for _, p := range m.out {
		m.pool.Put(p)
	}
	m.pool.Close()
	if s := m.pool.Stats(); s.UsedPages != 0 || s.Made != s.Closed {
		t.Errorf("after Close: %+v", s)
	}
}

func (m *poolModel) outPages() (n int64) { return m.outOver(0) }

// outOver sums up the pages of the pipes above a size that are out.
func (m *poolModel) outOver(size int) (n int64) {
	for _, p := range m.out {
		if p.Size() > size {
			n += pages(p)
		}
	}
	return n
}

func (m *poolModel) get(t *rapid.T) {
	size := pipe.DefaultSize << rapid.IntRange(0, 4).Draw(t, "class")
	m.clock.advance(time.Millisecond) // recalls are rare in time
	p, err := m.pool.Get(size)
	switch {
	case err == pipe.ErrBudget && m.pool.Stats().Refused+m.pool.Stats().Degraded > 0:
		// The machine's quota, not the model's: the ordinary user who runs this has
		// spent it.
	case err == pipe.ErrBudget:
		need := int64(size / 4096)
		crowded := size > pipe.DefaultSize && m.outOver(pipe.DefaultSize)+need > m.line/2
		if m.outPages()+need <= m.line && !crowded {
			t.Fatalf("refused %d pages with %d of %d out: %+v", need, m.outPages(), m.line, m.pool.Stats())
		}
	case err != nil:
		t.Fatal(err)
	case p.Size() != size || p.Len() != 0:
		t.Fatalf("requested %d, got %d with %d inside", size, p.Size(), p.Len())
	default:
		m.out = append(m.out, p)
	}
}

func (m *poolModel) put(t *rapid.T, soil bool) {
	if len(m.out) == 0 {
		t.Skip("nothing out")
	}
	i := rapid.IntRange(0, len(m.out)-1).Draw(t, "which")
	p := m.out[i]
	m.out = append(m.out[:i], m.out[i+1:]...)
	if soil {
		m.dirty++
		if rapid.Bool().Draw(t, "closed") {
			p.Close()
		} else {
			pipe.Load(p, []byte("x"))
		}
	}
	m.pool.Put(p)
}

func (m *poolModel) check(t *rapid.T) {
	s := m.pool.Stats()
	if s.Leased != int64(len(m.out)) || s.Made != s.Closed+s.Leased+s.Idle || s.Dirty != m.dirty {
		t.Fatalf("books: %+v with %d out and %d soiled", s, len(m.out), m.dirty)
	}
	if s.Idle > int64(5*max(m.maxIdle, 0)) { // of five sizes
		t.Fatalf("idle: %+v, at most %d of a size", s, m.maxIdle)
	}
	if s.UsedPages > m.line || s.UsedPages < m.outPages() || (s.Idle == 0) != (s.UsedPages == m.outPages()) {
		t.Fatalf("pages: %+v with %d out", s, m.outPages())
	}
}

// TestPoolLargeShare: large pipes get half of the budget, and small ones are not closed for more.
func TestPoolLargeShare(t *testing.T) {
	var c clock
	pl := newPool(t, pipe.With(pipe.Config{Budget: 128}, c.now, nil))
	large, small := get(t, pl, 256<<10), get(t, pl, 0)
	pl.Put(small)
	if _, err := pl.Get(128 << 10); err != pipe.ErrBudget {
		t.Errorf("beyond half: %v, want ErrBudget", err)
	}
	wantStats(t, pl, pipe.Stats{Made: 2, Denied: 1, Leased: 1, Idle: 1, UsedPages: 80})
	pl.Put(large)
}

// TestPoolRecall: idle pipes that TryGet would not reach are closed, as many as
// are needed, once in a while.
func TestPoolRecall(t *testing.T) {
	var c clock
	pl := newPool(t, pipe.With(pipe.Config{IdleTime: -1}, c.now, nil))
	small := []*pipe.Pipe{get(t, pl, 0), get(t, pl, 0), get(t, pl, 0)}
	for _, p := range small {
		pl.Put(p)
	}
	pl.Put(get(t, pl, 1<<20))
	for _, step := range []struct {
		after time.Duration
		pages int64
		large bool
		idle  int64
		ok    bool
	}{
		{0, 32, true, 3, true},
		{0, 32, false, 3, false},
		{time.Millisecond - 1, 32, false, 3, false},
		{1, 32, true, 3, false}, // none left
		{time.Millisecond, 32, false, 1, true},
		{time.Millisecond, 32, false, 0, true},
		{time.Millisecond, 32, false, 0, false},
	} {
		c.advance(step.after)
		ok := pl.Recall(step.pages, step.large)
		if s := pl.Stats(); ok != step.ok || s.Idle != step.idle || s.Yield != 4-s.Idle {
			t.Errorf("%+v: %v, %+v", step, ok, s)
		}
	}
}

// TestPoolDescriptors: a pool leaves most descriptors to the connections, and its
// idle pipes make room for others then as well.
func TestPoolDescriptors(t *testing.T) {
	var c clock
	const most = 8 // pipes, by 64 descriptors
	pl := newPool(t, pipe.With(pipe.Config{Budget: 1000}, c.now, pipe.NewLimits(1<<20, 0, 0, 64, true)))
	var pipes []*pipe.Pipe
	for range most {
		pipes = append(pipes, get(t, pl, 0))
	}
	if _, err := pl.Get(0); err != pipe.ErrBudget {
		t.Fatalf("pipe %d with 64 descriptors: %v, want ErrBudget", most+1, err)
	}
	for _, p := range pipes {
		pl.Put(p)
	}
	c.advance(time.Second)
	pl.Put(get(t, pl, 1<<20))
	wantStats(t, pl, pipe.Stats{Made: most + 1, Closed: 1, Yield: 1, Denied: 1, Idle: most, UsedPages: 16*(most-1) + 256})
}

// TestPoolEMFILE: without descriptors the pool's idle pipes are closed first.
// Then Get returns the kernel's error.
func TestPoolEMFILE(t *testing.T) {
	pl := newPool(t, nil)
	var idle []*pipe.Pipe
	for range 3 {
		idle = append(idle, get(t, pl, 0))
	}
	for _, p := range idle {
		pl.Put(p)
	}
	release := exhaust(t)
	defer release()

	p := get(t, pl, 1<<20)
	if s := pl.Stats(); s.Idle != 0 || s.Closed != 3 || s.Leased != 1 {
		t.Errorf("%+v, want the 3 idle pipes closed for the one", s)
	}
	q := get(t, pl, 0)
	r := get(t, pl, 0)
	_, err := pl.Get(0)
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, pipe.ErrBudget) {
		t.Errorf("%v, want EMFILE", err)
	}
	if s := pl.Stats(); s.BudgetPages != s.LinePages || s.UsedPages != pages(p)+pages(q)+pages(r) {
		t.Errorf("%+v: lack of descriptors is no matter of pages", s)
	}
	for _, p := range []*pipe.Pipe{p, q, r} {
		pl.Put(p)
	}
}

// exhaust takes all descriptors, of which it leaves only a few to the process.
func exhaust(t *testing.T) (release func()) {
	t.Helper()
	var old syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	few := syscall.Rlimit{Cur: uint64(len(leak.Take()) + 20), Max: old.Max}
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		must.Do(t, err)
		files = append(files, f)
	}
	return func() {
		for _, f := range files {
			f.Close()
		}
		must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	}
}

// TestPoolRefusedCalls checks the answers of a sandbox to the calls that make a
// pipe.
func TestPoolRefusedCalls(t *testing.T) {
	for _, c := range []struct {
		name   string
		errno  syscall.Errno
		number uintptr
		want   error
	}{
		{"no pipes", syscall.ENOSYS, sys.SYS_PIPE2, pipe.ErrNotSupported},
		{"no pipes by policy", syscall.EPERM, sys.SYS_PIPE2, pipe.ErrNotSupported},
		{"no splice", syscall.ENOSYS, sys.SYS_SPLICE, pipe.ErrNotSupported},
		{"no splice by policy", syscall.EPERM, sys.SYS_SPLICE, pipe.ErrNotSupported},
		{"no files", syscall.ENFILE, sys.SYS_PIPE2, syscall.ENFILE},
		{"no memory", syscall.ENOMEM, sys.SYS_PIPE2, syscall.ENOMEM},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !privilege.Refused(t, c.errno, c.number) {
				return
			}
			pl := newPool(t, nil)
			for range 2 {
				_, err := pl.Get(0)
				if !errors.Is(err, c.want) || errors.Is(err, pipe.ErrBudget) {
					t.Fatalf("%v, want %v", err, c.want)
				}
			}
			if c.want == pipe.ErrNotSupported {
				if a := testing.AllocsPerRun(100, func() { pl.Get(0) }); a != 0 {
					t.Errorf("ErrNotSupported costs %v allocations", a)
				}
			}
		})
	}
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{}, new(pipe.Pipe), new(pipe.Pool), new(pipe.Config))
}
