package health

import "fmt"

// A word is a Breaker's state, so that it changes as a whole: 2 bits of State and 20 of its
// period, which changes with each transition. For the trials of a half-open one it has 20 bits
// each for those let through and those that succeeded.
type word uint64

const (
	wordBits = 20
	wordMax  = 1<<wordBits - 1
	begunOne = 1 << wordBits // succeeded is below it
	periodAt = 2 * wordBits
	stateAt  = 3 * wordBits
)

func newWord(s State, period uint64) word { return word(uint64(s)<<stateAt | period<<periodAt) }

func (w word) state() State      { return State(w >> stateAt) }
func (w word) period() uint64    { return uint64(w>>periodAt) & wordMax }
func (w word) begun() uint64     { return uint64(w>>wordBits) & wordMax }
func (w word) succeeded() uint64 { return uint64(w) & wordMax }

// after returns the period after that of w. None is 0, which is that of the zero Permit.
func (w word) after() uint64 { return w.period()%wordMax + 1 }

// permit lets a connection through, if the state does.
func (b *Breaker) permit(s *setting) (Permit, Refusal) {
	for {
		w := word(b.word.Load())
		switch w.state() {
		case Closed:
			return Permit(w.period() << 1), Granted
		case Open:
			return 0, RefusedOpen
		}
		if w.begun() >= uint64(s.TrialConnections) {
			return 0, RefusedTrials
		}
		if b.word.CompareAndSwap(uint64(w), uint64(w+begunOne)) {
			if w.begun()+1 == uint64(s.TrialConnections) {
				b.lockAndPublish() // none are left
			}
			return Permit(w.period()<<1 | 1), Granted
		}
	}
}

// Report reports the outcome of a connection; every failure is counted as the endpoint's.
func (b *Breaker) Report(p Permit, o Outcome, now int64) { b.report(b.set.Load(), p, o, now) }

// ReportFrom is Report for a connection from a source, or from UnsampledSource, as that of
// [OutlierMonitor] is. While others are served, a trial failure that may be its client's doing is no
// evidence.
func (b *Breaker) ReportFrom(p Permit, from Source, o Outcome, now int64) {
	s := b.set.Load()
	if s.window != nil {
		b.sources.note(from, o, now, int64(s.Window))
	}
	if p.Trial() && b.sources.spares(from, o, now, int64(s.Window)) {
		o = Unknown
	}
	b.report(s, p, o, now)
}

// GotData reports that an endpoint has sent something to a source; its connection is not over.
func (b *Breaker) GotData(from Source, now int64) { b.sources.heard(from, now) }

func (b *Breaker) report(s *setting, p Permit, o Outcome, now int64) {
	w := word(b.word.Load())
	switch {
	case p.Trial():
		b.tried(s, p, o, now)
	case !o.Failed() || s.window == nil || w.state() != Closed || p != 0 && p.period() != w.period():
		// Nothing to count that was not counted by Reached.
	default:
		b.last.note(o)
		if o.after() {
			s.window.reverse(now)
		} else {
			s.window.add(now, true)
		}
		b.evaluate(s, w, now)
	}
}

// evaluate opens a closed Breaker if too many connections failed.
func (b *Breaker) evaluate(s *setting, w word, now int64) {
	ok, failed, yes := s.window.tooMany(now, s.FailurePercentage, s.MinVolume)
	if yes && !b.sources.shareOfOne(s.FailurePercentage, now, int64(s.Window)) {
		b.turnTo(Open, w.period(), now, fmt.Sprintf("%d of %d connections failed, the last: %v", failed, ok+failed, &b.last))
	}
}

// tried records the outcome of a trial, unless its period is over.
func (b *Breaker) tried(s *setting, p Permit, o Outcome, now int64) {
	for {
		w := word(b.word.Load())
		if w.state() != HalfOpen || w.period() != p.period() {
			return
		}
		if o.Failed() {
			b.turnTo(Open, w.period(), now, "a trial connection was "+trialCause(o)+b.last.why(o))
			return
		}
		next := w + 1
		if o == Unknown {
			next = w - begunOne // another trial replaces it
		}
		if !b.word.CompareAndSwap(uint64(w), uint64(next)) {
			continue
		}
		switch {
		case o == Unknown:
			b.lockAndPublish()
		case next.succeeded() >= uint64(s.TrialConnections):
			b.turnTo(Closed, w.period(), now, enough(next))
		}
		return
	}
}

func trialCause(o Outcome) string {
	if o == ConnectFailed {
		return "not made"
	}
	return o.String()
}

// turnTo changes the state, unless another goroutine has since that period.
func (b *Breaker) turnTo(s State, period uint64, now int64, cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if word(b.word.Load()).period() == period {
		b.become(s, now, cause)
	}
}

// become changes the state. The Breaker is locked.
func (b *Breaker) become(s State, now int64, cause string) {
	set := b.set.Load()
	if s == Closed && set.window != nil {
		set.window.clear() // before another goroutine counts in it again
		b.sources.forget()
	}
	b.word.Store(uint64(newWord(s, word(b.word.Load()).after())))
	b.early.become(s, now)
	if s == Open {
		b.opened.Add(1)
		b.wait(now)
	}
	b.publish()
	b.scheduler.note(&b.damper, Transition{
		Subject: b.subject, Kind: Circuit, State: s.String(), Bad: s == Open, Cause: cause, Time: now,
	})
}

// wait schedules expire for the end of the open state, or of the trials in progress. The
// Breaker is locked. A half-open Breaker without trials in progress waits for nothing, so that
// the Scheduler has no reference to an abandoned one.
func (b *Breaker) wait(now int64) {
	b.until = now + int64(b.set.Load().Open)
	b.scheduler.at(b.until, b)
}

// expire makes a Breaker half-open that was open for long enough. If the trials of a half-open
// one have not been reported, it allows others.
func (b *Breaker) expire(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, s := word(b.word.Load()), b.set.Load()
	switch {
	case w.state() == Closed || now < b.until:
	case w.state() == Open:
		b.become(HalfOpen, now, fmt.Sprintf("it was open for %v", s.Open))
	case w.succeeded() >= uint64(s.TrialConnections):
		b.become(Closed, now, enough(w))
	default:
		b.renew(s)
	}
}

// enough returns the cause for which a Breaker closes.
func enough(w word) string { return inAStreak(int(w.succeeded()), "trial connection") + " succeeded" }

// renew gives back the trials without a report; their period is over.
func (b *Breaker) renew(s *setting) {
	for {
		w := word(b.word.Load())
		if w.begun() < uint64(s.TrialConnections) {
			return // some are left
		}
		next := newWord(HalfOpen, w.after()) | word(w.succeeded()*begunOne+w.succeeded())
		if b.word.CompareAndSwap(uint64(w), uint64(next)) {
			b.publish()
			return
		}
	}
}

// lockAndPublish is publish for callers that have not locked the Breaker.
func (b *Breaker) lockAndPublish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish()
}

// publish notifies the target of the state. If no trials are left, it schedules a timeout for
// their reports. The Breaker is locked.
func (b *Breaker) publish() {
	w, trials := word(b.word.Load()), 0
	if w.state() == HalfOpen {
		trials = max(b.set.Load().TrialConnections-int(w.begun()), 0)
		if trials == 0 {
			b.wait(b.scheduler.cfg.Now())
		}
	}
	if b.target != nil {
		b.target.SetCircuit(w.state(), trials)
	}
}
