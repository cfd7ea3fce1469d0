package health

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

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
	hurried int64              // the latest start of the next probe, if that is after the present one began
	at      int                // index in the queue; -1 while it is probed
	cancel  context.CancelFunc // of its probe, if one is running
	stopped bool
	status  CheckStatus
	damper  damper

	no, barred bool // the last answer was no; the target was notified that it is barred
	standby    bool // the last no was that of a standby; kept until Fall other results in a row
	unlike     int  // such results in a row

	assured atomic.Int64 // a time at which a probe begins, or has begun
}

// CheckStatus is the status of an endpoint that is watched.
type CheckStatus struct {
	Healthy bool
	// Standby says that it is not Healthy because it answers as a standby does.
	Standby bool
	// Streak is the number of probes in a row that contradict Healthy.
	Streak int
	// Probes counts the probes that ended, Failed those that failed by the endpoint's fault,
	// Transitions the changes of Healthy.
	Probes, Failed, Transitions int64
	// Last is the end of the last probe, and Took its duration. Err is nil if it succeeded.
	Last int64
	Took time.Duration
	Err  error
}

// Status returns the endpoint's status.
func (ch *Check) Status() CheckStatus {
	ch.checker.mu.Lock()
	defer ch.checker.mu.Unlock()
	s := ch.status
	s.Healthy, s.Streak = !ch.verdict.unhealthy, ch.verdict.streak
	s.Standby = ch.verdict.unhealthy && ch.standby
	return s
}

// Configure replaces the configuration. Results until now stay; the phase stays if the
// interval does.
func (ch *Check) Configure(cfg *CheckConfig) {
	c := ch.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.stopped {
		return
	}
	ch.configure(cfg, c.scheduler.cfg.Now())
	if ch.at >= 0 {
		heap.Fix(&c.queue, ch.at)
		if ch.due < c.asleep {
			nudge(c.wake)
		}
	}
}

// configure sets the configuration. The Checker is locked.
func (ch *Check) configure(cfg *CheckConfig, now int64) {
	if ch.cfg == nil || ch.cfg.Interval != cfg.Interval || ch.cfg.Jitter != cfg.Jitter {
		ch.phase = newPhase(ch.name, ch.checker.seed, cfg.Interval, cfg.Jitter)
		ch.due = ch.phase.next(now)
	}
	ch.cfg = cfg
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
	c.checks--
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

// Hurry schedules a probe soon after now, after a failure of a connection: at once, or a fast interval
// after the last probe began. If such a probe is due anyway it costs next to nothing; it never
// waits for a probe.
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
		heap.Fix(&c.queue, ch.at)
		if at < c.asleep {
			nudge(c.wake)
		}
	}
}

// found records the result of a probe made under cfg, and schedules the next one. The Checker
// is locked.
func (ch *Check) found(cfg *CheckConfig, err error, began, now int64) {
	s := &ch.status
	s.Probes++
	s.Last, s.Took, s.Err = now, time.Duration(now-began), err
	switch {
	case ownFault(err):
		ch.checker.stats.Spared++
		ch.due = ch.phase.next(now)
		return
	case err != nil:
		s.Failed++
		ch.checker.stats.Failed++
	}
	ch.observe(cfg, err, began)
	changed, before := ch.verdict.take(err == nil, cfg.Rise, cfg.Fall), ch.standby
	ch.hear(cfg, err)
	if changed {
		s.Transitions++
		ch.checker.unhealthy += ch.verdict.one()
		ch.target.SetHealthy(!ch.verdict.unhealthy)
	}
	if changed || ch.verdict.unhealthy && err != nil && ch.standby != before {
		ch.report(cfg, err, now)
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

// bar notifies the target whether it is barred, before it is set unhealthy.
func (ch *Check) bar() {
	barred := ch.no && ch.verdict.unhealthy
	if w, ok := ch.target.(ProbeObserver); ok && barred != ch.barred {
		ch.barred = barred
		w.SetBarred(barred)
	}
}

// schedule sets the time of the next probe, after one that began and ended then. While the
// endpoint is unhealthy or about to change its state the next one is soon, otherwise by its
// phase.
func (ch *Check) schedule(began, now int64) {
	after := now
	if ch.fast {
		after = max(now, began+int64(ch.cfg.Interval)/2) // not at once after the last of the fast ones
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

// unhealthyEvery is the least mean interval between the probes of unhealthy endpoints, all of
// them together.
const unhealthyEvery = 2 * time.Millisecond

// spacing returns the interval of fast probes. If many endpoints are unhealthy they are probed
// less often than FastInterval, but not less than healthy ones: they take at most half of the
// concurrent probes, though each may take one for its whole Timeout.
func (ch *Check) spacing() time.Duration {
	if ch.verdict.streak > 0 {
		return ch.cfg.FastInterval
	}
	c := ch.checker
	each := max(unhealthyEvery, 2*ch.cfg.Timeout/time.Duration(c.concurrent))
	return min(max(ch.cfg.FastInterval, time.Duration(c.unhealthy)*each), max(ch.cfg.Interval, ch.cfg.FastInterval))
}

func (ch *Check) report(cfg *CheckConfig, err error, now int64) {
	t := Transition{Subject: ch.name, Kind: Health, State: "healthy", Time: now, Cause: inAStreak(max(cfg.Rise, 1), "check") + " succeeded"}
	switch {
	case err != nil && ch.standby:
		t.State, t.Cause = "standby", fmt.Sprintf("its check has the answer of a standby: %v", err)
	case err != nil:
		t.State, t.Bad = "unhealthy", true
		t.Cause = fmt.Sprintf("%s failed, the last: %v", inAStreak(max(cfg.Fall, 1), "check"), err)
	}
	ch.checker.scheduler.note(&ch.damper, t)
}

// A verdict is the result of probes in a row.
type verdict struct {
	unhealthy bool
	streak    int // of probes that contradict unhealthy
}

// take counts a probe, and reports whether it changes the verdict.
func (v *verdict) take(ok bool, rise, fall int) bool {
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

// one returns the change of the number of unhealthy endpoints when v has changed.
func (v *verdict) one() int {
	if v.unhealthy {
		return 1
	}
	return -1
}

// ownFault reports whether a probe failed for lack of a resource of this machine. Such a
// failure says nothing about the endpoint.
func ownFault(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// timedOut wraps an error of a probe that is caused by its deadline, and returns any other as
// it is. Descriptors may notice that before ctx does.
func timedOut(err error, ctx context.Context, cfg *CheckConfig) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no success within %v: %w", cfg.Timeout, err)
}
