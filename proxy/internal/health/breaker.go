package health

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// BreakerConfig configures when a [Breaker] opens, and its connection limits.
type BreakerConfig struct {
	// FailurePercentage is the part of failed connections within Window at which the Breaker opens, if there were at least
	// MinVolume; 0: it never opens.
	FailurePercentage float64
	Window            time.Duration
	MinVolume         int
	// Open is how long the Breaker stays open. Then it is half-open, and lets TrialConnections through (at least one). If
	// all of them succeed it closes; if one fails it opens again. If trials have no report within Open, further trials are
	// made.
	Open             time.Duration
	TrialConnections int
	// Connections limits concurrent connections, pending ones included. Pending limits
	// connects in progress. 0: no limit.
	Connections, Pending int64
}

// A State is the state of a [Breaker].
type State uint8

const (
	// Closed: every connection is let through.
	Closed State = iota
	// Open: no connection is let through.
	Open
	// HalfOpen: some connections are let through, for trial.
	HalfOpen
)

// String returns "closed", "open" or "half-open".
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// A Refusal is the reason for which a [Breaker] does not let a connection through.
type Refusal uint8

const (
	// Granted: the connection is let through.
	Granted Refusal = iota
	// RefusedOpen: the breaker is open.
	RefusedOpen
	// RefusedTrials: the breaker is half-open, and all trials are in progress.
	RefusedTrials
	// RefusedConnections: the connection limit is reached.
	RefusedConnections
	// RefusedPending: the limit of connects in progress is reached.
	RefusedPending
)

// String returns the reason, in a few words.
func (r Refusal) String() string {
	return [...]string{"granted", "circuit open", "circuit half-open", "connections limit", "pending limit"}[r]
}

// A Permit is issued to a connection that is let through, and is reported with the connection's result: so the result
// counts for the period in which the connection began. The zero Permit belongs to no connection: a result reported with it
// counts as long as the breaker is closed.
type Permit uint32

// Trial reports whether the connection is a trial. For a trial an Outcome must be reported, if only Unknown.
func (p Permit) Trial() bool { return p&1 != 0 }

func (p Permit) period() uint64 { return uint64(p >> 1) }

// A Breaker stops the connections to an upstream, or to an endpoint, if too many of them fail.
// It is safe for concurrent use. For each connection, call in this order:
//
//   - Begin once, and nothing else unless it is Granted;
//   - Reached once, if the connection is made;
//   - Report once: for a trial always, for other connections only after a failure;
//   - End once.
//
// None of them allocates. They lock only to change the state and for the last trial.
type Breaker struct {
	scheduler *Scheduler
	subject   string
	target    Target
	set       atomic.Pointer[setting]
	word      atomic.Uint64 // a word
	load      atomic.Uint64 // pending connections in the high 32 bits, all connections in the low 32 bits
	Opened    atomic.Int64  // how many times it has opened, from closed or half-open
	sources   sources
	contained atomic.Bool // since it opened, only a few sources have failed, see Stranger
	last      failure

	mu     sync.Mutex // held while the state is changed
	until  int64      // end of the open state, or of the trials in progress
	early  earlyTrial
	damper damper
	first  setting // the first configuration; most Breakers have no other
}

// A setting is the configuration of a Breaker. It is replaced as a whole.
type setting struct {
	BreakerConfig
	window *window // nil: failures are not counted
	own    window  // window points here, or still to the previous setting's window
}

const pendingOne = 1 << 32

// NewBreaker returns a closed Breaker. Its transitions call it subject. t receives its state, and may be nil.
func NewBreaker(k *Scheduler, subject string, t Target, cfg *BreakerConfig) *Breaker {
	b := &Breaker{scheduler: k, subject: subject, target: t}
	b.first.init(cfg)
	b.set.Store(&b.first)
	b.word.Store(uint64(newWord(Closed, 1)))
	return b
}

func (s *setting) init(cfg *BreakerConfig) {
	s.BreakerConfig = *cfg
	s.TrialConnections = min(max(s.TrialConnections, 1), wordMax)
	if s.FailurePercentage > 0 {
		s.own.width = slotWidth(cfg.Window)
		s.window = &s.own
	}
}

// Configure replaces the configuration. The state and the number of connections stay. If
// failures are no longer counted, the Breaker closes.
func (b *Breaker) Configure(cfg *BreakerConfig) {
	b.configure(cfg, "the configuration has switched it off")
}

// Remove closes the Breaker, because its endpoint is removed. If the endpoint comes back it has another Breaker.
func (b *Breaker) Remove() { b.configure(new(BreakerConfig), "it is removed") }

