package health

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// SchedulerConfig configures a [Scheduler].
type SchedulerConfig struct {
	// Now is the clock by which connections are reported, in nanoseconds. Nil means the time since the Scheduler was made.
	Now func() int64

	// Report is called once for each transition. Repeated transitions of one kind and subject are limited to one in
	// ReportEvery; see [Flap]. A goroutine that does nothing else calls Report, so it may wait. It may be nil.
	Report func(Transition)

	// ReportEvery is that interval; 0: all transitions are reported.
	ReportEvery time.Duration
}

// A Scheduler runs timers: it ends ejections, lets breakers make trials, and reports
// transitions. One Scheduler serves a whole process. It has two goroutines: one sleeps until a
// timer is due, the other reports. It is safe for concurrent use.
type Scheduler struct {
	Transitions atomic.Int64 // reported or not

	cfg      SchedulerConfig
	wake     chan struct{} // of the timer goroutine
	notifier notifier
	stop     chan struct{}
	ended    sync.WaitGroup

	mu     sync.Mutex
	due    dueHeap
	asleep int64 // time until which the timer goroutine sleeps; awake if it does not
	closed bool
}

// NewScheduler returns a Scheduler. It must be closed after all its users.
func NewScheduler(cfg *SchedulerConfig) *Scheduler {
	k := newScheduler(cfg)
	k.ended.Go(func() { runTimer(k.stop, k.wake, k.cfg.Now, k.step) })
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

// Close ends the Scheduler. It returns when its goroutines have ended and all transitions have been reported, including the
// ones held by a Flap. Ejected endpoints stay ejected, and open breakers open. Close is called once, and not by Report.
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

// runTimer calls step when it is due or woken, until stop. step returns the time of its next call.
func runTimer(stop, wake <-chan struct{}, clock func() int64, step func(now int64) int64) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-wake:
		case <-timer.C:
		}
		now := clock()
		if next := step(now); next != never {
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

// nudge wakes a goroutine, which then looks for work.
func nudge(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// note takes a transition. It is reported when its damper allows it.
func (k *Scheduler) note(d *damper, t Transition) {
	k.Transitions.Add(1)
	if next, held := d.note(k, t); held {
		k.at(next, d)
	}
}

// A damper suppresses repeated transitions of one kind for one subject, by a [Flap]. Most subjects never need a Flap.
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

// mute turns reports off or on. When they are turned on, the last transition is reported if its state differs from the last
// reported one.
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

// note reports a transition. If it is the first one to be held, note returns the time at which to report it.
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

// A timed is an action that is due at a time. A Scheduler's goroutine calls expire once for
// each time that was set with at. expire must check whether the action is still due.
type timed interface{ expire(now int64) }

// never is a time that does not come.
const never = 1<<63 - 1

// awake is a time before which nothing is due: a goroutine that runs is sent no wake.
const awake = -1 << 63

// due is an action and its time.
type due struct {
	at   int64
	what timed
}

// dueHeap is a heap, ordered by time.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	return x
}

// maxPending is the number of transitions that may be queued. Later ones are dropped.
const maxPending = 1 << 16

// A notifier reports transitions, on a goroutine of its own, because the report may wait for a stalled reader.
type notifier struct {
	report func(Transition)
	wake   chan struct{}

	mu      sync.Mutex
	pending []Transition
	lost    int // number of dropped transitions since the last one queued
}

// queue queues a transition. It never waits for the reader.
func (v *notifier) queue(t Transition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.pending) == maxPending {
		v.lost++
		return
	}
	t.Suppressed += v.lost
	v.lost = 0
	v.pending = append(v.pending, t)
	nudge(v.wake)
}

// run reports transitions until stop, and then the rest of the queue.
func (v *notifier) run(stop chan struct{}) {
	for {
		select {
		case <-stop:
			v.reportAll()
			return
		case <-v.wake:
			v.reportAll()
		}
	}
}

func (v *notifier) reportAll() {
	v.mu.Lock()
	untold := v.pending
	v.pending = nil
	v.mu.Unlock()
	for _, t := range untold {
		v.report(t)
	}
}

// TransitionKind is the kind of verdict that a [Transition] changes.
type TransitionKind uint8

