package health

import (
	"fmt"
	"math"
	"time"
)

// A record is what an [Unanswered] knows of an endpoint. It belongs to who calls Round.
type record struct {
	heard  int64 // the endpoint's, in the last round
	alive  bool  // it was heard since the round before
	rounds int   // in which it was

	// Questions of the past: answered in time, or not. What has become unanswered since the
	// endpoint was heard last is held back until it is again: it does not make the silence
	// that is to be judged a habit.
	soon, late [questions]float64
	heldSoon   [questions]float64
	heldLate   [questions]float64
	// The same of the last seconds: each counts half after recently.
	recentSoon, recentLate float64

	fresh [questions]int64 // in this round, see tallied
	left  int64            // since it was heard

	ends    answerOf // what it says to a connection that is ended, when it is well
	asking  *asking  // nil: it is not being asked
	control *asking  // a peer, meanwhile; nil: none is needed
	nextAsk int64    // clock, not before it
	wait    int64    // between two; 0: it has not answered one since it was heard
	out     bool     // ejected for this

	suspected bool  // since it was heard
	probed    bool  // because of a probe: it stays so until one is answered
	again     int64 // clock: it was not to be ejected, and is not before that

	usual float64 // mean of recentSoon and recentLate
}

// recently is in nanoseconds, and so is patient, the time after which one is ejected that was
// not to be, because there are too many already.
const recently, patient = 2e9, 5e9

// take takes what was counted since the round before, which was gap ago.
func (r *record) take(a *Answers, gap int64) {
	heard, patience := a.heard.Load(), max(a.patience.Load(), 1)
	r.alive = heard > r.heard
	r.heard = heard
	fade := math.Exp2(-float64(gap) / recently)
	r.recentSoon *= fade
	r.recentLate *= fade
	unanswered := int64(0)
	for k := range a.kinds {
		soon, late, waiting := a.kinds[k].soon.Swap(0), a.kinds[k].late.Swap(0), a.kinds[k].waiting.Swap(0)
		r.fresh[k] = a.kinds[k].fresh.Swap(0)
		r.heldSoon[k] += float64(soon)
		// One that goes on to wait is as good as one more for each time that it might have
		// been answered in.
		r.heldLate[k] += float64(late) + float64(waiting)*float64(gap)/float64(patience)
		r.recentSoon += float64(soon)
		r.recentLate += float64(late)
		if question(k) != greeting {
			unanswered += late + waiting
		}
	}
	a.waiting.Store(unanswered)
	a.longest.Store(a.first.Swap(0))
	if a.refused.Swap(false) {
		*r = record{heard: heard, alive: r.alive, out: r.out, probed: r.probed}
	}
	if r.left = a.left.Load(); r.alive {
		r.commit()
		r.forgive(a)
	}
}

// busy reports whether anything was asked or answered.
func (r *record) busy() bool {
	return r.alive || r.known() && r.asked() > 0 || r.out || r.asking != nil
}

// commit makes the past of what was held back.
func (r *record) commit() {
	r.rounds++
	r.usual += (r.recentSoon + r.recentLate - r.usual) / float64(min(r.rounds, 100))
	for k := range r.soon {
		r.soon[k] += r.heldSoon[k]
		r.late[k] += r.heldLate[k]
		if r.soon[k]+r.late[k] > memory {
			r.soon[k] /= 2
			r.late[k] /= 2
		}
	}
	r.heldSoon, r.heldLate = [questions]float64{}, [questions]float64{}
}

// forgive forgets who has given up.
func (r *record) forgive(a *Answers) {
	a.left.Store(0)
	a.leavers[0].Store(0)
	a.leavers[1].Store(0)
	r.left = 0
}

// restart has the silence counted from now on, and what was held back forgotten.
func (r *record) restart(a *Answers, now int64) {
	a.hear(now)
	r.heard = a.heard.Load()
	r.heldSoon, r.heldLate = [questions]float64{}, [questions]float64{}
	r.fresh = [questions]int64{}
	r.forgive(a)
}

