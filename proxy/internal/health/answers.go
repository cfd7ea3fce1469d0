package health

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay"
)

// Answers counts the questions of an endpoint's clients, and the time to their answers. A
// question is a client's first byte, or its first byte after the endpoint's last. Event loops
// report sessions, at a few atomic operations each; bytes are not reported. An [Unanswered]
// reads the counts in rounds. The methods are safe for concurrent use. The zero value is
// ready; it counts no question as unanswered before the first round.
type Answers struct {
	heard atomic.Int64 // clock: the last answer, or the start of the count if that is later

	// The Unanswered sets these in each round.
	patience atomic.Int64 // a question is unanswered after this time
	gap      atomic.Int64 // between the last two rounds
	round    atomic.Int64 // clock: the last round

	times [answerTimes]atomic.Int64 // counts first answers by the time they took
	took  atomic.Int64              // the sum of these times
	kinds [questions]tallied
	first atomic.Int64 // longest time of an unanswered question, in this round

	refused atomic.Bool  // a connect was refused since the last round
	left    atomic.Int64 // clients that have given up since heard
	leaving atomic.Int64 // the same in this round, where the endpoint has not ended the session yet
	leavers blame        // sources of the clients in left and leaving
	belated blame        // the sources of unanswered questions

	// Behavior of clients, by which an endpoint that has never answered is compared with its peers.
	ended   lengths      // of answered sessions
	gaveUp  lengths      // of the sessions that left counts
	early   atomic.Int64 // clients that have left without an answer before patience, since heard
	pressed atomic.Int64 // in this round: unanswered sessions in which the client goes on sending

	// Results of the last round.
	waiting, longest atomic.Int64 // unanswered questions, without greetings, and the oldest one's age
	judged           atomic.Bool
	silence          atomic.Pointer[Silence] // nil: there is none

	record record // belongs to the Unanswered
}

// A question has one of three kinds, which are counted separately: a protocol may answer a
// login at once, and later publications never. If servers speak first, the connect is the
// question, of the kind greeting.
type question uint8

const (
	greeting question = iota
	firstQuestion
	laterQuestion
	questions
)

// A tallied counts questions of one kind since the last round.
type tallied struct {
	soon    atomic.Int64 // answered in time
	late    atomic.Int64 // unanswered since this round
	waiting atomic.Int64 // unanswered since an earlier one
	fresh   atomic.Int64 // the part of late and waiting that was asked after heard, or at most patience before it
}

// answerTimes are powers of two of a microsecond; the last one holds all longer times.
const answerTimes = 24

func answerTime(took time.Duration) int {
	return min(bits.Len64(uint64(max(took.Microseconds(), 0))), answerTimes-1)
}

// First reports the endpoint's first byte in a session. took is the time since the client's
// last byte if it has asked, and since the connect otherwise.
func (a *Answers) First(took time.Duration, asked bool, now int64) {
	kind := greeting
	if asked {
		kind = firstQuestion
	}
	a.times[answerTime(took)].Add(1)
	a.took.Add(int64(max(took, 0)))
	switch p := a.patience.Load(); {
	case p == 0:
	case int64(took) < p:
		a.kinds[kind].soon.Add(1)
	case now-int64(took)+p > a.round.Load(): // no round has counted it as late
		a.kinds[kind].late.Add(1)
	}
	a.hear(now)
}

// hear records an answer.
func (a *Answers) hear(at int64) {
	for {
		was := a.heard.Load()
		if at <= was || a.heard.CompareAndSwap(was, at) {
			return
		}
	}
}

// Watch reports a session's state, once in each round. If a client has waited for patience and
// then has ended its side, it has given up. The session still lasts until the endpoint ends
// its side, too.
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
	if int64(t.Quiet) < gap && kind != greeting && !t.Ended {
		a.pressed.Add(1)
	}
	switch fresh := asked <= now-a.heard.Load()+patience; {
	case !fresh:
	case t.Ended && asked-int64(t.Quiet) >= patience:
		a.leaving.Add(1)
		a.leavers.note(from)
	default:
		k.fresh.Add(1)
	}
	if kind != greeting && a.first.Load() < asked { // two loops may race; the figure is only displayed
		a.first.Store(asked)
	}
}

// Ended reports that the endpoint has ended or reset a session. That is a sign of life, or of
// another process at its address.
func (a *Answers) Ended(now int64) { a.hear(now) }

// Left reports that a client without an answer to its question has ended its session.
func (a *Answers) Left(from Source, lasted time.Duration, now int64) {
	patience := a.patience.Load()
	if patience == 0 {
		return
	}
	if int64(lasted) < patience {
		a.kinds[firstQuestion].late.Add(1)
		a.early.Add(1)
		return
	}
	if now-int64(lasted) < a.heard.Load()-patience {
		return
	}
	a.left.Add(1)
	a.gaveUp.add(lasted)
	a.leavers.note(from)
}

// Served reports the end of a session that was answered, whichever side ended it.
func (a *Answers) Served(lasted time.Duration) { a.ended.add(lasted) }

// Refused reports a connect that was refused. The next process at this address may be another
// program, so the counts of the past are dropped.
func (a *Answers) Refused() {
	if !a.refused.Load() {
		a.refused.Store(true)
	}
}

// Known reports whether an [Unanswered] can judge the endpoint: it has answered enough
// questions in time, and has closed the connection of a probe.
func (a *Answers) Known() bool { return a.judged.Load() }

// Unanswered returns the number of questions that were unanswered in the last round, and the age
// of the oldest one.
func (a *Answers) Unanswered() (clients int64, longest time.Duration) {
	return a.waiting.Load(), time.Duration(a.longest.Load())
}

// Within returns the time within which at least percent of the sessions had their first
// answer, and the exact part, in percent. If there was no answer, both are 0.
func (a *Answers) Within(percent float64) (took time.Duration, part float64) {
	var t answerCounts
	t.add(a)
	return t.within(percent)
}

// Sum returns how many sessions have had a first answer so far, and the sum of the times that these took.
func (a *Answers) Sum() (answers int64, took time.Duration) {
	return total(a.Times()), time.Duration(a.took.Load())
}

// Times returns how many sessions have ever had a first answer, by the time it took: element i
// counts times below 2^i microseconds and not below half of it; the last element counts all longer
// times.
func (a *Answers) Times() []int64 {
	times := make([]int64, answerTimes)
	for i := range times {
		times[i] = a.times[i].Load()
	}
	return times
}

// answerCounts are the first answers of several endpoints by the time they took.
type answerCounts [answerTimes]int64

func (t *answerCounts) add(a *Answers) {
	for i := range t {
		t[i] += a.times[i].Load()
	}
}

func (t *answerCounts) within(percent float64) (took time.Duration, part float64) {
	all, seen := float64(total(t[:])), int64(0)
	if all == 0 {
		return 0, 0
	}
	for i, n := range t {
		if seen += n; float64(seen)*100 >= percent*all {
			return time.Duration(1<<i) * time.Microsecond, float64(seen) * 100 / all
		}
	}
	return 0, 0
}
