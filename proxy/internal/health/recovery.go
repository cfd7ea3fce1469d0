package health

// A ProbeObserver is a [Target] that is also notified of the checks' answers, and of each
// check that succeeds or cannot connect, whether or not that changes a verdict. Its methods are called as a
// Target's are.
type ProbeObserver interface {
	Target
	// Passed is called for each check that succeeds, with the time at which it began.
	Passed(began int64, by *CheckConfig)
	// Unreached is called for each check that could not connect: its error wraps [ErrConnect].
	Unreached(by *CheckConfig)
	// SetBarred reports whether the endpoint must not serve, because its checks have answered
	// so last. If not, an unhealthy endpoint is only not known to be well.
	SetBarred(bool)
}

// earlyTrial decides whether an open Breaker is tried, or an ejected endpoint returns, before
// its time. The mutex of the Breaker or the OutlierDetector guards everything.
type earlyTrial struct {
	opened int64 // time of the last opening or ejection
	early  bool  // it is half-open, or has returned, before its time
	failed int   // early trials that failed since it was closed, or was connected to
}

// maxEarlyTrials is the number of failed early trials after which it is tried only when its time is
// over, or by Recovered.
const maxEarlyTrials = 5

// after returns the time from which evidence counts for an early trial: the opening and, the
// more often such trials have failed, the longer after it. If connections to an endpoint fail
// all the same, evidence in its favor is not reliable.
func (h *earlyTrial) after(open int64) int64 {
	if h.failed == 0 {
		return h.opened
	}
	return h.opened + open>>max(maxEarlyTrials-h.failed, 0)
}

// become records a transition.
func (h *earlyTrial) become(s State, now int64) {
	switch s {
	case Closed:
		h.failed = 0
	case Open:
		h.opened = now
		if h.early && h.failed < maxEarlyTrials {
			h.failed++
		}
	}
	h.early = false
}

// Recovered reports that an endpoint which a check had found unhealthy is healthy again. An
// open Breaker is half-open at once, for trials.
func (b *Breaker) Recovered() { b.tryEarly(never, "an endpoint is healthy again") }

// Forget resets the failures of a closed Breaker: they were before its endpoint was healthy
// again.
func (b *Breaker) Forget() {
	if s := b.set.Load(); s.window != nil && b.State() == Closed {
		s.window.clear()
	}
}

// SetDown is like [OutlierMonitor.SetDown], for the Breaker of an endpoint.
func (b *Breaker) SetDown(down bool) { b.damper.mute(b.scheduler, down) }

// Improved reports that more of an endpoint is usable: it has returned, or its own breaker
// lets clients through again. An open Breaker is half-open at once. If early trials have
// failed before, it must have been open for a while: a sixteenth of Open after the first of
// them, then twice as long each time. If the Breaker is not open, Improved costs nothing.
func (b *Breaker) Improved(what string) {
	if b.State() == Open {
		b.tryEarly(b.scheduler.cfg.Now(), what)
	}
}

// ProbeSucceeded is Improved for a check that has succeeded. The check counts only if it began
// after the Breaker had opened, and after that while.
func (b *Breaker) ProbeSucceeded(began int64) {
	b.tryEarly(began, "a check of an endpoint has succeeded")
}

func (b *Breaker) tryEarly(since int64, what string) {
	if b.State() != Open {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	open := int64(b.set.Load().Open)
	if b.State() != Open || since < b.early.after(open) {
		return
	}
	b.become(HalfOpen, b.scheduler.cfg.Now(), what)
	b.early.early = true
}

// Pass is Begin for a connection that is let through in any state, if the limits allow it. It
// is a trial if one is left.
func (b *Breaker) Pass() (Permit, Refusal) {
	s := b.set.Load()
	if r := b.enter(s); r != Granted {
		b.refused[r].Add(1)
		return 0, r
	}
	p, r := b.permit(s)
	if r != Granted {
		p = Permit(word(b.word.Load()).period() << 1) // counts for nothing
	}
	return p, Granted
}
