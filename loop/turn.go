package loop

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
)

// yieldTime is how long a loop that is never idle keeps its P; then it lets other goroutines run, even with
// only one P. The runtime itself preempts, and looks for network events of other goroutines, only every 10 ms.
const yieldTime = 4e6

// ErrRunning is returned by Run while the loop already runs.
var ErrRunning = errors.New("penstock: loop: already running")

// Run serves events until [Loop.Stop]. It keeps its thread as long as it does not have to yield. Its error wraps
// epoll_wait(2)'s, or is ErrRunning or ErrClosed. After it has returned, it may be called again.
//
// It does not lock the thread. Each time a locked goroutine yields (the runtime forces a busy one every 10 ms),
// its P goes to another thread and back, which takes four futex calls and the time until the kernel finds a CPU
// for that thread. On a busy machine that cost a third of the echoes (docs/performance.md).
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

// turn waits until there is something to do, and does it: events, the rest of the previous turn, posted
// functions, due timers.
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
	if l.wheel.overdue(l.now) > stall {
		l.catchUp()
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

// stall is how late, in ns, a timer may be before the loop looks for events once more.
const stall = 10e6

// catchUp serves the events that came while the process was stopped, or had no CPU: what came before a deadline is seen
// before the timer that would end its wait.
func (l *Loop) catchUp() {
	for rounds := l.table.used/batch + 1; rounds > 0; rounds-- {
		n, err := l.poller.poll()
		if err != nil { // the next turn reports it
			return
		}
		for i := range n {
			l.dispatch(i)
		}
		if n < batch {
			return
		}
	}
}

// gatherEvents lets events gather before they are collected, if every handler called in this turn has asked for
// that.
func (l *Loop) gatherEvents(called int) {
	if l.gathering > 0 && l.gathering == called && len(l.again) == 0 && !l.mail.any() && !l.wheel.short {
		l.poller.rest(l.gather)
		l.slept = true
		l.counts.rested()
	}
	l.gathering, l.gather = 0, maxGather
}

// giveWay lets other goroutines run if it is time, and returns the clock afterwards.
func (l *Loop) giveWay(now int64) int64 {
	l.others.worked += now - l.now
	if now-l.yield > yieldTime {
		l.others.run(now - l.yield)
		now = l.clock()
		l.yield = now
	}
	return now
}

// wait collects events. It first looks without blocking; on a busy loop this is enough, and the scheduler is
// not involved. A loop that has often looked in vain has little to do: it blocks at once, which saves a call
// for each event. Before a loop blocks, it announces this, and then looks at its mailbox once more (see
// mailbox).
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
			return l.look() // otherwise due timers would keep events waiting
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
	// After mostFutile looks in vain in a row, a loop blocks without looking first. After mostPrompt waits in a
	// row that returned at once, it looks first again.
	mostFutile, mostPrompt = 2, 32

	// leastSleep is the nanoseconds below which a wait does not count as a sleep: events were there already,
	// and the loop looks for the next ones without blocking. The kernel takes longer to put a thread to sleep
	// and wake it.
	leastSleep = 2000
)

// look collects the events that are there now, or that come during busy polling.
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

// woken notes whether a block without a look found events at once.
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

// call makes the call that Again asked for.
func (l *Loop) call(id ID) {
	if s := l.table.find(id); s != nil {
		s.handler.Ready(id.which(), 0)
	}
}

// others lets the other goroutines of the process run.
type others struct {
	worked int64 // ns of turns since other goroutines last ran
	knock  netpollWake
}

// runningLoops is the number of running loops in the process.
var runningLoops atomic.Int64

// run lets other goroutines run. span is the time since they last ran. Goroutines that wait for the network
// become ready only when somebody looks at the runtime's poller: a P with nothing else to run, or the runtime's
// monitor, every 10 ms at best. So a loop that works most of the time looks itself, unless there are more Ps
// than loops: then the other goroutines have a P.
func (o *others) run(span int64) {
	if o.worked > span/2 && runningLoops.Load() >= int64(runtime.GOMAXPROCS(0)) {
		o.knock.wait()
	}
	o.worked = 0
	runtime.Gosched()
}
