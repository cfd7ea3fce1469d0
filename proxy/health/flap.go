package health

import "time"

// What is which kind of verdict a [Transition] is of.
type What uint8

const (
	Health    What = iota // what a Checker finds
	Ejection              // what an Outlier does
	Circuit               // what a Breaker does
	Panicking             // what a Panic tells of
	Answering             // what an Unanswered finds
)

// String returns "health", "ejection", "circuit", "panic" or "answers".
func (w What) String() string {
	return [...]string{"health", "ejection", "circuit", "panic", "answers"}[w]
}

// A Transition is a change of state of an endpoint or an upstream.
type Transition struct {
	// Subject is whom it is of, as whoever made the Check, Member or Breaker calls it.
	Subject string
	What    What
	// State is the new one: "healthy" or "unhealthy", "returned" or "ejected",
	// "closed", "open" or "half-open", "calm" or "panic",
	// "answering" or "silent".
	State string
	// Bad says that this is a turn for the worse.
	Bad bool
	// Cause is why, in one line.
	Cause string
	// Time is when, by the Keeper's clock.
	Time int64
	// Suppressed counts the transitions of the same kind of the same subject that were
	// not told since the last that was, and came before this one.
	Suppressed int
}

// A Flap holds back what is told of something that changes all the time. The first few
// transitions are told at once, so that a recovery is told as soon as the failure before it;
// from then on one for each interval, the last, with the count of those that were not. Each
// interval in which nothing is told lets one more be told at once. The zero value is ready.
// It belongs to one goroutine at a time.
type Flap struct {
	full int64      // when all that may be told at once may be again
	held Transition // to be told when there is room for it, if any
	any  bool
}

// atOnce is how many transitions are told before any is held back: that something fails, is
// back, and fails once more.
const atOnce = 3

// Note takes a transition, and returns it with true if it is to be told at once.
// Otherwise it is held, and Due will return it.
func (f *Flap) Note(t Transition, every time.Duration) (Transition, bool) {
	if f.any {
		t.Suppressed = f.held.Suppressed + 1
	}
	if f.any || t.Time < f.room(every) {
		f.held, f.any = t, true
		return t, false
	}
	f.tell(t.Time, every)
	return t, true
}

// room is from when on one more may be told.
func (f *Flap) room(every time.Duration) int64 { return f.full - (atOnce-1)*int64(every) }

func (f *Flap) tell(now int64, every time.Duration) { f.full = max(f.full, now) + int64(every) }

// Next returns when Due will have something to tell, and whether it ever will unless
// something new is noted.
func (f *Flap) Next(every time.Duration) (int64, bool) { return f.room(every), f.any }

// Due returns what was held, if it is to be told now.
func (f *Flap) Due(now int64, every time.Duration) (Transition, bool) {
	if !f.any || now < f.room(every) {
		return Transition{}, false
	}
	f.tell(now, every)
	return f.Rest()
}

// Rest returns what is held, if anything is, because nothing will be told any more.
func (f *Flap) Rest() (Transition, bool) {
	t, any := f.held, f.any
	f.held, f.any = Transition{}, false
	return t, any
}
