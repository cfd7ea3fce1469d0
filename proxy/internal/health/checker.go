package health

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// CheckerConfig configures a [Checker].
type CheckerConfig struct {
	// Concurrent limits the probes in progress, each with a goroutine and, as a rule, a
	// descriptor; 0 means 4096. Probes of healthy endpoints take next to none of that limit. A
	// probe that runs into its Timeout takes one of it for that long. If more probes are due
	// they wait, the one that has been due for longest first, and all endpoints are probed
	// less often; see CheckerStats.Lag.
	Concurrent int

	// Seed makes the phases and the jitter of this Checker differ from those of others; 0
	// means a random one.
	Seed uint64
}

const defaultConcurrent = 4096

// CheckConfig configures the probes of an endpoint.
type CheckConfig struct {
	// Probe probes it once.
	Probe Prober
	// Interval is between two probes, FastInterval while the endpoint is unhealthy or about to
	// change its state. Jitter is the part of both by which they vary.
	Interval, FastInterval time.Duration
	Jitter                 float64
	// Timeout bounds the duration of a probe.
	Timeout time.Duration
	// Rise is the number of successes in a row that make an endpoint healthy again. Fall is
	// the number of failures in a row that make it unhealthy. Less than one counts as one.
	Rise, Fall int
	// Elsewhere says that Probe connects to another address than the endpoint's own: such a
	// connect is no evidence about the endpoint.
	Elsewhere bool
	// Answered says that Probe expects an answer, which may be that the endpoint must not
	// serve (a no). A failure without an answer leaves the last answer in force, unless
	// Strict: then it counts as a no.
	Answered, Strict bool
}

// A Prober probes an endpoint once. It returns nil if the endpoint is healthy, or the cause if
// not, and returns soon after ctx is done in any case. If the endpoint has answered so, the
// error wraps [ErrAnswer]; if it could not be connected to, [ErrConnect]. It is safe for
// concurrent use.
type Prober interface {
	Probe(ctx context.Context) error
}

// ErrAnswer is wrapped by the error of a [Prober] that got an answer other than that of an
// endpoint that is to serve.
var ErrAnswer = errors.New("the endpoint has answered")

// ErrStandby is wrapped by an [ErrAnswer] that is the answer of a healthy standby.
var ErrStandby = errors.New("the endpoint is a standby")

// ErrConnect is wrapped by the error of a [Prober] that could not connect to the endpoint.
var ErrConnect = errors.New("the endpoint could not be connected to")

// A Checker probes endpoints at intervals, spread over time. By its name each endpoint has a
// fixed phase within the interval, so that neither a start nor a reload probes all at once. A
// Checker has one goroutine, and one for each probe. It is safe for concurrent use.
type Checker struct {
	scheduler  *Scheduler
	concurrent int
	seed       uint64
	wake       chan struct{}
	ctx        context.Context // of all probes
	cancel     context.CancelFunc
	ended      sync.WaitGroup

	mu        sync.Mutex
	checks    int
	unhealthy int // unhealthy checks
	queue     checkQueue
	asleep    int64 // until when the goroutine of run sleeps; awake if it does not
	stats     CheckerStats
}

// CheckerStats are the counters of a [Checker].
type CheckerStats struct {
	Checks  int           // endpoints that are watched
	Running int           // probes in progress
	Probes  int64         // probes begun
	Failed  int64         // probes that failed
	Spared  int64         // probes that this machine could not make, which are no evidence
	Lag     time.Duration // delay of the last probe's start after its due time
}

// NewChecker returns a Checker that watches nothing, and must be closed. Its clock is the
// Scheduler's, which must outlive it.
func NewChecker(k *Scheduler, cfg *CheckerConfig) *Checker {
	c := newChecker(k, cfg)
	c.ended.Go(c.run)
	return c
}

// newChecker returns a Checker without its goroutine.
func newChecker(k *Scheduler, cfg *CheckerConfig) *Checker {
	c := &Checker{scheduler: k, concurrent: defaultConcurrent, wake: make(chan struct{}, 1), asleep: awake}
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

// Close ends all probes, and returns when their goroutines have ended. The results stay. It
// may be called again.
func (c *Checker) Close() {
	c.cancel()
	c.ended.Wait()
}

// Stats returns the present counters.
func (c *Checker) Stats() CheckerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Checks = c.checks
	return s
}

// Watch adds an endpoint, which is probed from its phase of the next interval on. name
// identifies it in transitions; its phase depends on that, too. Until its probes say otherwise
// it is healthy.
func (c *Checker) Watch(name string, t Target, cfg *CheckConfig) *Check {
	ch := &Check{checker: c, name: name, target: t, at: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	ch.configure(cfg, c.scheduler.cfg.Now())
	c.enqueue(ch)
	return ch
}

// enqueue adds a check to the queue. The Checker is locked.
func (c *Checker) enqueue(ch *Check) {
	heap.Push(&c.queue, ch)
	if ch.due < c.asleep {
		nudge(c.wake)
	}
}

// run is the Checker's goroutine.
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
		now := c.scheduler.cfg.Now()
		if next := c.step(now); next != never {
			timer.Reset(time.Duration(max(next-now, 0)))
		}
	}
}

// step begins the probes that are due, and returns the time of its next call, unless a wake
// comes before.
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
		c.asleep = never // a new check wakes it, or a probe that ends
	default:
		c.asleep = c.queue[0].due
	}
	return c.asleep
}

// begin starts a probe. The Checker is locked.
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

// finish records the result of a probe that began at a time.
func (c *Checker) finish(ch *Check, cfg *CheckConfig, began int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Running--
	ch.cancel = nil
	if c.ctx.Err() != nil {
		return
	}
	if !ch.stopped {
		now := c.scheduler.cfg.Now()
		ch.found(cfg, err, began, now)
		c.enqueue(ch)
	}
	if len(c.queue) > 0 && c.asleep == never {
		nudge(c.wake)
	}
}

// checkQueue is a heap, ordered by due time.
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
