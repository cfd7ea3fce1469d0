package discovery

import "time"

// A Clock tells the time and waits for it. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// After sends the time on tick once d has passed, unless stop is called
	// first, which must be called in any case.
	After(d time.Duration) (tick <-chan time.Time, stop func() bool)
}

// wall is the clock of the real world.
type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func (wall) After(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func clockOr(c Clock) Clock {
	if c == nil {
		return wall{}
	}
	return c
}
