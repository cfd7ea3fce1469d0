package loop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
)

// yieldTime is how long a loop that is never idle keeps its P; then it lets other
// goroutines run, even with only one P. We need our own bound because the runtime
// preempts only after 10 ms, and also looks for network events of other goroutines only
// that often.
const yieldTime = 4e6

// ErrRunning is returned by Run while another Run of the loop goes on.
var ErrRunning = errors.New("penstock: loop: already running")

// Run serves events until [Loop.Stop]. It keeps its thread while it blocks, and as long as it does
// not have to yield. The error wraps epoll_wait(2)'s, ErrRunning, or ErrClosed. It may be called
// again after it has returned.
//
// It does not lock the thread. Each time that a locked goroutine yields (the runtime forces a
// busy one every 10 ms), its P goes to another thread and back, which takes four futex calls
// and the time until the kernel finds a CPU for that thread. On a busy machine that took a
// third of the echoes (docs/performance.md).
func (l *Loop) Run() error {
	if l.running.Swap(true) {
		return ErrRunning
	}
	defer l.running.Store(false)
	if !l.usable.Load() {
		return ErrClosed
	}
	l.begin()
	runningLoops.Add(1)
	defer runningLoops.Add(-1)
	defer l.load.leave()
	for l.stop = false; !l.stop; {
		if err := l.turn(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) begin() {
	l.now, l.slept = l.clock(), true
	l.yield = l.now
	l.load.begin(l.now)
}

// turn waits until there is something to do, and does it: events, the rest of the turn before,
// posted functions, due timers.
func (l *Loop) turn() error {
	n, err := l.wait()
	if err != nil && err != syscall.EINTR {
		return fmt.Errorf("penstock: loop: %w", os.NewSyscallError("epoll_wait", err))
	}
	now := l.clock()
	l.woken(now)
	if l.behind = now - l.now; l.slept {
		l.behind = 0
	}
	l.now, l.slept = now, false
	began := l.used()
	rest := l.again
	l.again = l.spare[:0]
	for i := range n {
		l.dispatch(i)
	}
	for _, id := range rest {
		l.call(id)
	}
	l.spare = rest
	if err := l.mail.deliver(); err != nil {
		return err
	}
	l.wheel.advance(l.now)
	end := l.clock()
	if l.turnCPU && l.used().since(began) >= overrun {
		bump(&l.counts.overruns, 1)
	}
	l.load.turn(l.now, end)
	l.counts.turn(n, l.giveWay(end)-l.now)
	l.gatherEvents(n + len(rest))
	return nil
}

// gatherEvents lets events gather before they are collected, if every handler that
// was called in this turn has asked for that.
func (l *Loop) gatherEvents(called int) {
	if l.gathering > 0 && l.gathering == called && len(l.again) == 0 && !l.mail.any() && !l.wheel.short {
		l.poller.rest(l.gather)
		l.slept = true
		l.counts.rested()
	}
	l.gathering, l.gather = 0, maxGather
}

// giveWay lets other goroutines run if it is time, and returns the clock after that.
func (l *Loop) giveWay(now int64) int64 {
	l.others.worked += now - l.now
	if now-l.yield > yieldTime {
		l.others.run(now - l.yield)
		now = l.clock()
		l.yield = now
	}
	return now
}

// wait collects events. It first looks without blocking; on a busy loop this is enough, and the
// scheduler is not involved. A loop that has often looked in vain has little to do: it blocks
// at once, which saves a call for each event. A loop that may block announces this first, and
// then looks at its mailbox once more (see mailbox).
func (l *Loop) wait() (int, error) {
	l.direct = l.futile >= mostFutile && l.spin == 0 && len(l.again) == 0 && !l.mail.any()
	if !l.direct {
		if n, err := l.look(); n > 0 || err != nil || len(l.again) > 0 || l.mail.any() {
			return n, err
		}
	}
	now := l.clock()
	timeout := l.wheel.untilNext(now)
	if timeout == 0 || !l.mail.sleep() {
		if l.direct {
			return l.look() // or events would wait for as long as timers are due
		}
		return 0, nil
	}
	if l.load.batch {
		timeout = l.load.sleep(now, timeout)
	}
	n, err := l.poller.block(timeout)
	l.slept, l.asleep = true, now
	l.mail.awake()
	l.counts.blocked()
	return n, err
}

const (
	// mostFutile is after how many looks in vain in a row a loop blocks without looking first.
	// mostPrompt is after how many waits in a row that returned at once it looks first again.
	mostFutile, mostPrompt = 2, 32

	// leastSleep is the number of nanoseconds below which a wait counts as not slept: there were
	// events already, and the loop looks for the next ones without blocking. The kernel takes
	// longer to put a thread to sleep and to wake it.
	leastSleep = 2000
)

// look collects the events that are there now, or that come while it polls, if it does.
func (l *Loop) look() (n int, err error) {
	if n, err = l.poller.poll(); n > 0 || err != nil {
		l.futile = 0
		return n, err
	}
	l.futile = min(l.futile+1, mostFutile)
	if l.spin > 0 && len(l.again) == 0 && !l.mail.any() {
		if n, err = l.busyPoll(); n > 0 || err != nil || l.mail.any() {
			l.counts.hit()
		}
	}
	return n, err
}

// woken notes whether a block without a look before found events at once.
func (l *Loop) woken(now int64) {
	switch {
	case !l.direct || !l.slept:
	case now-l.asleep >= leastSleep:
		l.prompt = 0
	default:
		l.slept = false
		if l.prompt++; l.prompt == mostPrompt {
			l.prompt, l.futile = 0, 0
		}
	}
}

// busyPoll looks for events again and again, for a bounded time.
func (l *Loop) busyPoll() (n int, err error) {
	begin := l.clock()
	for now := begin; now-begin < l.spin; now = l.giveWay(l.clock()) {
		if n, err = l.poller.poll(); n > 0 || err != nil || l.mail.any() {
			break
		}
		if l.wheel.untilNext(now) == 0 {
			break
		}
	}
	return n, err
}

func (l *Loop) dispatch(i int) {
	at, generation, which, events := l.poller.event(i)
	if s := l.table.at(at); s != nil && s.handler != nil && s.generation == generation {
		l.load.serve(at)
		s.handler.Ready(which, events)
	}
}

// call makes the call that Again has asked for.
func (l *Loop) call(id ID) {
	if s := l.table.find(id); s != nil {
		s.handler.Ready(id.which(), 0)
	}
}

// others is how a loop lets the other goroutines of the process run.
type others struct {
	worked int64 // ns of turns since they last did
	knock  netpollWake
}

// runningLoops is how many loops of the process run.
var runningLoops atomic.Int64

// run lets other goroutines run, a given time after they last ran. Goroutines that wait for the
// network are ready only after a look at the runtime's poller, by a P that has nothing else to run,
// or by the runtime's monitor every 10 ms at best. So a loop that works most of the time looks
// itself, unless there are more Ps than loops: then the other goroutines have a P.
func (o *others) run(span int64) {
	if o.worked > span/2 && runningLoops.Load() >= int64(runtime.GOMAXPROCS(0)) {
		o.knock.wait()
	}
	o.worked = 0
	runtime.Gosched()
}
