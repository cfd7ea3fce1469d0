package health

import "time"

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
	// State is the new one: "healthy", "unhealthy" or "standby", "returned" or "ejected",
	// "closed", "open" or "half-open", "calm" or "panic",
	// "answering" or "silent".
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

// Flap suppresses repeated transitions (flap damping). The first few are reported at once, so
// that a recovery is reported as soon as the failure before it. From then on one is reported
// for each interval, the last, with the count of the others. Each interval without a report
// lets one more be reported at once. The zero value is ready. It belongs to one goroutine at a
// time.
type Flap struct {
	fullAt  int64      // when atOnce may be reported again
	pending Transition // to be reported later, if any
	any     bool
}

// atOnce is the number of transitions reported before any is held: a failure, its recovery,
// and another failure.
const atOnce = 3

// Note takes a transition. If it is to be reported at once, Note returns it with true.
// Otherwise it is held, and Due will return it.
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

// nextAllowed is the time from which one more may be reported.
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
