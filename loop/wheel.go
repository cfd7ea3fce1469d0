package loop

import (
	"math/bits"
	"time"
)

// A Timer calls its owner once, at a given time or a little later. It is made to be part of a larger struct.
// The zero value is an unarmed timer; an armed timer must not be copied. Arming, moving and disarming allocate
// nothing and take constant time for any number of timers.
type Timer struct {
	next, prev *Timer // nil unless armed
	due        int64  // tick; in the head of a list, the list's place
	owner      Expirer
}

// An Expirer is called by a [Timer].
type Expirer interface {
	// Expired is called on the loop's goroutine. The timer may be armed again.
	Expired(t *Timer)
}

// A wheel keeps timers in lists by the time when they are due: 64 lists of one tick each, 64 of 64 ticks, and
// so on (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987). When the time of a longer list
// begins, its timers are spread over the shorter lists.
type wheel struct {
	base  int64 // clock of tick 0
	tick  int64 // the present tick: everything due before it has been called
	used  [wheelLevels]uint64
	lists [wheelLevels][wheelLists]Timer // heads of circular lists
	late  times                          // how late timers were called after their ticks
	clock func() int64

	// The rest of the present tick: fired has timers to spread if level is above 0, and otherwise to call; then
	// come the lists of lower levels. A negative level means that nothing is left.
	level int
	fired Timer // the head of a list
	left  int   // how many timers this turn may still take
	began int64 // clock at the turn's first look, after timersLook timers
	short bool  // the last turn has left timers that are due
}

const (
	wheelTick   = int64(250 * time.Microsecond)
	wheelBits   = 6
	wheelLists  = 1 << wheelBits
	wheelLevels = 5 // 3 days; later timers are spread again after that

	// A turn spreads and calls at most mostTimers timers, and stops when timersTime is over. The others wait
	// for the next turn, so that events are served in between. A timer that was not touched for a while takes a
	// microsecond, because it is in no cache; its function may take longer. The clock is read only every
	// timersLook timers.
	mostTimers = 1 << 10
	timersTime = int64(time.Millisecond)
	timersLook = 16
)

func (w *wheel) start(now int64, clock func() int64) {
	w.base, w.clock, w.level = now, clock, -1
	for level := range w.lists {
		for i := range w.lists[level] {
			head := &w.lists[level][i]
			head.next, head.prev, head.due = head, head, int64(level<<wheelBits|i)
		}
	}
	w.fired.next, w.fired.prev, w.fired.due = &w.fired, &w.fired, -1
}

// arm makes t due at the clock time at, rounded up to a tick.
func (w *wheel) arm(t *Timer, at int64) {
	w.disarm(t)
	t.due = max((at-w.base+wheelTick-1)/wheelTick, w.tick+1)
	w.place(t)
}

// place puts t into the list for its time, seen from the present tick.
func (w *wheel) place(t *Timer) {
	const most = 1<<(wheelBits*wheelLevels) - 1
	due := min(t.due, w.tick+most)
	level := max(bits.Len64(uint64(due-w.tick))-1, 0) / wheelBits
	i := due >> (wheelBits * level) & (wheelLists - 1)
	w.used[level] |= 1 << i
	t.join(&w.lists[level][i])
}

// join puts t at the end of head's list.
func (t *Timer) join(head *Timer) {
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
}

func (w *wheel) disarm(t *Timer) {
	if t.next == nil {
		return
	}
	if t.next == t.prev && t.next.due >= 0 { // the only timer of its list
		head := t.next.due
		w.used[head>>wheelBits] &^= 1 << (head & (wheelLists - 1))
	}
	t.next.prev, t.prev.next = t.prev, t.next
	t.next, t.prev = nil, nil
}

// next returns the first tick after the present one with something to spread or to call, or -1.
func (w *wheel) next() int64 {
	first := int64(-1)
	for level, used := range w.used {
		if used == 0 {
			continue
		}
		shift := wheelBits * level
		at := w.tick>>shift + 1
		at += int64(bits.TrailingZeros64(bits.RotateLeft64(used, -int(at&(wheelLists-1)))))
		if at <<= shift; first < 0 || at < first {
			first = at
		}
	}
	return first
}

