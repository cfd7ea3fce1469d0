package health

import "fmt"

// A word is a Breaker's state, so that it changes as a whole: 2 bits of State, 20 of
// the period it is of, which is another one after each transition, and for the trials
// of a half-open one, 20 each, how many were let through and how many succeeded.
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

// after returns the period after that of w. None is 0, which is that of the zero
// Permit.
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
				b.tell() // that there are none left
			}
			return Permit(w.period()<<1 | 1), Granted
		}
	}
}

// Report tells what a connection came to, of which every failure is the endpoint's.
func (b *Breaker) Report(p Permit, o Outcome, now int64) { b.report(b.set.Load(), p, o, now) }

// ReportFrom is Report for a connection from a source, or from Anybody, as that of
// [Member] is. A trial that fails by what may be its client's doing says nothing while
// others are served.
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

// Heard tells that an endpoint has sent something to a source, whose connection is not
// over.
func (b *Breaker) Heard(from Source, now int64) { b.sources.heard(from, now) }

func (b *Breaker) report(s *setting, p Permit, o Outcome, now int64) {
	w := word(b.word.Load())
	switch {
	case p.Trial():
		b.tried(s, p, o, now)
	case !o.Failed() || s.window == nil || w.state() != Closed || p != 0 && p.period() != w.period():
		// There is nothing to count that was not counted when it was reached.
	default:
		b.last.note(o)
		if o.after() {
			s.window.reverse(now)
		} else {
			s.window.add(now, true)
		}
		b.judge(s, w, now)
	}
}

// judge opens a closed Breaker if too many failed.
func (b *Breaker) judge(s *setting, w word, now int64) {
	ok, failed, yes := s.window.tooMany(now, s.FailurePercentage, s.MinVolume)
	if yes && !b.sources.shareOfOne(s.FailurePercentage, now, int64(s.Window)) {
		b.turnTo(Open, w.period(), now, fmt.Sprintf("%d of %d connections failed, the last: %v", failed, ok+failed, &b.last))
	}
}

// tried takes what came of a trial, unless it is of a period that is over.
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
			next = w - begunOne // another is tried in its place
		}
		if !b.word.CompareAndSwap(uint64(w), uint64(next)) {
			continue
		}
		switch {
		case o == Unknown:
			b.tell()
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

// turnTo changes the state, unless somebody else has since that period.
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
		set.window.clear() // before anybody counts in it again
		b.sources.forget()
	}
	b.word.Store(uint64(newWord(s, word(b.word.Load()).after())))
	b.haste.become(s, now)
	if s == Open {
		b.opened.Add(1)
		b.wait(now)
	}
	b.publish()
	b.keeper.note(&b.damper, Transition{
		Subject: b.subject, What: Circuit, State: s.String(), Bad: s == Open, Cause: cause, Time: now,
	})
}

// wait has turn called when the Breaker has been open, or its trials under way, for as
// long as it waits. It is locked. A half-open one that nobody tries waits for nothing,
// so that the Keeper does not know one that was left.
func (b *Breaker) wait(now int64) {
	b.until = now + int64(b.set.Load().Open)
	b.keeper.at(b.until, b)
}

// turn lets a Breaker that was open for long enough be half-open, and one whose trials
// are not heard of try others.
func (b *Breaker) turn(now int64) {
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

// enough is why a Breaker closes.
func enough(w word) string { return inARow(int(w.succeeded()), "trial connection") + " succeeded" }

// renew gives back the trials of which nothing was heard; their period is over.
func (b *Breaker) renew(s *setting) {
	for {
		w := word(b.word.Load())
		if w.begun() < uint64(s.TrialConnections) {
			return // there are some left
		}
		next := newWord(HalfOpen, w.after()) | word(w.succeeded()*begunOne+w.succeeded())
		if b.word.CompareAndSwap(uint64(w), uint64(next)) {
			b.publish()
			return
		}
	}
}

// tell is publish, for whoever has not locked the Breaker.
func (b *Breaker) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish()
}

// publish tells the target of the state, and waits for trials to be heard of if none
// are left. The Breaker is locked.
func (b *Breaker) publish() {
	w, trials := word(b.word.Load()), 0
	if w.state() == HalfOpen {
		trials = max(b.set.Load().TrialConnections-int(w.begun()), 0)
		if trials == 0 {
			b.wait(b.keeper.cfg.Now())
		}
	}
	if b.target != nil {
		b.target.SetCircuit(w.state(), trials)
	}
}
