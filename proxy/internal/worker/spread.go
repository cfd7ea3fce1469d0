package worker

import (
	"math/rand/v2"
	"time"
)

// A Spread is when the sessions are cut that are left at the end of a drain: some at a time,
// at random, over the last tenth of the drain's time, so that their clients do not all come
// back in one instant. In the last step, at the end of the time, all that are left are.
type Spread struct {
	First time.Duration // from the drain's begin to the first step
	Every time.Duration // between two steps
	Steps int
}

// The bounds of a Spread.
const (
	mostSpread = 30 * time.Second
	leastStep  = 10 * time.Millisecond
	mostSteps  = 50
)

// NewSpread returns the steps of a drain that may take so long.
func NewSpread(within time.Duration) Spread {
	over := min(within/10, mostSpread)
	steps := min(max(int(over/leastStep), 1), mostSteps)
	every := over / time.Duration(steps)
	return Spread{First: within - time.Duration(steps-1)*every, Every: every, Steps: steps}
}

// Cuts reports whether one of the sessions that are left is to be cut in a step, counted from
// 0: by chance, so that each step has as many of them, and all of them in the last.
func (s Spread) Cuts(step int) bool { return step >= s.Steps-1 || rand.IntN(s.Steps-step) == 0 }
