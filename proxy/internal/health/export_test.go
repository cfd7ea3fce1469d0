package health

import (
	"syscall"
	"time"
)

// FailConnect makes each connect of the Probe fail.
func (p *Probe) FailConnect(by error) {
	p.dialer.Control = func(string, string, syscall.RawConn) error { return by }
}

// A Window is a window.
type Window = window

func NewWindow(length time.Duration) *Window { return newWindow(length) }

func (w *window) Add(now int64, failed bool)        { w.add(now, failed) }
func (w *window) Sum(now int64) (ok, failed uint64) { return w.sum(now) }
func (w *window) Width() int64                      { return w.width }
func TooMany(ok, failed uint64, percent float64, vol int) bool {
	return tooMany(ok, failed, percent, vol)
}

// Preset sets the counts of the slot of a time.
func (w *window) Preset(now int64, ok, failed uint64) {
	slot, turn := w.at(now)
	slot.Store(turn | failed<<okBits | ok)
}

const (
	Slots = slots
	Full  = full
	Never = never
)

// NewIdleKeeper returns a Scheduler without goroutines. Step runs the timers that are due. Told
// returns the reports since its last call.
func NewIdleKeeper(cfg *SchedulerConfig) *Scheduler { return newScheduler(cfg) }

func (k *Scheduler) Step() int64 { return k.step(k.cfg.Now()) }

func (k *Scheduler) Told() []Transition {
	k.notifier.mu.Lock()
	defer k.notifier.mu.Unlock()
	told := k.notifier.pending
	k.notifier.pending = nil
	return told
}

// NewIdleChecker returns a Checker without its goroutine: Step begins the probes that are due
// and waits until they have ended.
func NewIdleChecker(k *Scheduler, cfg *CheckerConfig) *Checker { return newChecker(k, cfg) }

func (c *Checker) Step() int64 {
	next := c.step(c.scheduler.cfg.Now())
	c.ended.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		next = c.queue[0].due
	}
	return next
}

// Asleep reports whether the Checker sleeps for at least a minute.
func (c *Checker) Asleep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep > c.scheduler.cfg.Now()+int64(time.Minute)
}

// Asleep reports whether the Scheduler sleeps for at least a minute.
func (k *Scheduler) Asleep() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asleep > k.cfg.Now()+int64(time.Minute)
}

func (cfg *UnansweredConfig) Probe() time.Duration { return cfg.probe() }

// Suspicions returns the number of times that an endpoint began to be suspected: its clients'
// requests alone would have ejected it.
func (u *Unanswered) Suspicions() int { return u.suspicions }

// A Blame is a blame.
type Blame = blame

func (b *blame) Note(from Source)         { b.note(from) }
func (b *blame) Worst() (Source, float64) { return b.worst() }
func (b *blame) Forget()                  { b.forget() }

// Left returns how many checks wait for their time, and how many are probed.
func (c *Checker) Left() (queued, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue), c.running
}

// Healthy reports what the probes so far say.
func (ch *Check) Healthy() bool {
	ch.checker.mu.Lock()
	defer ch.checker.mu.Unlock()
	return !ch.verdict.unhealthy
}

// Add adds an endpoint. Its transitions call it subject.
func (o *OutlierDetector) Add(subject string, t Target) *OutlierMonitor {
	m := o.NewMonitor(subject, t)
	o.Join(m)
	return m
}

// Report reports the outcome of a connection of no source: every failure counts against the endpoint.
func (m *OutlierMonitor) Report(o Outcome, now int64) { m.report(NoSource, o, now) }
