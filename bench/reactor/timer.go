package reactor

import (
	"container/heap"
	"os"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// clock calls functions when their time has come. It is a descriptor of the loop, like any other, so a busy loop
// makes no calls to read the time.
type clock struct {
	fd     int // a timerfd, owned by the loop
	timers timers
}

// After calls f once on the loop's thread, not before d has passed.
func (l *Loop) After(d time.Duration, f func()) {
	t := timer{time.Now().Add(d), f}
	heap.Push(&l.clock.timers, t)
	if l.clock.timers[0].when.Equal(t.when) {
		l.arm()
	}
}

// arm sets the timerfd to the next timer.
func (l *Loop) arm() {
	var d time.Duration // none: disarm
	if t := l.clock.timers; len(t) > 0 {
		d = max(time.Until(t[0].when), 1)
	}
	if err := sys.TimerfdSettime(l.clock.fd, d); err != nil {
		l.Stop(os.NewSyscallError("timerfd_settime", err))
	}
}

// Ready implements Handler.
func (l *alarm) Ready(uint32) {
	var expirations [8]byte
	_, _ = sys.Read(l.clock.fd, expirations[:])
	for now := time.Now(); len(l.clock.timers) > 0 && !l.clock.timers[0].when.After(now) && !l.ended; {
		heap.Pop(&l.clock.timers).(timer).call()
	}
	(*Loop)(l).arm()
}

// alarm is the handler of the timerfd.
type alarm Loop

// timer is a function, and the time at which to call it.
type timer struct {
	when time.Time
	call func()
}

// timers are ordered as a heap: the next timer comes first.
type timers []timer

// Len implements heap.Interface.
func (t timers) Len() int { return len(t) }

// Less implements heap.Interface.
func (t timers) Less(i, j int) bool { return t[i].when.Before(t[j].when) }

// Swap implements heap.Interface.
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	(*t)[last] = timer{}
	*t = (*t)[:last]
	return x
}
