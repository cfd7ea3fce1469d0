package health

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zeebo/xxh3"
)

// CheckerConfig configures a [Checker].
type CheckerConfig struct {
	// Concurrent limits the probes in progress, each with a goroutine and, usually, a descriptor; 0
	// means 4096. Probes of healthy endpoints are over almost at once, but a probe that times out
	// takes a place for its whole Timeout. If more probes are due they wait in the order in which
	// they became due, and all endpoints are probed less often.
	Concurrent int

	// Seed makes the phases and the jitter of this Checker differ from other Checkers; 0 means a
	// random seed.
	Seed uint64
}

// CheckConfig configures the probes of an endpoint.
type CheckConfig struct {
	// Probe probes the endpoint once.
	Probe Prober
	// Interval is the time between two probes, and FastInterval the time while the endpoint is
	// unhealthy or about to change its state. Jitter is the part by which both vary.
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
	// Answered says that Probe expects an answer. The answer may be a no: the endpoint must not serve. A failure without
	// an answer leaves the last answer as it is or, if Strict is set, counts as a no.
	Answered, Strict bool
}

// A Prober probes an endpoint once. It returns nil if the endpoint is healthy, otherwise the cause, and always returns soon
// after ctx is done. The error wraps [ErrAnswer] if the endpoint itself answered that it is not healthy, and [ErrConnect]
// if the connection failed. A Prober is safe for concurrent use.
type Prober interface {
	Probe(ctx context.Context) error
}

// ErrAnswer is wrapped by the error of a [Prober] if the endpoint's answer is not the expected one.
var ErrAnswer = errors.New("the endpoint has answered")

// ErrStandby is wrapped by an [ErrAnswer] that is the answer of a healthy standby.
var ErrStandby = errors.New("the endpoint is a standby")

// ErrConnect is wrapped by the error of a [Prober] that could not connect to the endpoint.
var ErrConnect = errors.New("the connection to the endpoint failed")

// A Checker probes endpoints at intervals, spread over time. Each endpoint has a fixed phase within the interval, given by
// its name, so that neither a start nor a reload probes all at once. Only the first probes are made as early as
// firstEvery allows, because nothing is known of an endpoint before. A Checker has one goroutine, and one for each probe.
// It is safe for concurrent use.
type Checker struct {
	scheduler  *Scheduler
	concurrent int
	seed       uint64
	wake       chan struct{}
	ctx        context.Context // of all probes
	cancel     context.CancelFunc
	ended      sync.WaitGroup

	mu        sync.Mutex
	running   int   // probes in progress
	unhealthy int   // unhealthy checks
	first     int64 // earliest time of the first probe of the next endpoint
	queue     checkQueue
	asleep    int64 // time until which the goroutine of run sleeps; awake if it does not
}

// NewChecker returns a Checker that watches nothing, and must be closed. The Scheduler gives it the clock, and must outlive
// it.
func NewChecker(k *Scheduler, cfg *CheckerConfig) *Checker {
	c := newChecker(k, cfg)
	c.ended.Go(func() { runTimer(c.ctx.Done(), c.wake, k.cfg.Now, c.step) })
	return c
}

