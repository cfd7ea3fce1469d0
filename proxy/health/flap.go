package health

import "time"

// What is which kind of verdict a [Transition] is of.
type What uint8

const (
	Health   What = iota // what a Checker finds
	Ejection             // what an Outlier does
	Circuit              // what a Breaker does
)

// String returns "health", "ejection" or "circuit".
func (w What) String() string {
	return [...]string{"health", "ejection", "circuit"}[w]
}

// A Transition is a change of state of an endpoint or an upstream.
type Transition struct {
	// Subject is whom it is of, as whoever made the Check, Member or Breaker calls it.
	Subject string
	What    What
	// State is the new one: "healthy" or "unhealthy", "returned" or "ejected",
	// "closed", "open" or "half-open".
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

// A Flap holds back what is told of something that changes all the time: at most one
// transition for each interval is told, the last, with the count of those that were
// not. The zero value is ready. It belongs to one goroutine at a time.
type Flap struct {
	ever bool
	told int64      // when the last was
	held Transition // to be told when the interval is over, if any
	any  bool
}

// Note takes a transition, and returns it with true if it is to be told at once.
// Otherwise it is held, and Due will return it.
func (f *Flap) Note(t Transition, every time.Duration) (Transition, bool) {
	if f.any {
		t.Suppressed = f.held.Suppressed + 1
	}
	if f.any || f.ever && t.Time-f.told < int64(every) {
		f.held, f.any = t, true
		return t, false
	}
	f.told, f.ever = t.Time, true
	return t, true
}

// Next returns when Due will have something to tell, and whether it ever will unless
// something new is noted.
func (f *Flap) Next(every time.Duration) (int64, bool) { return f.told + int64(every), f.any }

// Due returns what was held, if it is to be told now.
func (f *Flap) Due(now int64, every time.Duration) (Transition, bool) {
	if !f.any || now-f.told < int64(every) {
		return Transition{}, false
	}
	t := f.held
	f.held, f.any, f.told = Transition{}, false, now
	return t, true
}
