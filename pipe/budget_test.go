package pipe_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/pipe"
)

// clock is a time that tests set.
type clock struct{ at time.Time }

func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

// kernel is a model of the kernel's side: a quota, and the pages that others have
// spent.
type kernel struct{ quota, others, ours int64 }

// allows is too_many_pipe_buffers_soft of fs/pipe.c.
func (k *kernel) allows(pages int64) bool { return k.others+k.ours+pages <= k.quota }

// budgetModel drives a Budget as a Pool does, against the model of the kernel.
type budgetModel struct {
	clock  clock
	kernel kernel
	line   int64
	budget *pipe.Budget
	held   []int64 // pages of each pipe
}

func newBudgetModel(t *rapid.T) *budgetModel {
	m := &budgetModel{}
	m.kernel.quota = rapid.Int64Range(16, 2048).Draw(t, "quota")
	m.line = rapid.Int64Range(0, m.kernel.quota).Draw(t, "line")
	m.budget = pipe.NewBudget(m.line, 1<<20, m.clock.now)
	return m
}

// lend tries to make a pipe and reports whether there is one more.
func (m *budgetModel) lend(t *rapid.T, pages int64) bool {
	if !m.budget.Take(pages) {
		return false
	}
	if !m.kernel.allows(pages) {
		m.budget.Give(pages)
		m.budget.Deny(0)
		if m.budget.Limit() > m.kernel.ours {
			t.Fatalf("limit %d after a refusal with %d in use", m.budget.Limit(), m.kernel.ours)
		}
		if m.budget.Take(1) {
			t.Fatal("tries again at once")
		}
		return false
	}
	m.kernel.ours += pages
	m.held = append(m.held, pages)
	m.budget.Allow()
	return true
}

func (m *budgetModel) giveBack(i int) {
	m.kernel.ours -= m.held[i]
	m.budget.Give(m.held[i])
	m.held = append(m.held[:i], m.held[i+1:]...)
}

func (m *budgetModel) check(t *rapid.T) {
	if used := m.budget.Used(); used != m.kernel.ours {
		t.Fatalf("%d pages in use by the budget, %d by the kernel", used, m.kernel.ours)
	}
	if m.budget.Used() > m.line {
		t.Fatalf("%d pages in use, above the line of %d", m.budget.Used(), m.line)
	}
	var large int64
	for _, pages := range m.held {
		if pages > 16 {
			large += pages
		}
	}
	if got := m.budget.Large(); got != large || large > m.line/2 {
		t.Fatalf("%d pages in large pipes, want %d, and at most half of %d", got, large, m.line)
	}
	if l := m.budget.Limit(); l > m.line || l < 0 {
		t.Fatalf("limit %d with a line of %d", l, m.line)
	}
}

func drawPages(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{16, 32, 64, 128, 256}).Draw(t, "pages")
}

// TestBudgetModel: whatever this process and the user's other processes do, the
// budget's account is the kernel's, and the line is never crossed. The kernel is
// not tried again right after it has refused.
func TestBudgetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newBudgetModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"lend": func(t *rapid.T) { m.lend(t, drawPages(t)) },
			"give": func(t *rapid.T) {
				if len(m.held) == 0 {
					t.Skip("nothing held")
				}
				m.giveBack(rapid.IntRange(0, len(m.held)-1).Draw(t, "which"))
			},
			"others": func(t *rapid.T) {
				m.kernel.others = rapid.Int64Range(0, m.kernel.quota).Draw(t, "others")
			},
			"time": func(t *rapid.T) {
				m.clock.advance(time.Duration(rapid.Int64Range(0, int64(90*time.Second)).Draw(t, "time")))
			},
			"": m.check,
		})
		m.recovers(t)
	})
}

// recovers: once the others have gone, all of the line can be used again, at the
// latest after as many attempts as there are doublings in it.
func (m *budgetModel) recovers(t *rapid.T) {
	m.kernel.others = 0
	for range 20 {
		m.clock.advance(time.Minute)
		for m.lend(t, 1) {
		}
	}
	if m.kernel.ours != m.line {
		t.Fatalf("%d pages in use at last, want the line of %d", m.kernel.ours, m.line)
	}
}

// TestBudgetPatience: while the kernel keeps refusing, attempts become rare: no
// more than sixteen in the first ten minutes, then one a minute.
func TestBudgetPatience(t *testing.T) {
	var c clock
	b := pipe.NewBudget(1000, 1000, c.now)
	attempts := func(d time.Duration) (n int) {
		for range d / (100 * time.Millisecond) {
			if b.Take(16) {
				b.Give(16)
				b.Deny(0)
				n++
			}
			c.advance(100 * time.Millisecond)
		}
		return n
	}
	if n := attempts(10 * time.Minute); n > 16 {
		t.Errorf("%d attempts in the first ten minutes", n)
	}
	if n := attempts(10 * time.Minute); n != 10 {
		t.Errorf("%d attempts in the next ten minutes, want 10", n)
	}
}

// TestBudgetForgives: once the kernel has given more again, the next refusal is
// followed up as soon as the first one was.
func TestBudgetForgives(t *testing.T) {
	var c clock
	b := pipe.NewBudget(1000, 1000, c.now)
	refuse := func() {
		t.Helper()
		if !b.Take(16) {
			t.Fatal("no attempt")
		}
		b.Give(16)
		b.Deny(0)
	}
	for range 5 {
		refuse()
		c.advance(time.Minute)
	}
	if !b.Take(16) {
		t.Fatal("no attempt")
	}
	b.Allow()
	c.advance(time.Minute)
	refuse()
	c.advance(time.Second - 1)
	if b.Take(16) {
		t.Fatal("an attempt before its time")
	}
	c.advance(1)
	refuse()
}

func TestMain(m *testing.M) {
	pipequota.ShareUntilExit()
	leak.Main(m)
}
