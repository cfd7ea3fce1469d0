package discovery

import "time"

// A Clock returns the time and waits for it. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// After sends the time on tick once d has passed, unless stop is called first. The caller
	// must call stop in any case.
	After(d time.Duration) (tick <-chan time.Time, stop func() bool)
}

// systemClock is the real clock.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func clockOr(c Clock) Clock {
	if c == nil {
		return systemClock{}
	}
	return c
}