const (
	Health    TransitionKind = iota // by a Checker
	Ejection                        // by an OutlierDetector
	Circuit                         // by a Breaker
	Panicking                       // by a Panic
	Answering                       // by an Unanswered
)

// String returns "health", "ejection", "circuit", "panic" or "answers".
func (w TransitionKind) String() string {
	return [...]string{"health", "ejection", "circuit", "panic", "answers"}[w]
}

// A Transition is a change of state of an endpoint or an upstream.
type Transition struct {
	// Subject is the name under which the Check, OutlierMonitor or Breaker was made.
	Subject string
	Kind    TransitionKind
	// State is the new state: "healthy", "unhealthy" or "standby", "returned" or "ejected", "closed", "open" or
	// "half-open", "calm" or "panic", "answering" or "silent".
	State string
	// Bad says that this is a change for the worse.
	Bad bool
	// Cause is the reason, in one line.
	Cause string
	// Time is by the Scheduler's clock.
	Time int64
	// Suppressed counts earlier transitions of the same kind and subject that were not
	// reported since the last reported one.
	Suppressed int
}

// Flap suppresses repeated transitions (flap damping). The first few are reported at once, so that a recovery is reported
// as soon as the failure before it. Later only the last transition of each interval is reported, with the number of the
// others. Each interval without a report allows one more immediate report. The zero value is ready. It belongs to one
// goroutine at a time.
type Flap struct {
	fullAt  int64      // time from which atOnce transitions may be reported again
	pending Transition // to be reported later, if there is one
	any     bool
}

// atOnce is the number of transitions reported before any is held: a failure, its recovery,
// and another failure.
const atOnce = 3

// Note takes a transition. If the transition may be reported at once, Note returns it with true. Otherwise it is held, and
// Due will return it.
func (f *Flap) Note(t Transition, every time.Duration) (Transition, bool) {
	if f.any {
		t.Suppressed = f.pending.Suppressed + 1
	}
	if f.any || t.Time < f.nextAllowed(every) {
		f.pending, f.any = t, true
		return t, false
	}
	f.count(t.Time, every)
	return t, true
}

// nextAllowed returns the time from which one more transition may be reported.
func (f *Flap) nextAllowed(every time.Duration) int64 { return f.fullAt - (atOnce-1)*int64(every) }

func (f *Flap) count(now int64, every time.Duration) { f.fullAt = max(f.fullAt, now) + int64(every) }

// Next returns the time from which Due returns a transition, and whether one is held at all.
func (f *Flap) Next(every time.Duration) (int64, bool) { return f.nextAllowed(every), f.any }

// Due returns the held transition, if it is to be reported now.
func (f *Flap) Due(now int64, every time.Duration) (Transition, bool) {
	if !f.any || now < f.nextAllowed(every) {
		return Transition{}, false
	}
	f.count(now, every)
	return f.Rest()
}

// Rest returns the held transition, if any, because Due will not be called any more.
func (f *Flap) Rest() (Transition, bool) {
	t, any := f.pending, f.any
	f.pending, f.any = Transition{}, false
	return t, any
}

// A Panic reports when an upstream begins and ends to use its endpoints regardless of their
// health, because too few are healthy. It is safe for concurrent use.
type Panic struct {
	keeper  *Scheduler
	subject string
	on      atomic.Bool  // written under mu
	Begun   atomic.Int64 // panics

	mu     sync.Mutex
	damper damper
}

// NewPanic returns the Panic of an upstream, calm. Its transitions call it subject.
func NewPanic(k *Scheduler, subject string) *Panic { return &Panic{keeper: k, subject: subject} }

// Look checks whether the upstream is in panic. see returns whether it is, how many endpoints are usable, and how many
// there are. Look must be called after each change of see's result. It locks only if something has changed, and calls see
// with the lock held.
func (p *Panic) Look(panicking bool, see func() (panicking bool, usable, of int)) {
	if panicking == p.on.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	on, usable, of := see()
	if on == p.on.Load() {
		return
	}
	p.on.Store(on)
	t := Transition{Subject: p.subject, Kind: Panicking, State: "calm", Time: p.keeper.cfg.Now()}
	if on {
		p.Begun.Add(1)
		t.State, t.Bad = "panic", true
	}
	t.Cause = fmt.Sprintf("%d of %d endpoints are usable", usable, of)
	p.keeper.note(&p.damper, t)
}
