package health

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// SchedulerConfig configures a [Scheduler].
type SchedulerConfig struct {
	// Now is the clock, in nanoseconds, by which connections are reported. Nil means time
	// since the Scheduler was made.
	Now func() int64

	// Report is called once for each transition. Repeated ones are limited to one in ReportEvery
	// of each kind of each subject; see [Flap]. It is called by one goroutine that does
	// nothing else, so it may wait. May be nil.
	Report func(Transition)

	// TellEvery is that interval; 0 means that all are reported.
	ReportEvery time.Duration
}

// A Scheduler runs timers: it ends ejections, lets breakers make trials, and reports
// transitions. One serves a whole process. It has a goroutine that sleeps until a timer is
// due, and one that reports. It is safe for concurrent use.
type Scheduler struct {
	cfg      SchedulerConfig
	noted    atomic.Int64
	wake     chan struct{} // of the timer goroutine
	notifier notifier
	stop     chan struct{}
	ended    sync.WaitGroup

	mu     sync.Mutex
	due    dueHeap
	asleep int64 // until when the timer goroutine sleeps; awake if it does not
	closed bool
}

// NewScheduler returns a Scheduler. It must be closed after all its users.
func NewScheduler(cfg *SchedulerConfig) *Scheduler {
	k := newScheduler(cfg)
	k.ended.Go(k.run)
	k.ended.Go(func() { k.notifier.run(k.stop) })
	return k
}

// newScheduler returns a Scheduler without goroutines.
func newScheduler(cfg *SchedulerConfig) *Scheduler {
	k := &Scheduler{cfg: *cfg, wake: make(chan struct{}, 1), stop: make(chan struct{}), asleep: awake}
	if k.cfg.Now == nil {
		start := time.Now()
		k.cfg.Now = func() int64 { return int64(time.Since(start)) }
	}
	k.notifier.report, k.notifier.wake = k.cfg.Report, make(chan struct{}, 1)
	return k
}

// Transitions returns the number of transitions, reported or not.
func (k *Scheduler) Transitions() int64 { return k.noted.Load() }

// Close ends the Scheduler. It returns when its goroutines have ended and all transitions have
// been reported, those that a Flap holds included. Endpoints that are ejected and breakers
// that are open then stay so. It is called once, and not by Report.
func (k *Scheduler) Close() {
	k.mu.Lock()
	k.closed = true
	left := k.due
	k.due = nil
	k.mu.Unlock()
	for _, what := range left {
		if d, ok := what.what.(*damper); ok {
			d.rest()
		}
	}
	close(k.stop)
	k.ended.Wait()
}

// run is the timer goroutine.
func (k *Scheduler) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-k.wake:
		case <-timer.C:
		}
		now := k.cfg.Now()
		if next := k.step(now); next != never {
			timer.Reset(time.Duration(max(next-now, 0)))
		}
	}
}

// step runs the timers that are due, and returns the time of its next call.
func (k *Scheduler) step(now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asleep = awake
	for len(k.due) > 0 && k.due[0].at <= now {
		what := heap.Pop(&k.due).(due).what
		k.mu.Unlock()
		what.expire(now)
		k.mu.Lock()
	}
	k.asleep = never
	if len(k.due) > 0 {
		k.asleep = k.due[0].at
	}
	return k.asleep
}

// at schedules a call of what.expire.
func (k *Scheduler) at(when int64, what timed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	heap.Push(&k.due, due{when, what})
	if when < k.asleep {
		nudge(k.wake)
	}
}

// nudge wakes a goroutine, to look for work again.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// note takes a transition, to be reported as its damper allows.
func (k *Scheduler) note(d *damper, t Transition) {
	k.noted.Add(1)
	if next, held := d.note(k, t); held {
		k.at(next, d)
	}
}

// A damper is the Flap of one kind of transitions of one subject. Most subjects never need a
// Flap.
type damper struct {
	mu        sync.Mutex
	flap      *flapping // nil before the first transition
	scheduler *Scheduler
	muted     bool // transitions are not reported
}

type flapping struct {
	Flap
	last Transition
	said string // the state of the last transition that was not muted
}

// mute turns reports off or on. When they are turned on, the last transition is reported if
// its state differs from the one reported last.
func (d *damper) mute(k *Scheduler, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.muted = on; on || d.flap == nil || k.cfg.Report == nil {
		return
	}
	last := d.flap.last
	if last.State == d.flap.said || d.flap.said == "" && !last.Bad {
		return
	}
	if next, held := d.report(last); held {
		k.at(next, d)
	}
}

// note reports a transition. If it is held, and none was before, note returns the time at
// which it is to be reported.
func (d *damper) note(k *Scheduler, t Transition) (next int64, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flap == nil {
		d.flap, d.scheduler = new(flapping), k
	}
	d.flap.last = t
	if k.cfg.Report == nil || d.muted {
		return 0, false
	}
	return d.report(t)
}

// report is note for a transition that is not muted. The damper is locked.
func (d *damper) report(t Transition) (next int64, held bool) {
	k := d.scheduler
	d.flap.said = t.State
	_, waiting := d.flap.Next(k.cfg.ReportEvery)
	if t, ok := d.flap.Note(t, k.cfg.ReportEvery); ok {
		k.notifier.queue(t)
		return 0, false
	}
	next, _ = d.flap.Next(k.cfg.ReportEvery)
	return next, !waiting
}

// expire reports the held transition.
func (d *damper) expire(now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.flap.Due(now, d.scheduler.cfg.ReportEvery); ok {
		d.scheduler.notifier.queue(t)
	}
}

// rest reports the held transition, because the Scheduler closes.
func (d *damper) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t, ok := d.flap.Rest(); ok {
		d.scheduler.notifier.queue(t)
	}
}
