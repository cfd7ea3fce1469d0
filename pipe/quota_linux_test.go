package pipe_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/pipe"
)

// quotaOf returns the user's quota in pages, for a test that runs as an ordinary
// user, and skips it if nothing bounds that user.
func quotaOf(t *testing.T) int {
	t.Helper()
	soft := number(t, "user-pages-soft")
	if hard := number(t, "user-pages-hard"); soft == 0 || hard != 0 {
		t.Skipf("pipe-user-pages-soft is %d and -hard %d; the test is written for a soft quota alone", soft, hard)
	}
	limits := func(exempt bool) any {
		return *pipe.NewLimits(number(t, "max-size"), int64(soft), 0, noFile(t), exempt)
	}
	switch got := any(pipe.ReadLimits()); {
	case got == limits(true):
		t.Skip("this user is exempt from the quota")
	case got != limits(false) && os.Getpagesize() == 4096:
		t.Fatalf("%+v, want %+v", got, limits(false))
	}
	return soft
}

// TestPoolStaysBelow: with its default budget a pool never meets the quota, and
// leaves some of it to others.
func TestPoolStaysBelow(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	quota := quotaOf(t)
	pl := newPool(t, nil)
	for _, size := range []int{1 << 20, 64 << 10} {
		var out []*pipe.Pipe
		for {
			p, err := pl.Get(size)
			if err == pipe.ErrBudget {
				break
			}
			if err != nil || p.Size() != size {
				t.Fatalf("pipe %d: %v, size %d", len(out), err, p.Size())
			}
			out = append(out, p)
		}
		want := quota * 7 / 8 / (size / os.Getpagesize())
		if size > pipe.DefaultSize {
			want /= 2
		}
		if len(out) != want {
			t.Errorf("lent %d pipes of %d bytes, want %d", len(out), size, want)
		}
		if p := open(t, 0); p.Size() != pipe.DefaultSize {
			t.Errorf("another pipe of the user has %d bytes", p.Size())
		}
		for _, p := range out {
			pl.Put(p)
		}
	}
	if s := pl.Stats(); s.Degraded != 0 || s.Refused != 0 || s.BudgetPages != s.LinePages {
		t.Errorf("%+v: the quota was met", s)
	}
}

// spender is a process of the same user that holds pipe pages.
type spender struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// spend starts a process that holds that many pages.
func spend(t *testing.T, pages int) *spender {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^TestSpender$")
	cmd.Env = append(os.Environ(), "SPEND="+strconv.Itoa(pages))
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	s := &spender{cmd, in}
	t.Cleanup(s.stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "spent\n" {
		t.Fatalf("spender wrote %q, %v", line, err)
	}
	return s
}

// stop ends the process; its pages are free when it returns.
func (s *spender) stop() {
	s.in.Close()
	s.cmd.Wait()
}

// TestSpender is the other process.
func TestSpender(t *testing.T) {
	pages, err := strconv.Atoi(os.Getenv("SPEND"))
	if err != nil {
		return // not started by spend
	}
	for pages > 0 {
		size := min(pages, 256) * os.Getpagesize()
		for size&(size-1) != 0 {
			size &= size - 1
		}
		p := open(t, size)
		if p.Size() != size {
			t.Fatalf("got %d bytes, want %d", p.Size(), size)
		}
		pages -= size / os.Getpagesize()
	}
	fmt.Println("spent")
	io.Copy(io.Discard, os.Stdin)
}

// TestOtherProcess: another process of the user has spent the quota. The pool
// counts the small pipes that the kernel gave it instead, lowers its budget, and
// leaves the kernel alone until some time has passed. It has all of its budget
// back soon after the other process has gone.
func TestOtherProcess(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	quota := quotaOf(t)
	var c clock
	// This process's own pipes to the spender and from it count as well: two of 16
	// pages, and room for two of the pool's.
	other := spend(t, quota-4*16)
	pl := newPool(t, pipe.With(pipe.Config{}, c.now, nil))

	p, q := get(t, pl, 0), get(t, pl, 0)
	if _, err := pl.Get(0); err != pipe.ErrBudget {
		t.Fatalf("%v, want ErrBudget", err)
	}
	s := pl.Stats()
	if s.Degraded != 1 || s.BudgetPages != 32 || s.UsedPages != 32 || s.Made != 2 {
		t.Fatalf("%+v; want one degraded, and a budget of the pages in use", s)
	}
	if a := testing.AllocsPerRun(100, func() { pl.Get(0) }); a != 0 || pl.Stats().Degraded != 1 {
		t.Fatalf("%v allocations, %+v; want no system call before its time", a, pl.Stats())
	}
	pl.Put(p)
	if p = get(t, pl, 0); pl.Stats().Reused != 1 {
		t.Fatalf("%+v; want the idle pipe lent", pl.Stats())
	}

	// Unsuccessful: each attempt doubles the time to the next.
	for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		c.advance(wait - 1)
		pl.Get(0)
		if n := pl.Stats().Degraded; n != int64(i+1) {
			t.Fatalf("%d degraded just before attempt %d, want %d", n, i, i+1)
		}
		c.advance(1)
		pl.Get(0)
		if n := pl.Stats().Degraded; n != int64(i+2) {
			t.Fatalf("%d degraded after attempt %d, want %d", n, i, i+2)
		}
	}

	other.stop()
	out := []*pipe.Pipe{p, q}
	for range 30 {
		c.advance(time.Minute)
		for {
			p, err := pl.Get(0)
			if err != nil {
				break
			}
			out = append(out, p)
		}
	}
	s = pl.Stats()
	if s.BudgetPages != s.LinePages || int64(len(out)) != s.LinePages/16 {
		t.Fatalf("%d pipes, %+v; want all of the budget back", len(out), s)
	}
	for _, p := range out {
		pl.Put(p)
	}
}

// TestOtherProcessLarge: a large pipe that is refused leaves room for small ones,
// and idle pipes of the pool make room for it.
func TestOtherProcessLarge(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	quota := quotaOf(t)
	var c clock
	spend(t, quota-2*16-128)
	pl := newPool(t, pipe.With(pipe.Config{}, c.now, nil))
	if _, err := pl.Get(1 << 20); err != pipe.ErrBudget {
		t.Fatalf("1 MiB: %v, want ErrBudget", err)
	}
	if s := pl.Stats(); s.Refused == 0 || s.Degraded != 0 || s.UsedPages != 0 || s.BudgetPages < 16 {
		t.Fatalf("%+v; want a refusal, and a budget that small pipes fit in", s)
	}
	p := get(t, pl, 0)
	if p.Size() != pipe.DefaultSize {
		t.Fatalf("size %d", p.Size())
	}
	pl.Put(p)
	for { // until the idle pipe is in the way
		p, err := pl.Get(256 << 10)
		if err == nil {
			pl.Put(p)
			break
		}
		must.Is(t, err, pipe.ErrBudget)
		c.advance(time.Minute)
	}
}

// TestExempt: root is not bound by the quota, and the pool knows.
func TestExempt(t *testing.T) {
	if os.Getuid() != 0 || pipe.ReadLimits().Line(0) == int64(number(t, "user-pages-soft"))*7/8 {
		t.Skip("needs root in the first user namespace: CAP_SYS_ADMIN or CAP_SYS_RESOURCE")
	}
	pl := newPool(t, &pipe.Config{Budget: 2 * 100 * 256})
	var out []*pipe.Pipe
	for range 100 {
		out = append(out, get(t, pl, 1<<20))
	}
	for _, p := range out {
		pl.Put(p)
	}
}
