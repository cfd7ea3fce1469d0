package pipe_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/pipe"
)

func TestPoolBudget(t *testing.T) {
	pl := newPool(t, &pipe.Config{Budget: 32})
	p, q := get(t, pl, 0), get(t, pl, 0)
	if _, err := pl.Get(0); err != pipe.ErrBudget {
		t.Fatalf("third of two: %v, want ErrBudget", err)
	}
	if _, err := pl.Get(1 << 20); err != pipe.ErrBudget {
		t.Fatalf("1 MiB: %v, want ErrBudget", err)
	}
	wantStats(t, pl, pipe.Stats{Made: 2, Leased: 2, Denied: 2, UsedPages: 32})
	if a := testing.AllocsPerRun(100, func() { pl.Get(1 << 20) }); a != 0 {
		t.Errorf("ErrBudget costs %v allocations", a)
	}
	pl.Put(p)
	pl.Put(get(t, pl, 0))
	pl.Put(q)
}

func TestPoolNoBudget(t *testing.T) {
	pl := newPool(t, &pipe.Config{Budget: -1})
	if _, err := pl.Get(0); err != pipe.ErrBudget {
		t.Fatalf("%v, want ErrBudget", err)
	}
}

// TestPoolYields: idle pipes of one size make room for another.
func TestPoolYields(t *testing.T) {
	pl := newPool(t, &pipe.Config{Budget: 64})
	a, b, c, d := get(t, pl, 0), get(t, pl, 0), get(t, pl, 0), get(t, pl, 0)
	for _, p := range []*pipe.Pipe{a, b, c} {
		pl.Put(p)
	}
	pl.Put(get(t, pl, 128<<10)) // for two small ones
	wantStats(t, pl, pipe.Stats{Made: 5, Closed: 2, Yield: 2, Leased: 1, Idle: 2, UsedPages: 64})
	e, f := get(t, pl, 0), get(t, pl, 0) // the last small one, and one for the large one
	wantStats(t, pl, pipe.Stats{Made: 6, Reused: 1, Closed: 3, Yield: 3, Leased: 3, UsedPages: 48})
	for _, p := range []*pipe.Pipe{d, e, f} {
		pl.Put(p)
	}
}

// TestPoolLargeShare: large pipes get half of the budget, and small ones are not
// closed for more.
func TestPoolLargeShare(t *testing.T) {
	var c clock
	pl := newPool(t, pipe.With(pipe.Config{Budget: 128}, c.now, nil))
	large, small := get(t, pl, 256<<10), get(t, pl, 0)
	pl.Put(small)
	if _, err := pl.Get(128 << 10); err != pipe.ErrBudget {
		t.Fatalf("beyond half: %v, want ErrBudget", err)
	}
	wantStats(t, pl, pipe.Stats{Made: 2, Denied: 1, Leased: 1, Idle: 1, UsedPages: 80})
	pl.Put(large)
	pl.Put(get(t, pl, 128<<10))
	wantStats(t, pl, pipe.Stats{Made: 3, Closed: 1, Yield: 1, Denied: 1, Idle: 2, UsedPages: 48})
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
	pl := newPool(t, pipe.With(pipe.Config{Budget: 1000}, c.now, pipe.NewLimits(1<<20, 0, 0, 16, true)))
	p, q := get(t, pl, 0), get(t, pl, 0)
	if _, err := pl.Get(0); err != pipe.ErrBudget {
		t.Fatalf("third pipe with 16 descriptors: %v, want ErrBudget", err)
	}
	pl.Put(p)
	pl.Put(q)
	c.advance(time.Second)
	pl.Put(get(t, pl, 1<<20))
	wantStats(t, pl, pipe.Stats{Made: 3, Closed: 1, Yield: 1, Denied: 1, Idle: 2, UsedPages: 16 + 256})
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
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: uint64(len(leak.Take()) + 20), Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return func() {
		for _, f := range files {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
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
