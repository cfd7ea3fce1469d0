package relay

import (
	"math"
	"sync/atomic"
	"time"
)

// Waits is how a session spent its time. Each moment counts once. If the two directions waited for different
// things, it counts for Bandwidth, else for ToA, else for ToB, else for the others. The rest of [Result.Duration]
// was no wait: nothing moved for two seconds or more, and no question of the first side was open.
//
// What a direction has waited for is known when that wait ends. A wait for bytes counts for the side that ended
// it by sending some; a wait that has not ended counts as in [Turn]: for the second side, if the first one has
// asked. A session on a loop counts in steps of 131 µs, without a bias, and up to 6 days of each kind. A
// session on goroutines counts only with [Config.LegsAfter].
type Waits struct {
	ForA, ForB time.Duration // for bytes of that side
	// PausesA and PausesB count the waits of ForA and ForB that were at least one step long.
	PausesA, PausesB int64
	ToA, ToB         time.Duration // for room at that side: it took none of the bytes that were held for it
	Bandwidth        time.Duration // for limits of bandwidth
	// Loop is the time in which bytes had come, or might have, but the session had no turn: others had theirs,
	// or its own was cut. It lacks the time for which the thread had no CPU after it slept.
	Loop time.Duration
}

// A waiting is a kind of wait.
type waiting uint8

const (
	forA waiting = iota
	forB
	toA
	toB
	forLoop
	forBandwidth
	forNothing // not recorded
	waitings   = int(forNothing)
	// smallWaitings are the waitings that a Driven has room for; a throttle holds the wait for bandwidth.
	smallWaitings = int(forBandwidth)
)

const (
	// waitTick is the unit of waits on a loop as a shift of the loop's clock: 131 µs.
	waitTick = 17
	// quietGap is the time from which on a wait for bytes does not count, unless a question is open. The first
	// three timeouts of a lost packet are shorter.
	quietGap = int64(2 * time.Second)
	// With at most fewMoves moves, the first side may still be sending its first question.
	fewMoves = 64
)

// ticks returns the time between two moments in units of waitTick. Sums of ticks have no bias, because the
// remainder of a tick counts in the next.
func ticks(from, to int64) uint32 {
	return uint32(min(max(to>>waitTick-from>>waitTick, 0), math.MaxUint32))
}

// addTicks adds without overflow.
func addTicks(sum *uint32, n uint32) {
	if *sum += n; *sum < n {
		*sum = math.MaxUint32
	}
}

func tickTime(n uint32) time.Duration { return time.Duration(int64(n) << waitTick) }

// pass counts the time since active as a wait for w, and sets active to now. The part in which the loop may have
// been busy counts as forLoop.
func (s *Driven) pass(w waiting, now int64) {
	if now <= s.active {
		return
	}
	switch {
	case w == forBandwidth:
		s.throttle().waited += now - s.active
	case w != forNothing:
		turn := now
		if w != forLoop {
			turn = max(now-int64(s.drv.loop.Behind()), s.active)
			n := ticks(s.active, turn)
			addTicks(&s.waited[w], n)
			s.pause(w, n)
		} else {
			turn = s.active
		}
		addTicks(&s.waited[forLoop], ticks(turn, now))
	}
	s.active = now
}

// pause counts one wait for bytes.
func (s *Driven) pause(w waiting, n uint32) {
	switch {
	case n == 0:
	case w == forA:
		s.pauses[0]++
	case w == forB:
		s.pauses[1]++
	}
}

// source returns the kind of a direction's wait for bytes.
func (s *Driven) source(d *direction) waiting {
	if d == &s.ab {
		return forA
	}
	return forB
}

// ended returns the kind of wait that a direction has ended by a move; open was the open wait.
func (s *Driven) ended(d *direction, open waiting, now int64) waiting {
	switch {
	case open != forNothing && open != forB:
		return open
	case now-s.active < quietGap, d == &s.ba && open == forB:
		return s.source(d)
	}
	return forNothing
}

// open returns the kind of wait that has not ended.
func (s *Driven) open() waiting {
	switch {
	case s.ab.pace == resting, s.ba.pace == resting:
		return forBandwidth
	case s.ba.held != nil:
		return toA
	case s.ab.held != nil:
		return toB
	case s.is(recalled | due):
		return forLoop
	case s.asked():
		return forB
	}
	return forNothing
}

// asked reports whether the first side waits for an answer, as far as its bytes show. A side that goes on
// sending without any answer does not.
func (s *Driven) asked() bool {
	return !s.ba.is(ended) && s.ab.moves != 0 && !s.b.is(saidLast) && (s.ba.moves != 0 || s.ab.moves < fewMoves)
}

// waits returns the sums so far.
func (s *Driven) waits() (w Waits) {
	if s.drv == nil {
		return w
	}
	of := [waitings]time.Duration{}
	for i, n := range s.waited {
		of[i] = tickTime(n)
	}
	if t := s.throttle(); t != nil {
		of[forBandwidth] = time.Duration(t.waited)
	}
	if now := s.drv.loop.Now(); !s.is(over | carried) {
		if open := s.open(); open != forNothing {
			of[open] += time.Duration(max(now-s.active, 0))
		}
	}
	w = newWaits(&of)
	w.PausesA, w.PausesB = int64(s.pauses[0]), int64(s.pauses[1])
	return w
}

func newWaits(of *[waitings]time.Duration) Waits {
	return Waits{ForA: of[forA], ForB: of[forB], ToA: of[toA], ToB: of[toB], Bandwidth: of[forBandwidth], Loop: of[forLoop]}
}

// sessionWaits are the waits of a session on goroutines.
type sessionWaits struct {
	of               [waitings]atomic.Int64
	pausesA, pausesB atomic.Int64
}

// note adds one wait.
func (w *sessionWaits) note(what waiting, gap int64) {
	if gap > 0 && what != forNothing {
		w.of[what].Add(gap)
	}
	switch {
	case gap < 1<<waitTick:
	case what == forA:
		w.pausesA.Add(1)
	case what == forB:
		w.pausesB.Add(1)
	}
}

func (w *sessionWaits) load() Waits {
	of := [waitings]time.Duration{}
	for i := range w.of {
		of[i] = time.Duration(w.of[i].Load())
	}
	all := newWaits(&of)
	all.PausesA, all.PausesB = w.pausesA.Load(), w.pausesB.Load()
	return all
}

// noteWait counts what a direction of a session on goroutines has waited for. It does not look at the other
// direction.
func (s *Session) noteWait(d *direction, waited wait, gap int64) {
	ofA := d == &s.ab
	if waited == waitSource && d.moves != 0 { // not while it rests
		defer s.spoke.Store(!ofA)
	}
	switch {
	case waited == waitTokens:
		s.waits.note(forBandwidth, gap)
	case waited == waitSink && ofA:
		s.waits.note(toB, gap)
	case waited == waitSink:
		s.waits.note(toA, gap)
	case ofA && gap < quietGap:
		s.waits.note(forA, gap)
	case !ofA && (gap < quietGap || !s.spoke.Load()):
		s.waits.note(forB, gap)
	}
}

// waitedAtEnd counts the wait that the end of a session on goroutines has ended.
func (s *Session) waitedAtEnd() {
	if s.waits != nil && s.ab.moves != 0 && !s.spoke.Load() {
		s.waits.note(forB, s.r.clock.now()-s.active.Load())
	}
}
