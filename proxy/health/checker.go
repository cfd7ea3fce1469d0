package health

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// CheckerConfig sets up a [Checker].
type CheckerConfig struct {
	// Concurrent is how many probes there may be at once, each with a goroutine and,
	// as a rule, a descriptor; 0 means 4096. Those of endpoints that are well take
	// next to none of that, those that run into their Timeout take one for that long.
	// When more are due they wait, the one that has been due for longest first, and all
	// are probed less often; CheckerStats.Lag tells.
	Concurrent int

	// Seed makes the phases and the jitter of this Checker other than those of others;
	// 0 means a random one.
	Seed uint64
}

const defaultConcurrent = 4096

// CheckConfig says how an endpoint is asked whether it is well.
type CheckConfig struct {
	// Probe asks it once.
	Probe Prober
	// Interval is between two probes, FastInterval while the endpoint is unhealthy or about
	// to change its state. Jitter is the part of both by which they vary.
	Interval, FastInterval time.Duration
	Jitter                 float64
	// Timeout is what a probe may take.
	Timeout time.Duration
	// Rise is how many in a row must succeed for an endpoint to be healthy again, Fall
	// how many must fail for it to be unhealthy. Less than one counts as one.
	Rise, Fall int
	// Elsewhere says that Probe asks another address than the endpoint's own: that it was
	// connected to says nothing of the endpoint.
	Elsewhere bool
	// Answered says that Probe wants an answer, which may be that the endpoint must not
	// serve. Without one nothing is said, unless Strict: then that is like a no.
	Answered, Strict bool
}

// A Prober asks an endpoint once. It returns nil if that is well, or why it is not, and
// soon after ctx is done in any case: an error that wraps [ErrAnswer] if the endpoint has
// answered so. It may be called several times at once.
type Prober interface {
	Probe(ctx context.Context) error
}

// ErrAnswer is what the error of a [Prober] wraps that has got an answer, another one than
// that of an endpoint that is to serve.
var ErrAnswer = errors.New("the endpoint has answered")

// A Checker probes endpoints at intervals, spread over time: each has a phase of its
// own within the interval, by its name, and keeps it, so that neither a start nor a
// reload asks all at once. It has one goroutine, and one for each probe. It is safe for
// concurrent use.
type Checker struct {
	keeper     *Keeper
	concurrent int
	seed       uint64
	wake       chan struct{}
	ctx        context.Context // of all probes
	cancel     context.CancelFunc
	ended      sync.WaitGroup

	mu     sync.Mutex
	checks int
	ill    int // of checks
	queue  checkQueue
	asleep int64 // until when the scheduler sleeps; awake if it does not
	stats  CheckerStats
}

// CheckerStats is what a [Checker] does.
type CheckerStats struct {
	Checks  int           // endpoints that are watched
	Running int           // probes that are under way
	Probes  int64         // probes begun
	Failed  int64         // probes that failed
	Spared  int64         // probes that this machine could not make, which say nothing
	Lag     time.Duration // by how much the last probe began later than it was due
}

// NewChecker returns a Checker that watches nothing, and is to be closed. Its clock is
// the Keeper's, which outlives it.
func NewChecker(k *Keeper, cfg *CheckerConfig) *Checker {
	c := newChecker(k, cfg)
	c.ended.Go(c.run)
	return c
}

// newChecker returns a Checker that has no goroutine.
func newChecker(k *Keeper, cfg *CheckerConfig) *Checker {
	c := &Checker{keeper: k, concurrent: defaultConcurrent, wake: make(chan struct{}, 1), asleep: awake}
	if cfg != nil {
		c.seed = cfg.Seed
		if cfg.Concurrent > 0 {
			c.concurrent = cfg.Concurrent
		}
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends all probes, and returns when their goroutines have ended. What was found
// stays. It may be called again.
func (c *Checker) Close() {
	c.cancel()
	c.ended.Wait()
}

// Stats returns what the Checker does now.
func (c *Checker) Stats() CheckerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Checks = c.checks
	return s
}

// Watch has an endpoint probed from its phase of the next interval on. It is called
// name in what is told of it; its phase depends on that, too. Until its probes say
// otherwise it is healthy.
func (c *Checker) Watch(name string, t Target, cfg *CheckConfig) *Check {
	ch := &Check{checker: c, name: name, target: t, at: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	ch.configure(cfg, c.keeper.cfg.Now())
	c.enqueue(ch)
	return ch
}

// enqueue puts down a check for its time. The Checker is locked.
func (c *Checker) enqueue(ch *Check) {
	heap.Push(&c.queue, ch)
	if ch.due < c.asleep {
		nudge(c.wake)
	}
}

// run is the scheduler's goroutine.
func (c *Checker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
		now := c.keeper.cfg.Now()
		if next := c.step(now); next != never {
			timer.Reset(time.Duration(max(next-now, 0)))
		}
	}
}

// step begins the probes that are due, and returns when it is to be called again,
// unless somebody wakes the scheduler before.
func (c *Checker) step(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && c.queue[0].due <= now && c.stats.Running < c.concurrent {
		ch := heap.Pop(&c.queue).(*Check)
		c.stats.Lag = time.Duration(now - ch.due)
		c.begin(ch, now)
	}
	switch {
	case len(c.queue) == 0 || c.stats.Running >= c.concurrent:
		c.asleep = never // a check that is new wakes it, or a probe that ends
	default:
		c.asleep = c.queue[0].due
	}
	return c.asleep
}

// begin begins a probe. The Checker is locked.
func (c *Checker) begin(ch *Check, now int64) {
	c.stats.Running++
	c.stats.Probes++
	cfg := ch.cfg
	ctx, cancel := context.WithTimeout(c.ctx, cfg.Timeout)
	ch.cancel, ch.began = cancel, now
	c.ended.Go(func() {
		defer cancel()
		err := cfg.Probe.Probe(ctx)
		c.finish(ch, cfg, now, timedOut(err, ctx, cfg))
	})
}

// finish takes what a probe found that began at a time.
func (c *Checker) finish(ch *Check, cfg *CheckConfig, began int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Running--
	ch.cancel = nil
	if c.ctx.Err() != nil {
		return
	}
	if !ch.stopped {
		now := c.keeper.cfg.Now()
		ch.found(cfg, err, began, now)
		c.enqueue(ch)
	}
	if len(c.queue) > 0 && c.asleep == never {
		nudge(c.wake)
	}
}

// checkQueue has the check first that is due first.
type checkQueue []*Check

func (q checkQueue) Len() int           { return len(q) }
func (q checkQueue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q checkQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *checkQueue) Push(x any) {
	ch := x.(*Check)
	ch.at = len(*q)
	*q = append(*q, ch)
}

func (q *checkQueue) Pop() any {
	last := len(*q) - 1
	ch := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	ch.at = -1
	return ch
}
