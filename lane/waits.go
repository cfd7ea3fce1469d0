package lane

import (
	"time"

	"github.com/penstock/penstock/lane/internal/translate"
)

// Waits is for how long a session in the lane has waited for one of its endpoints, or for the path to it: each moment counts
// once, for one endpoint, in steps of 131 µs without a bias. The rest of [View.Time] is time in which nothing is known to
// have been waited for: for two seconds or more no data came, and no question of a was open.
//
// A wait for data counts when it comes, for the endpoint that sends it. One that goes on counts for b, if a has sent the last data. While bytes that were sent
// again are not acknowledged it is Again, of the endpoint that they are for.
// Two CPUs that carry packets of one session at the same moment may lose a step.
type Waits struct {
	Answer time.Duration // for its data, after data of the other one
	More   time.Duration // for its data, after data of its own
	Window time.Duration // for its window, which held less than a segment
	Ack    time.Duration // for its acknowledgement, after which the other one went on at once
	Flight time.Duration // for data of the other one, while more than a segment was on the way to this one
	Gap    time.Duration // for data of its own that is missing here, and that the other one lacks
	Again  time.Duration // for the other one to send again, though nothing was missing here, and then for its acknowledgement
	// Answers and Pauses are how many waits Answer and More are, without those that were too short for a step.
	Answers, Pauses uint32
	// Narrow is for how long its window held less than two segments, or had less than a third of the largest one left, whatever was waited for.
	Narrow time.Duration
}

func waitsOf(c *translate.Clock, side int) Waits {
	of := func(w translate.Wait) time.Duration {
		return time.Duration(c.Waits[side][w]) << translate.Tick
	}
	return Waits{
		Answer: of(translate.WaitAnswer), More: of(translate.WaitMore), Window: of(translate.WaitWindow), Ack: of(translate.WaitAck),
		Flight: of(translate.WaitFlight), Gap: of(translate.WaitGap), Again: of(translate.WaitAgain),
		Answers: c.Answers[side], Pauses: c.Pauses[side],
		Narrow: time.Duration(c.Narrow[side]) << translate.Tick,
	}
}