// configure is Configure with the cause for which the Breaker closes if failures are no longer counted.
func (b *Breaker) configure(cfg *BreakerConfig, off string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, s := b.set.Load(), new(setting)
	s.init(cfg)
	if s.window != nil && old.window != nil && s.window.width == old.window.width {
		s.window = old.window
	}
	b.set.Store(s)
	switch w := word(b.word.Load()); {
	case w.state() == Closed:
	case s.window == nil:
		b.become(Closed, b.scheduler.cfg.Now(), off)
	case w.state() == HalfOpen && w.succeeded() >= uint64(s.TrialConnections):
		b.become(Closed, b.scheduler.cfg.Now(), enough(w))
	default:
		b.publish()
	}
}

// State returns the state.
func (b *Breaker) State() State { return word(b.word.Load()).state() }

// Load returns the number of connections, and how many of these are pending.
func (b *Breaker) Load() (connections, pending int64) {
	n := b.load.Load()
	return int64(n % pendingOne), int64(n / pendingOne)
}

// Full reports whether the limits let no further connection through.
func (b *Breaker) Full() bool {
	s := b.set.Load()
	connections, pending := b.Load()
	return s.Connections > 0 && connections >= s.Connections || s.Pending > 0 && pending >= s.Pending
}

// Begin asks to let a connection through.
func (b *Breaker) Begin() (Permit, Refusal) {
	s := b.set.Load()
	if r := b.enter(s); r != Granted {
		return 0, r
	}
	p, r := b.permit(s)
	if r != Granted {
		b.End(false)
	}
	return p, r
}

// enter counts a connection if the limits allow it.
func (b *Breaker) enter(s *setting) Refusal {
	if s.Connections <= 0 && s.Pending <= 0 {
		b.load.Add(pendingOne + 1)
		return Granted
	}
	for {
		n := b.load.Load()
		if s.Connections > 0 && n%pendingOne >= uint64(s.Connections) {
			return RefusedConnections
		}
		if s.Pending > 0 && n/pendingOne >= uint64(s.Pending) {
			return RefusedPending
		}
		if b.load.CompareAndSwap(n, n+pendingOne+1) {
			return Granted
		}
	}
}

// Reached reports that a connection was made. It counts as a success until Report says otherwise: sessions may last for
// days. No Breaker opens because of it, even if the connection completes MinVolume.
func (b *Breaker) Reached() {
	b.load.Add(^uint64(pendingOne - 1))
	s := b.set.Load()
	if w := word(b.word.Load()); s.window != nil && w.state() == Closed {
		s.window.add(b.scheduler.cfg.Now(), false)
	}
}

// Adopt counts a connection that exists already, even beyond the limits. The caller owes
// [Breaker.End] for it, with reached. It does nothing on a nil *Breaker.
func (b *Breaker) Adopt() {
	if b != nil {
		b.load.Add(1)
	}
}

// End reports that a connection is over. reached says whether Reached was called for it.
func (b *Breaker) End(reached bool) {
	if reached {
		b.load.Add(^uint64(0))
	} else {
		b.load.Add(^uint64(pendingOne))
	}
}

// A word is a Breaker's state, which changes as a whole: 2 bits of State, and 20 bits of a period that changes with
// each transition. While half-open it also counts trials, with 20 bits each: how many were let through, and how many
// succeeded.
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

// after returns the period after w's. No period is 0: the zero Permit has 0.
func (w word) after() uint64 { return w.period()%wordMax + 1 }

// permit lets a connection through, if the state allows it.
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
				b.lockAndPublish() // no trials are left
			}
			return Permit(w.period()<<1 | 1), Granted
		}
	}
}

// Report reports the outcome of a connection; every failure is counted as the endpoint's.
func (b *Breaker) Report(p Permit, o Outcome, now int64) { b.report(b.set.Load(), p, o, now) }

// ReportFrom is Report for a connection from a source, or from UnsampledSource, like [OutlierMonitor.ReportFrom]. While
// other sources are served, the failure of a trial is no evidence if the client may have caused it.
func (b *Breaker) ReportFrom(p Permit, from Source, o Outcome, now int64) {
	s := b.set.Load()
	if s.window != nil {
		b.sources.note(from, o, now, int64(s.Window))
	}
	if o.Failed() && b.contained.Load() && !b.sources.contained(UnsampledSource) {
		b.contained.Store(false)
	}
	if p.Trial() && b.sources.spares(from, o, now, int64(s.Window)) {
		o = Unknown
	}
	b.report(s, p, o, now)
}

// GotData reports that an endpoint has sent something to a source; its connection is not over.
func (b *Breaker) GotData(from Source, now int64) { b.sources.heard(from, now) }