// missed is how likely it is, by the past, that a question is not answered in time. What is
// not known is as likely as not.
func (r *record) missed(k question) float64 { return (r.late[k] + 1) / (r.soon[k] + r.late[k] + 2) }

// known reports whether the endpoint has answered often enough to be judged by that.
func (r *record) known() bool {
	return total(r.soon) >= learned && r.rounds >= learnedRounds
}

// asked is how many have asked since the endpoint was heard, and have no answer in time.
func (r *record) asked() int64 { return total(r.fresh) + r.left }

func total[N int64 | float64](of [questions]N) (sum N) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// telling reports whether that is less likely than 1 in e to the chance.
func (r *record) telling(chance float64) bool {
	weight := -float64(r.left) * math.Log(r.missed(firstQuestion))
	for k, n := range r.fresh {
		weight -= float64(n) * math.Log(r.missed(question(k)))
	}
	return r.known() && r.asked() >= fewest && weight >= chance
}

// peerState is what an endpoint says of another one that is silent meanwhile.
type peerState uint8

const (
	peerIdle   peerState = iota // next to nobody asks it
	peerWell                    // it answers as it always does
	peerSilent                  // it is silent, too
	peerSlow                    // it answers, and less often in time than it did
	peerStates
)

// peer is what it says at a time.
func (r *record) peer(now int64) peerState {
	all := r.recentSoon + r.recentLate
	usual := total(r.late) / max(total(r.soon)+total(r.late), 1)
	switch {
	case r.asked() > 0 && now-r.heard > recently/2:
		return peerSilent
	case all < 2:
		return peerIdle
	case r.recentSoon >= 2 && r.recentLate <= all*(2*usual+0.1):
		return peerWell
	}
	return peerSlow
}

// givenUp reports whether most of those who have asked have given up, and not those of one
// source alone while others are served. If few ask who always did, those may be others.
func (r *record) givenUp(w *Watched, now int64) bool {
	a, expected := w.Answers, r.usual*math.Ln2/recently*float64(now-r.heard)
	if r.left < fewest || r.left < r.asked()/2 || float64(r.asked()) < expected/8 || r.missed(firstQuestion) > 0.05 {
		return false
	}
	one := Source(a.leavers[0].Load())
	switch {
	case one == Anybody:
		return false
	case a.leavers[1].Load() != 0:
		return true
	}
	return !w.Judge.servesOthers(one, now)
}

// acquit has nothing be asked of it any more, but what is to be known of it.
func (r *record) acquit() {
	if r.ends == yes {
		r.asking, r.control = nil, nil
	}
	if r.alive {
		r.wait = 0
	}
}

// eject ejects it, if that may be: for a time, or because of a probe until one is answered.
func (r *record) eject(now int64, all []Watched, w *Watched, and string, probed bool) bool {
	r.out = w.Judge.Eject(now, r.cause(w, all, time.Duration(now-r.heard))+"; "+and, probed)
	r.probed = r.out && probed
	r.again = now + patient
	return r.out
}

// back is the end of an ejection.
func (r *record) back(a *Answers, now int64) {
	r.restart(a, now)
	r.out, r.probed, r.asking, r.control, r.wait = false, false, nil, nil, 0
}

// rounded has two digits or three, as people read it.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= 100*time.Microsecond:
		return d.Round(100 * time.Microsecond)
	}
	return d
}

// cause says why it is ejected.
func (r *record) cause(w *Watched, all []Watched, silence time.Duration) string {
	var peers answerCounts
	for i := range all {
		if all[i].Answers != w.Answers {
			peers.add(all[i].Answers)
		}
	}
	n := r.asked()
	text := fmt.Sprintf("unanswered: %d of %d clients that have asked in the last %v", n, n, silence.Round(100*time.Millisecond))
	if took, part := peers.within(99); part > 0 {
		text += fmt.Sprintf("; its peers answer %.1f %% within %v", math.Floor(part*10)/10, rounded(took))
	}
	return text
}
