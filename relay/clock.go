package relay

import "time"

// A clock is where a session reads the time and sets its timer; tests inject
// their own.
type clock interface {
	// now returns nanoseconds since some fixed moment, monotonic.
	now() int64
	// afterFunc calls f on a goroutine of its own after d, until stopped.
	afterFunc(d time.Duration, f func()) timer
}

// A timer is a *time.Timer after time.AfterFunc.
type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

var clockBase = time.Now()

type systemClock struct{}

func (systemClock) now() int64 { return int64(time.Since(clockBase)) }

func (systemClock) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
