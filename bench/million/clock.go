package million

import (
	"runtime"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// A clock is the loop's, and only moved by hand.
type clock struct{ now int64 }

func (c *clock) read() int64 { return c.now }

// between sets it to the i-th of n times of a span.
func (c *clock) between(from, to time.Duration, i, n int) {
	c.now = int64(from) + int64(float64(to-from)*float64(i)/float64(n))
}

// stepSize is how many timers are due in a step of the clock, about, and how many sessions
// begin.
const stepSize = 1000

// stepUnit is the unit of the times at which the clock stops, a multiple of a loop's tick.
// So a timer for such a time is called when all earlier ones have been.
const stepUnit = int64(time.Millisecond)

// run runs a loop while the clock goes through a span in which n timers are due, step by
// step. It returns the processor time of each turn in which some were. These turns make no
// call that waits, and processor time excludes the work of other threads. Before each step f
// is called. The next one begins when the loop has called all due timers, for which it may
// take several turns.
func (c *clock) run(l *loop.Loop, from, to time.Duration, n int, f func(step, steps int)) (times, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := &runner{clock: c, loop: l, from: from, to: to, steps: min(max(n/stepSize, 10), 1000), begins: f}
	if err := l.Post(r.turn); err != nil {
		return nil, err
	}
	err := l.Run()
	return r.took, err
}

// A runner is a loop that is run through a span.
type runner struct {
	clock    *clock
	loop     *loop.Loop
	from, to time.Duration
	step     int // the next
	steps    int
	begins   func(step, steps int)
	end      loop.Timer    // of the step
	due      bool          // timers are, in the present turn
	began    time.Duration // thread's time
	took     times
}

// turn is called in every turn, before its timers.
func (r *runner) turn() {
	now := threadTime()
	if r.due {
		r.took = append(r.took, now-r.began)
	}
	if r.due = r.end.Armed(); !r.due {
		if r.step == r.steps {
			r.loop.Stop()
			return
		}
		r.begins(r.step, r.steps)
		r.step++
		r.clock.between(r.from, r.to, r.step, r.steps)
		r.clock.now = (r.clock.now/stepUnit + 1) * stepUnit
		r.loop.Arm(&r.end, r, time.Duration(r.clock.now-r.loop.Now()))
	}
	r.began = threadTime()
	_ = r.loop.Post(r.turn) // the loop is not closed: it runs
}

// Expired implements loop.Expirer: the step is over, which turn sees.
func (r *runner) Expired(*loop.Timer) {}

// nothing is a step without further actions.
func nothing(int, int) {}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	d, _ := sys.ThreadCPUTime() // it fails for bad arguments only
	return d
}