// newChecker returns a Checker without its goroutine.
func newChecker(k *Scheduler, cfg *CheckerConfig) *Checker {
	c := &Checker{scheduler: k, wake: make(chan struct{}, 1), asleep: awake}
	c.concurrent, c.seed = cmp.Or(max(cfg.Concurrent, 0), 4096), cmp.Or(cfg.Seed, rand.Uint64())
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends all probes, and returns when their goroutines have ended. The results stay. It
// may be called again.
func (c *Checker) Close() {
	c.cancel()
	c.ended.Wait()
}

// firstEvery is the time between first probes that do not wait for their phase.
const firstEvery = 5 * time.Millisecond

// Watch adds an endpoint, which is probed soon, and then in its phase. name identifies it in transitions, and determines its
// phase. It is healthy until its probes say otherwise.
func (c *Checker) Watch(name string, t Target, cfg *CheckConfig) *Check {
	ch := &Check{checker: c, name: name, target: t, at: -1}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.scheduler.cfg.Now()
	ch.configure(cfg, now)
	if c.first = max(c.first, now); ch.due > c.first {
		ch.due, ch.fast = c.first, true
		c.first += int64(firstEvery)
	}
	c.enqueue(ch)
	return ch
}

// enqueue adds a check to the queue. The Checker is locked.
func (c *Checker) enqueue(ch *Check) {
	heap.Push(&c.queue, ch)
	c.moved(ch)
}

// moved is called when the time of a queued check has changed. The Checker is locked.
func (c *Checker) moved(ch *Check) {
	heap.Fix(&c.queue, ch.at)
	if ch.due < c.asleep {
		nudge(c.wake)
	}
}

// step begins the probes that are due, and returns the time of its next call, unless a wake
// comes before.
func (c *Checker) step(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && c.queue[0].due <= now && c.running < c.concurrent {
		c.begin(heap.Pop(&c.queue).(*Check), now)
	}
	c.asleep = never // a new check or the end of a probe wakes it
	if len(c.queue) > 0 && c.running < c.concurrent {
		c.asleep = c.queue[0].due
	}
	return c.asleep
}

// begin starts a probe. The Checker is locked.
func (c *Checker) begin(ch *Check, now int64) {
	c.running++
	cfg := ch.cfg
	ctx, cancel := context.WithTimeout(c.ctx, cfg.Timeout)
	ch.cancel, ch.began = cancel, now
	c.ended.Go(func() {
		defer cancel()
		err := cfg.Probe.Probe(ctx)
		c.finish(ch, cfg, now, timedOut(err, ctx, cfg))
	})
}

func (c *Checker) finish(ch *Check, cfg *CheckConfig, began int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
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

// A Check is an endpoint that a [Checker] watches. It is safe for concurrent use. The
// Checker's mutex guards everything below its name.
type Check struct {
	checker *Checker
	name    string
	target  Target

	cfg     *CheckConfig
	phase   phase
	verdict verdict
	due     int64
	fast    bool               // due by the fast interval
	began   int64              // start of the last probe
	hurried int64              // latest start of the next probe, if later than the start of the present one
	at      int                // index in the queue; -1 while it is probed
	cancel  context.CancelFunc // of its probe, if one is running
	stopped bool
	err     error // of the last probe
	damper  damper

	no, barred bool // the last answer was no; the target was notified that it is barred
	standby    bool // the last no came from a standby; other results change this only after Fall in a row
	unlike     int  // number of such results in a row

	assured atomic.Int64 // a time at which a probe begins, or has begun
}

// CheckStatus is the status of an endpoint that is watched.
type CheckStatus struct {
	// Standby says that it is not healthy because it answers as a standby does.
	Standby bool
	// Streak is the number of probes in a row that contradict its health. Rise successes make an endpoint healthy.
	Streak, Rise int
	// Since is the time of the last reported change of its health or of Standby, by the Scheduler's clock.
	Since int64
	// Err is the error of the last probe; nil: it succeeded, or there was none.
	Err error
}

// Status returns the endpoint's status.
func (ch *Check) Status() CheckStatus {
	ch.checker.mu.Lock()
	defer ch.checker.mu.Unlock()
	return CheckStatus{
		Standby: ch.verdict.unhealthy && ch.standby, Streak: ch.verdict.streak, Rise: max(ch.cfg.Rise, 1),
		Since: ch.damper.last().Time, Err: ch.err,
	}
}

// Configure replaces the configuration. Results so far stay; the phase stays if the interval does.
func (ch *Check) Configure(cfg *CheckConfig) {
	c := ch.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.stopped {
		return
	}
	ch.configure(cfg, c.scheduler.cfg.Now())
	if ch.at >= 0 {
		c.moved(ch)
	}
}

// configure sets the configuration. The Checker is locked.
func (ch *Check) configure(cfg *CheckConfig, now int64) {
	rescheduled := ch.cfg == nil || ch.cfg.Interval != cfg.Interval || ch.cfg.Jitter != cfg.Jitter
	if ch.cfg = cfg; rescheduled {
		ch.phase = newPhase(ch.name, ch.checker.seed, cfg.Interval, cfg.Jitter)
		ch.schedule(ch.began, now)
	}
}

// Stop ends the watching. If the endpoint is unhealthy, its Target is set healthy, since no
// check reports on it any more. After that the Target is not called. Stop may be called again.
func (ch *Check) Stop() {
	c := ch.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.stopped {
		return
	}
	ch.stopped = true
	if ch.at >= 0 {
		heap.Remove(&c.queue, ch.at)
	}
	if ch.cancel != nil {
		ch.cancel()
	}
	if ch.verdict.unhealthy {
		ch.verdict = verdict{}
		c.unhealthy--
		ch.target.SetHealthy(true)
	}
	ch.no = false
	ch.bar()
}

// Hurry schedules a probe soon after now, after a failure of a connection: at once, or a fast interval after the last probe
// began. If such a probe is due anyway, Hurry costs next to nothing. It never waits for a probe.
func (ch *Check) Hurry(now int64) {
	if now <= ch.assured.Load() {
		return
	}
	c := ch.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.stopped {
		return
	}
	at := max(now, ch.began+int64(ch.cfg.FastInterval))
	ch.assured.Store(at)
	switch {
	case ch.at < 0:
		ch.hurried = at
	case ch.due > at:
		ch.due, ch.fast = at, true
		c.moved(ch)
	}
}

// found records the result of a probe made under cfg, and schedules the next one. The Checker
// is locked.
func (ch *Check) found(cfg *CheckConfig, err error, began, now int64) {
	if ch.err = err; ownFault(err) {
		ch.schedule(began, now)
		return
	}
	ch.observe(cfg, err, began)
	first := !ch.verdict.known
	changed, before := ch.verdict.take(err == nil, cfg.Rise, cfg.Fall), ch.standby
	ch.hear(cfg, err)
	if changed {
		if ch.checker.unhealthy++; !ch.verdict.unhealthy {
			ch.checker.unhealthy -= 2
		}
		ch.target.SetHealthy(!ch.verdict.unhealthy)
	}
	if changed || ch.verdict.unhealthy && err != nil && ch.standby != before {
		ch.report(cfg, err, first, now)
	}
	ch.schedule(began, now)
}

// observe notifies a [ProbeObserver] of a probe.
func (ch *Check) observe(cfg *CheckConfig, err error, began int64) {
	w, ok := ch.target.(ProbeObserver)
	switch {
	case !ok:
	case err == nil:
		w.Passed(began, cfg)
	case errors.Is(err, ErrConnect):
		w.Unreached(cfg)
	}
}

// hear records the answer to a probe.
func (ch *Check) hear(cfg *CheckConfig, err error) {
	switch {
	case err == nil || !cfg.Answered:
		ch.no = false
	case cfg.Strict || errors.Is(err, ErrAnswer):
		ch.no = true
	}
	if err != nil && errors.Is(err, ErrStandby) {
		ch.standby, ch.unlike = true, 0
	} else if ch.unlike++; err == nil && !ch.verdict.unhealthy || err != nil && ch.unlike >= max(cfg.Fall, 1) {
		ch.standby = false
	}
	ch.bar()
}

// bar tells the target whether it is barred, before the target is set unhealthy.
func (ch *Check) bar() {
	barred := ch.no && ch.verdict.unhealthy
	if w, ok := ch.target.(ProbeObserver); ok && barred != ch.barred {
		ch.barred = barred
		w.SetBarred(barred)
	}
}

// schedule sets the time of the next probe. The last one began at began. If the endpoint is unhealthy or
// about to change its state, the next probe is soon, otherwise it follows the endpoint's phase.
func (ch *Check) schedule(began, now int64) {
	after := now
	if ch.fast {
		after = max(now, began+int64(ch.cfg.Interval)/2) // not directly after the last fast probe
	}
	if ch.fast = ch.verdict.streak > 0 || ch.verdict.unhealthy; ch.fast {
		ch.due = max(ch.phase.soon(began, ch.spacing()), now)
	} else {
		ch.due = ch.phase.next(after)
	}
	if ch.hurried > began {
		ch.due, ch.fast = min(ch.due, max(ch.hurried, now)), true
	}
}

// unhealthyEvery is the least mean interval between the probes of all unhealthy endpoints together.
const unhealthyEvery = 2 * time.Millisecond

// spacing returns the interval of fast probes. If many endpoints are unhealthy they are probed less often than
// FastInterval, but not less often than healthy endpoints: they take at most half of the concurrent probes, though each may
// take one for its whole Timeout.
func (ch *Check) spacing() time.Duration {
	if ch.verdict.streak > 0 {
		return ch.cfg.FastInterval
	}
	c := ch.checker
	each := max(unhealthyEvery, 2*ch.cfg.Timeout/time.Duration(c.concurrent))
	return min(max(ch.cfg.FastInterval, time.Duration(c.unhealthy)*each), max(ch.cfg.Interval, ch.cfg.FastInterval))
}

// report logs the new state after a probe that has ended with err. first says that it was the first probe.
func (ch *Check) report(cfg *CheckConfig, err error, first bool, now int64) {
	t := Transition{Subject: ch.name, Kind: Health, State: "healthy", Time: now, Cause: inAStreak(max(cfg.Rise, 1), "check") + " succeeded"}
	switch {
	case err != nil && ch.standby:
		t.State, t.Cause = "standby", errStandby.Error()
	case err != nil:
		t.State, t.Bad = "unhealthy", true
		t.Cause = fmt.Sprintf("%s failed, the last: %v", inAStreak(max(cfg.Fall, 1), "check"), err)
		if first {
			t.Cause = fmt.Sprintf("its first check failed: %v", err)
		}
	}
	ch.checker.scheduler.note(&ch.damper, t)
}

// A verdict is the result of probes in a row. The first probe decides alone, because nothing is known before it.
type verdict struct {
	unhealthy bool
	known     bool // there was a probe
	streak    int  // of probes that contradict unhealthy
}

// take counts a probe, and reports whether it changes the verdict.
func (v *verdict) take(ok bool, rise, fall int) bool {
	if !v.known {
		v.known, fall = true, 1
	}
	if ok != v.unhealthy {
		v.streak = 0
		return false
	}
	v.streak++
	enough := fall
	if v.unhealthy {
		enough = rise
	}
	if v.streak < enough {
		return false
	}
	v.unhealthy, v.streak = !v.unhealthy, 0
	return true
}

// ownFault reports whether a probe failed for lack of a resource of this machine. Such a
// failure says nothing about the endpoint.
func ownFault(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// timedOut wraps an error of a probe that its deadline has caused; other errors it returns unchanged. Descriptors may
// notice the deadline before ctx does.
func timedOut(err error, ctx context.Context, cfg *CheckConfig) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if errors.Is(err, ErrAnswer) && errors.Is(err, os.ErrDeadlineExceeded) { // it says what did not come
		return fmt.Errorf("%w within %v", err, cfg.Timeout)
	}
	if errors.As(err, new(unread)) {
		return fmt.Errorf("no answer within %v", cfg.Timeout)
	}
	return fmt.Errorf("no success within %v: %w", cfg.Timeout, err)
}

// A phase determines the time of the probe in each interval: an offset that depends on the endpoint's name, plus a part of
// the jitter that differs each time.
type phase struct {
	hash     uint64
	interval int64
	offset   int64
	jitter   float64
}

func newPhase(name string, seed uint64, interval time.Duration, jitter float64) phase {
	p := phase{hash: xxh3.HashStringSeed(name, seed), interval: max(int64(interval), 1)}
	p.jitter = min(max(jitter, 0), 1)
	p.offset = int64(p.hash % uint64(p.interval))
	return p
}

// next returns the first probe time after now.
func (p *phase) next(now int64) int64 {
	for k := (now-p.offset)/p.interval - 1; ; k++ {
		if at := p.at(k); at > now {
			return at
		}
	}
}

// at returns the probe time of the k-th interval.
func (p *phase) at(k int64) int64 {
	return p.offset + k*p.interval + int64(p.jitter*p.random(k)*float64(p.interval))
}

// soon returns the time of a probe that follows now after another interval than the phase's.
func (p *phase) soon(now int64, interval time.Duration) int64 {
	return now + int64(float64(interval)*(1-p.jitter*p.random(now)))
}

// random returns a number below 1 that depends only on the endpoint and k: the finish of splitmix64.
func (p *phase) random(k int64) float64 {
	x := p.hash + uint64(k)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return math.Ldexp(float64((x^x>>31)>>11), -53)
}
