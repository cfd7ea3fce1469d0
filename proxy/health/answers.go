package health

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay"
)

// Answers counts how soon an endpoint answers its clients, and which it has not answered.
// A question is what a client sends first, or after the endpoint's last byte. Event loops
// tell it of sessions, a few atomic operations for each, and not of bytes; an [Unanswered]
// reads it in rounds. Everything but the record may be used by any goroutine. Its zero value
// is ready, and counts nothing as unanswered before the first round.
type Answers struct {
	heard atomic.Int64 // clock, of the last answer or, if that is later, of when it began to be looked for

	// What an Unanswered has said: a question is unanswered after so long, and so long ago
	// was the last round.
	patience, gap atomic.Int64

	times [answerTimes]atomic.Int64 // first answers, by how long they took
	kinds [questions]tallied
	first atomic.Int64 // of those that wait now: for how long the one that has waited longest does

	refused atomic.Bool  // it was down: what answers now may be something else
	left    atomic.Int64 // since it was heard
	leaving atomic.Int64 // in this round: those that have ended and would have left
	leavers blame        // those that have left
	belated blame        // those that are unanswered

	// Of the last round, for those who look.
	waiting, longest atomic.Int64 // those that are unanswered, but for greetings
	judged           atomic.Bool

	record record // of the Unanswered alone
}

// A question is to greet, as servers do that speak first, or the first one of a session, or a
// later one. What a protocol begins with says nothing of what follows: a login is answered at
// once, what is then published never.
type question uint8

const (
	greeting question = iota
	firstQuestion
	laterQuestion
	questions
)

// A tallied is what became of questions of a kind since the last round.
type tallied struct {
	soon    atomic.Int64 // answered in time
	late    atomic.Int64 // have become unanswered
	waiting atomic.Int64 // are unanswered, and were before
	fresh   atomic.Int64 // are unanswered, and were asked after the endpoint was heard, or shortly before
}

// answerTimes are powers of two of a microsecond; the last has all that is longer.
const answerTimes = 24

func answerTime(took time.Duration) int {
	return min(bits.Len64(uint64(max(took.Microseconds(), 0))), answerTimes-1)
}

// First tells of what was sent first in a session, which took so long: to a client that had
// asked, or to greet.
func (a *Answers) First(took time.Duration, asked bool, now int64) {
	kind := greeting
	if asked {
		kind = firstQuestion
	}
	a.times[answerTime(took)].Add(1)
	if p := a.patience.Load(); p > 0 && int64(took) < p {
		a.kinds[kind].soon.Add(1)
	}
	a.hear(now)
}

// hear notes that it has answered at a time.
func (a *Answers) hear(at int64) {
	for {
		was := a.heard.Load()
		if at <= was || a.heard.CompareAndSwap(was, at) {
			return
		}
	}
}

// Watch is told how a session from a source stands, once in each round. A client that has
// waited and then ended its side would be gone, if the endpoint had ended its own.
func (a *Answers) Watch(from Source, t *relay.Turn, now int64) {
	patience, gap := a.patience.Load(), a.gap.Load()
	if patience == 0 {
		return
	}
	if t.Answered {
		a.hear(now - int64(max(t.Quiet, t.Asked)))
		if t.Spoke && int64(t.Waited) < patience {
			a.kinds[laterQuestion].soon.Add(1)
		}
	}
	kind := laterQuestion
	switch {
	case t.Last == relay.SideNone:
		kind = greeting
	case !t.Spoke && !t.Answered:
		kind = firstQuestion
	}
	asked := int64(t.Asked)
	if asked < patience {
		return
	}
	k := &a.kinds[kind]
	if asked < patience+gap {
		k.late.Add(1)
		a.belated.note(from)
	} else {
		k.waiting.Add(1)
	}
	switch fresh := asked <= now-a.heard.Load()+patience; {
	case !fresh:
	case t.Ended && asked-int64(t.Quiet) >= patience:
		a.leaving.Add(1)
		a.leavers.note(from)
	default:
		k.fresh.Add(1)
	}
	if kind != greeting && a.first.Load() < asked { // of two loops either may be the last
		a.first.Store(asked)
	}
}

// Ended tells that the endpoint has ended a session, or reset it: it does something, or is
// another one by now.
func (a *Answers) Ended(now int64) { a.hear(now) }

// Left tells that a client has ended a session, which lasted so long, after it has asked
// something and without an answer.
func (a *Answers) Left(from Source, lasted time.Duration, now int64) {
	patience := a.patience.Load()
	if patience == 0 {
		return
	}
	if int64(lasted) < patience {
		a.kinds[firstQuestion].late.Add(1)
		return
	}
	if now-int64(lasted) < a.heard.Load()-patience {
		return
	}
	a.left.Add(1)
	a.leavers.note(from)
}

// Refused tells that the endpoint could not be connected to. What answers afterwards may be
// another program, of which nothing is known.
func (a *Answers) Refused() {
	if !a.refused.Load() {
		a.refused.Store(true)
	}
}

// Known reports whether the endpoint has answered often enough, in time, that an [Unanswered]
// can judge it by that, and has ended a connection that it was probed by.
func (a *Answers) Known() bool { return a.judged.Load() }

// Unanswered returns how many clients had asked something without an answer in time when
// that was looked at last, and for how long the first of them.
func (a *Answers) Unanswered() (clients int64, longest time.Duration) {
	return a.waiting.Load(), time.Duration(a.longest.Load())
}

// Within returns in which time a part of the sessions, at least percent, was answered first,
// and which part that is, in percent; 0 if none was.
func (a *Answers) Within(percent float64) (took time.Duration, part float64) {
	var t answerCounts
	t.add(a)
	return t.within(percent)
}

// answerCounts are first answers of some endpoints by how long they took.
type answerCounts [answerTimes]int64

func (t *answerCounts) add(a *Answers) {
	for i := range t {
		t[i] += a.times[i].Load()
	}
}

func (t *answerCounts) within(percent float64) (took time.Duration, part float64) {
	all, seen := int64(0), int64(0)
	for _, n := range t {
		all += n
	}
	if all == 0 {
		return 0, 0
	}
	for i, n := range t {
		if seen += n; float64(seen)*100 >= percent*float64(all) {
			return time.Duration(1<<i) * time.Microsecond, float64(seen) * 100 / float64(all)
		}
	}
	return 0, 0
}
