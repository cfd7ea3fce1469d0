package health

// A Witness is a [Target] that wants to know of each check that succeeds, whether or not
// that changes a verdict, and of what checks answer. Its methods are called as a Target's
// are.
type Witness interface {
	Target
	// Passed is called for each check that succeeds, with the time at which it began.
	Passed(began int64, by *CheckConfig)
	// SetBarred tells whether the endpoint must not serve, because that is what its checks
	// have answered last, or only is not known to be well.
	SetBarred(bool)
}

// haste is how an open Breaker is tried, or an ejected endpoint is back, before its time.
// Everything is guarded by the mutex of the Breaker, or the Outlier.
type haste struct {
	opened int64 // when it has opened last, or was ejected
	early  bool  // it is half-open, or back, before its time
	failed int   // how often that was in vain, since it was closed, or was connected to
}

// hasteMax is after how many such trials have failed it is only tried when its time is
// over, or by Well.
const hasteMax = 5

// after is from when on something has to be known to speak for trials before the time is
// over: since it has opened, and the more often such trials have failed the longer after
// that. What speaks for an endpoint whose connections fail all the same is no witness.
func (h *haste) after(open int64) int64 {
	if h.failed == 0 {
		return h.opened
	}
	return h.opened + open>>max(hasteMax-h.failed, 0)
}

// become takes note of a transition.
func (h *haste) become(s State, now int64) {
	switch s {
	case Closed:
		h.failed = 0
	case Open:
		h.opened = now
		if h.early && h.failed < hasteMax {
			h.failed++
		}
	}
	h.early = false
}

// Well tells that an endpoint which a check had found unhealthy is healthy again: an open
// Breaker is half-open at once, for trials to find out.
func (b *Breaker) Well() { b.hasten(never, "an endpoint is healthy again") }

// Forget has a Breaker that is closed forget what has failed: before its endpoint was healthy again.
func (b *Breaker) Forget() {
	if s := b.set.Load(); s.window != nil && b.State() == Closed {
		s.window.clear()
	}
}

// SetDown is that of [Member], for the Breaker of an endpoint.
func (b *Breaker) SetDown(down bool) { b.damper.mute(b.keeper, down) }

// Better tells that there is more of an endpoint than there was: it has returned, or its own
// breaker lets clients through again. An open Breaker is half-open at once; but when trials
// that began before their time have failed, only if it was open for a while: a sixteenth of
// Open after the first of them, then twice as long each time. It costs nothing if the
// Breaker is not open.
func (b *Breaker) Better(what string) {
	if b.State() == Open {
		b.hasten(b.keeper.cfg.Now(), what)
	}
}

// Passed is Better of a check that has succeeded. It counts only if it began after the
// Breaker had opened, and after that while.
func (b *Breaker) Passed(began int64) { b.hasten(began, "a check of an endpoint has succeeded") }

func (b *Breaker) hasten(since int64, what string) {
	if b.State() != Open {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	open := int64(b.set.Load().Open)
	if b.State() != Open || since < b.haste.after(open) {
		return
	}
	b.become(HalfOpen, b.keeper.cfg.Now(), what)
	b.haste.early = true
}

// Pass is Begin for a connection that is let through whatever the state is, as long as
// there is room for it. It is a trial if one is left.
func (b *Breaker) Pass() (Permit, Refusal) {
	s := b.set.Load()
	if r := b.enter(s); r != Granted {
		b.refused[r].Add(1)
		return 0, r
	}
	p, r := b.permit(s)
	if r != Granted {
		p = Permit(word(b.word.Load()).period() << 1) // which counts for nothing
	}
	return p, Granted
}