// overdue returns how long something to spread or to call has been due at the clock time now, or 0 or less.
func (w *wheel) overdue(now int64) int64 {
	at := w.next()
	if at < 0 {
		return 0
	}
	return now - w.base - at*wheelTick
}

// advance calls the timers that are due at the clock time now, or as many as a turn may.
func (w *wheel) advance(now int64) {
	target := (now - w.base) / wheelTick
	w.short, w.left = false, mostTimers
	for w.level >= 0 || w.begin(target) {
		if !w.drain(now) {
			w.short = true
			return
		}
	}
}

// begin moves to the next tick that has something to do, unless it is after target.
func (w *wheel) begin(target int64) bool {
	at := w.next()
	if at < 0 || at > target {
		w.tick = max(w.tick, target)
		return false
	}
	w.tick, w.level = at, min(bits.TrailingZeros64(uint64(at))/wheelBits, wheelLevels-1)
	w.detach()
	return true
}

// detach moves the present level's list for the present tick to fired, which is empty. Every level from the one
// where begin starts downwards has such a list.
func (w *wheel) detach() {
	i := w.tick >> (wheelBits * w.level) & (wheelLists - 1)
	if w.used[w.level]&(1<<i) == 0 {
		return
	}
	w.used[w.level] &^= 1 << i
	head := &w.lists[w.level][i]
	w.fired.next, w.fired.prev = head.next, head.prev
	w.fired.next.prev, w.fired.prev.next = &w.fired, &w.fired
	head.next, head.prev = head, head
}

// drain does the work of the present tick, and reports whether it is done; otherwise the turn has done its
// share. It spreads the longer lists that begin with the tick over the shorter ones, the longest first, and
// then calls the timers of the tick. These may change other timers, even timers of the same tick, and so may
// other calls before the next turn.
func (w *wheel) drain(now int64) (done bool) {
	for ; w.level > 0; w.detach() {
		for w.fired.next != &w.fired {
			w.place(w.fired.pop())
			if w.left--; w.left%timersLook == 0 && w.spent() {
				return false
			}
		}
		w.level--
	}
	if w.fired.next != &w.fired {
		w.late.add(now - w.base - w.tick*wheelTick)
	}
	for w.fired.next != &w.fired {
		t := w.fired.pop()
		t.owner.Expired(t)
		if w.left--; w.left%timersLook == 0 && w.spent() {
			return false
		}
	}
	w.level = -1
	return true
}

// pop takes the first timer out of t's list, which is not empty and is not one of the wheel's own lists.
func (t *Timer) pop() *Timer {
	first := t.next
	t.next, first.next.prev = first.next, t
	first.next, first.prev = nil, nil
	return first
}

// spent reports whether the turn has done its share, in timers or in time.
func (w *wheel) spent() bool {
	switch {
	case w.left == 0:
		return true
	case w.left == mostTimers-timersLook:
		w.began = w.clock()
		return false
	}
	return w.clock()-w.began > timersTime
}

// untilNext returns the nanoseconds until the next tick with something to do: 0 if it has come, negative if there
// is none.
func (w *wheel) untilNext(now int64) int64 {
	if w.short {
		return 0
	}
	at := w.next()
	if at < 0 {
		return -1
	}
	return max(w.base+at*wheelTick-now, 0)
}

// Arm makes t call its owner after the duration d, never earlier. It moves a timer that is armed already. A
// call is at most a quarter of a millisecond plus one turn of the loop late, but if thousands of timers are due
// at once, the calls take several turns. d counts from [Loop.Now].
func (l *Loop) Arm(t *Timer, owner Expirer, d time.Duration) {
	if l.clock == nil { // the zero Loop
		return
	}
	t.owner = owner
	l.wheel.arm(t, l.Now()+min(int64(d), maxTimer))
}

// maxTimer is 73 years: a sum with it does not overflow.
const maxTimer = 1 << 61

// Disarm keeps t from calling. It does nothing if t is not armed.
func (l *Loop) Disarm(t *Timer) { l.wheel.disarm(t) }

// Armed reports whether t will call its owner.
func (t *Timer) Armed() bool { return t.next != nil }