// Stranger reports whether a client of a source is to pass a Breaker that is not closed: all failures since it opened may be the
// fault of their clients, they come from fewer than eight sources, and this source is none of them. If such clients fail as well,
// there are soon eight, until the Breaker closes; so an endpoint that fails for all costs few of them.
func (b *Breaker) Stranger(from Source) bool { return b.contained.Load() && b.sources.contained(from) }

func (b *Breaker) report(s *setting, p Permit, o Outcome, now int64) {
	w := word(b.word.Load())
	switch {
	case p.Trial():
		b.tried(s, p, o, now)
	case !o.Failed() || s.window == nil || w.state() != Closed || p != 0 && p.period() != w.period():
		// Reached has counted it.
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
	if yes && !b.sources.shareOfFew(s.FailurePercentage, now, int64(s.Window)) {
		b.contained.Store(b.sources.contained(UnsampledSource))
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
			cause := o.String()
			if o == ConnectFailed {
				cause = "not made"
			}
			b.turnTo(Open, w.period(), now, "a trial connection was "+cause+b.last.why(o))
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

// turnTo changes the state, unless another goroutine has changed it since that period.
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
		set.window.clear() // before other goroutines count in it again
		b.sources.forget()
	}
	b.word.Store(uint64(newWord(s, word(b.word.Load()).after())))
	b.early.become(s, now)
	if s == Open {
		b.Opened.Add(1)
		b.wait(now)
	}
	b.publish()
	b.scheduler.note(&b.damper, Transition{
		Subject: b.subject, Kind: Circuit, State: s.String(), Bad: s == Open, Cause: cause, Time: now,
	})
}

// wait schedules expire for the end of the open state, or of the trials in progress. The Breaker is locked. A half-open
// Breaker without trials in progress waits for nothing, so that the Scheduler does not keep an abandoned Breaker.
func (b *Breaker) wait(now int64) {
	b.until = now + int64(b.set.Load().Open)
	b.scheduler.at(b.until, b)
}

// expire makes a Breaker half-open that was open for long enough. If the trials of a half-open Breaker have not been
// reported, expire allows others.
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

// renew gives back the trials that had no report in their time.
func (b *Breaker) renew(s *setting) {
	for {
		w := word(b.word.Load())
		if w.begun() < uint64(s.TrialConnections) {
			return // some trials are left
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

// A ProbeObserver is a [Target] that is also notified of the checks' answers, and of each
// check that succeeds or cannot connect, whether or not that changes a verdict. Its methods are called as a
// Target's are.
type ProbeObserver interface {
	Target
	// Passed is called for each check that succeeds, with the time at which it began.
	Passed(began int64, by *CheckConfig)
	// Unreached is called for each check that could not connect: its error wraps [ErrConnect].
	Unreached(by *CheckConfig)
	// SetBarred reports whether the endpoint must not serve, because the last answer to its
	// checks said so. Without such an answer unhealthy only means: not known to be healthy.
	SetBarred(bool)
}

// earlyTrial decides whether an open Breaker is tried, or an ejected endpoint returns, before its time. The mutex of the
// Breaker or the OutlierDetector guards it.
type earlyTrial struct {
	opened int64 // time of the last opening or ejection
	early  bool  // it is half-open, or has returned, before its time
	failed int   // early trials that failed since the Breaker closed, or the endpoint was connected to
}

// maxEarlyTrials is the number of failed early trials after which the next trial comes only in time, or by Recovered.
const maxEarlyTrials = 5

// after returns the time from which evidence counts for an early trial: the opening, plus a
// time that grows with the number of failed early trials. If connections to an endpoint fail
// anyway, evidence in its favor is not reliable.
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

// Forget resets the failures of a closed Breaker, because they happened before its endpoint was healthy again.
func (b *Breaker) Forget() {
	if s := b.set.Load(); s.window != nil && b.State() == Closed {
		s.window.clear()
	}
}

// SetDown is like [OutlierMonitor.SetDown], for the Breaker of an endpoint.
func (b *Breaker) SetDown(down bool) { b.damper.mute(b.scheduler, down) }

// Improved reports that more of an endpoint is usable: it has returned, or its own breaker lets clients through again. An
// open Breaker becomes half-open at once. If early trials have failed before, it must have been open for a while: a
// sixteenth of Open after the first failed trial, then twice as long each time. If the Breaker is not open, Improved costs
// nothing.
func (b *Breaker) Improved(what string) {
	if b.State() == Open {
		b.tryEarly(b.scheduler.cfg.Now(), what)
	}
}

// ProbeSucceeded is Improved for a check that has succeeded. The check counts only if it began after the Breaker had
// opened, and not within that while.
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
		return 0, r
	}
	p, r := b.permit(s)
	if r != Granted {
		p = Permit(word(b.word.Load()).period() << 1) // counts for nothing
	}
	return p, Granted
}
