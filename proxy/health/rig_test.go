package health_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/health"
	"pgregory.net/rapid"
)

// A clock is told what time it is.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() int64                    { return c.now.Load() }
func (c *clock) advance(d time.Duration) int64 { return c.now.Add(int64(d)) }

// A target remembers what it was told.
type target struct {
	ill, ejected atomic.Bool
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

func (t *target) SetCircuit(s health.State, trials int) {
	t.told.Add(1)
	t.state.Store(int32(s))
	t.trials.Store(int64(trials))
}

// idle returns a Keeper that does something when told to, and its clock.
func idle(every time.Duration) (*health.Keeper, *clock) {
	c := new(clock)
	c.advance(time.Hour)
	return health.NewIdleKeeper(&health.KeeperConfig{Now: c.Now, Tell: func(health.Transition) {}, TellEvery: every}), c
}

// dice returns numbers that are as likely as each other, which those of rapid are not.
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

// patient is how long is waited for what has to happen.
const patient = 10 * time.Second

// eventually asks until the answer is yes.
func eventually(t *testing.T, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(patient); !yes(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}
