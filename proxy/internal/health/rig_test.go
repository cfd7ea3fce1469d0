package health_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/health"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A clock is a time that the test sets.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() int64                    { return c.now.Load() }
func (c *clock) advance(d time.Duration) int64 { return c.now.Add(int64(d)) }

// A target records the calls.
type target struct {
	ill, ejected atomic.Bool
	away         atomic.Bool
	state        atomic.Int32
	trials       atomic.Int64
	told         atomic.Int64
	onEject      func(bool) // may be nil
}

func (t *target) SetHealthy(ok bool) {
	t.told.Add(1)
	t.ill.Store(!ok)
}

func (t *target) SetEjected(on bool) {
	t.told.Add(1)
	t.ejected.Store(on)
	if t.onEject != nil {
		t.onEject(on)
	}
}

func (t *target) Away() bool { return t.away.Load() }

func (t *target) SetCircuit(s health.State, trials int) {
	t.told.Add(1)
	t.state.Store(int32(s))
	t.trials.Store(int64(trials))
}

// idle returns a Scheduler that works only in Step, and its clock.
func idle(every time.Duration) (*health.Scheduler, *clock) {
	c := new(clock)
	c.advance(time.Hour)
	return health.NewIdleKeeper(&health.SchedulerConfig{Now: c.Now, Report: func(health.Transition) {}, ReportEvery: every}), c
}

// dice returns uniformly distributed numbers, which those of rapid are not.
func dice(t *rapid.T) *rand.Rand { return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) }

// together runs a function on several goroutines that begin at once.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			do(i)
		})
	}
	close(begin)
	all.Wait()
}

// eventually repeats a question until the answer is yes.
func eventually(t *testing.T, yes func() bool) {
	t.Helper()
	condition.Await(t, "what it waits for happens", yes)
}
