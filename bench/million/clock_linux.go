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

// stepSize is how many timers are due in a turn, about, and how many sessions begin.
const stepSize = 1000

// run runs a loop while the clock goes through a span in which n timers are due, and
// returns the processor time of each turn: they make no call that waits, and by that
// clock nothing is a turn's that others did meanwhile. In each of them f is called.
func (c *clock) run(l *loop.Loop, from, to time.Duration, n int, f func(turn, turns int)) (times, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	turns := min(max(n/stepSize, 10), 1000)
	took := make(times, 0, turns+1)
	i, last := 0, threadTime()
	var step func()
	step = func() { // its turn goes on with what is due at the time that the last one set
		now := threadTime()
		took, last = append(took, now-last), now
		if i > turns {
			l.Stop()
			return
		}
		if i < turns {
			f(i, turns)
		}
		i++
		c.between(from, to, min(i, turns), turns)
		_ = l.Post(step) // the loop is not closed: it runs
	}
	if err := l.Post(step); err != nil {
		return nil, err
	}
	err := l.Run()
	return took, err
}

// nothing is what happens in a turn besides.
func nothing(int, int) {}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	u, _ := sys.Getrusage(sys.RUSAGE_THREAD) // it fails for bad arguments only
	return u.Utime + u.Stime
}
