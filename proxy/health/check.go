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

// A Check is an endpoint that a [Checker] watches. It is safe for concurrent use.
// Everything below its name is guarded by the Checker's mutex.
type Check struct {
	checker *Checker
	name    string
	target  Target

	cfg     *CheckConfig
	phase   phase
	verdict verdict
	due     int64
	fast    bool               // due by the fast interval
	began   int64              // the last probe
	hurried int64              // when the next probe is due at the latest, if that is after the present one began
	at      int                // its place in the queue; -1 while it is probed
	cancel  context.CancelFunc // of its probe, if there is one
	stopped bool
	status  CheckStatus
	damper  damper

	no, barred bool // the last answer was; the target was told that it is barred

	assured atomic.Int64 // a time at which a probe begins, or has begun
}

// CheckStatus is what is known of an endpoint that is watched.
type CheckStatus struct {
	Healthy bool
	// Streak is how many probes in a row say otherwise.
	Streak int
	// Probes counts those that came to an end, Failed those that failed by the endpoint's
	// fault, Transitions the changes of Healthy.
	Probes, Failed, Transitions int64
	// Last is when the last probe ended, and Took how long it took. Err is nil if it
	// succeeded.
	Last int64
	Took time.Duration
	Err  error
}

// Status returns what is known.
func (ch *Check) Status() CheckStatus {
	ch.checker.mu.Lock()
	defer ch.checker.mu.Unlock()
	s := ch.status
	s.Healthy, s.Streak = !ch.verdict.unhealthy, ch.verdict.streak
	return s
}

// Configure replaces how the endpoint is asked; what was found until now stays, and
// so does its phase if the interval does.
func (ch *Check) Configure(cfg *CheckConfig) {
	c := ch.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.stopped {
		return
	}
	ch.configure(cfg, c.keeper.cfg.Now())
	if ch.at >= 0 {
		heap.Fix(&c.queue, ch.at)
		if ch.due < c.asleep {
			nudge(c.wake)
		}
	}
}

// configure takes a configuration. The Checker is locked.
func (ch *Check) configure(cfg *CheckConfig, now int64) {
	if ch.cfg == nil || ch.cfg.Interval != cfg.Interval || ch.cfg.Jitter != cfg.Jitter {
		ch.phase = newPhase(ch.name, ch.checker.seed, cfg.Interval, cfg.Jitter)
		ch.due = ch.phase.next(now)
	}
	ch.cfg = cfg
}

// Stop ends the watching. An endpoint that is unhealthy is told that it is not any more,
// since nobody says so; after that the Target is not called. Stop may be called again.
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
		c.ill--
		ch.target.SetHealthy(true)
	}
	ch.no = false
	ch.bar()
}

// Hurry has the endpoint asked soon after now, by whoever could not connect to it: at once,
// or a fast interval after it was asked last. If that is going to be done anyway it costs
// next to nothing; it never waits for a probe.
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

// found takes what a probe came to that was made under cfg, and says when the next is
// due. The Checker is locked.
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
	if w, ok := ch.target.(Witness); ok && err == nil {
		w.Passed(began, cfg)
	}
	changed := ch.verdict.take(err == nil, cfg.Rise, cfg.Fall)
	ch.hear(cfg, err)
	if changed {
		s.Transitions++
		ch.checker.ill += ch.verdict.one()
		ch.target.SetHealthy(!ch.verdict.unhealthy)
		ch.tell(cfg, err, now)
	}
	ch.schedule(began, now)
}

// hear takes what a probe was answered.
func (ch *Check) hear(cfg *CheckConfig, err error) {
	switch {
	case err == nil || !cfg.Answered:
		ch.no = false
	case cfg.Strict || errors.Is(err, ErrAnswer):
		ch.no = true
	}
	ch.bar()
}

// bar tells the target whether it is barred, before it is told that it is unhealthy.
func (ch *Check) bar() {
	barred := ch.no && ch.verdict.unhealthy
	if w, ok := ch.target.(Witness); ok && barred != ch.barred {
		ch.barred = barred
		w.SetBarred(barred)
	}
}

// schedule says when the next probe is due after one that began and ended then: soon,
// while the endpoint is unhealthy or about to change its state, or when its phase says.
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

// illEvery is how far apart in the mean the probes of unhealthy endpoints are at least, all
// of them together.
const illEvery = 2 * time.Millisecond

// spacing is the fast interval. Where many are unhealthy they are asked less often than
// that, but not less than others: they take no more than half of the places for probes, though
// each may take one for its whole time.
func (ch *Check) spacing() time.Duration {
	if ch.verdict.streak > 0 {
		return ch.cfg.FastInterval
	}
	c := ch.checker
	each := max(illEvery, 2*ch.cfg.Timeout/time.Duration(c.concurrent))
	return min(max(ch.cfg.FastInterval, time.Duration(c.ill)*each), max(ch.cfg.Interval, ch.cfg.FastInterval))
}

// tell tells of a transition.
func (ch *Check) tell(cfg *CheckConfig, err error, now int64) {
	t := Transition{Subject: ch.name, What: Health, State: "healthy", Time: now, Cause: inARow(max(cfg.Rise, 1), "check") + " succeeded"}
	if err != nil {
		t.State, t.Bad = "unhealthy", true
		t.Cause = fmt.Sprintf("%s failed, the last: %v", inARow(max(cfg.Fall, 1), "check"), err)
	}
	ch.checker.keeper.note(&ch.damper, t)
}

// A verdict is what probes say, in a row.
type verdict struct {
	unhealthy bool
	streak    int // of probes that say otherwise
}

// take takes a probe, and reports whether it changes the verdict.
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

// one is what a change to it adds to the number of unhealthy endpoints.
func (v *verdict) one() int {
	if v.unhealthy {
		return 1
	}
	return -1
}

// ownFault reports whether a probe failed for want of something on this machine, which
// says nothing of the endpoint.
func ownFault(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// timedOut says of an error of a probe that it is the end of its time. Descriptors may
// notice that before ctx does.
func timedOut(err error, ctx context.Context, cfg *CheckConfig) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no success within %v: %w", cfg.Timeout, err)
}
