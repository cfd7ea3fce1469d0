package loop

import (
	"runtime"
	"sync/atomic"
)

// others is how a loop lets the other goroutines of the process run.
type others struct {
	worked int64 // ns of turns since they last did
	knock  netpollWake
}

// runningLoops is how many loops of the process run.
var runningLoops atomic.Int64

// run lets the others run, so many nanoseconds after they last did. Those that wait for the
// network are ready only after a look at the runtime's poller, by a P that has nothing else to
// run, or by the runtime's monitor every 10 ms at best. So a loop that is at work most of the
// time looks itself, unless there are more Ps than loops: then the others have one.
func (o *others) run(span int64) {
	if o.worked > span/2 && runningLoops.Load() >= int64(runtime.GOMAXPROCS(0)) {
		o.knock.wait()
	}
	o.worked = 0
	runtime.Gosched()
}
