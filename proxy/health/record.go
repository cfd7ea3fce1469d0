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
	again   int64    // clock: it was not to be ejected, and is not before that
	out     reason   // why it is ejected

	suspected bool    // since it was heard
	usual     float64 // mean of recentSoon and recentLate
	drift     drift   // of those that are late, if that is looked for
}

// A reason is why an endpoint is ejected.
type reason uint8

const (
	notEjected  reason = iota
	standsStill        // until it answers anybody, or a probe
	givenUp            // until it answers anybody, or for a time
	slow               // for a time
)

// recently is in nanoseconds, and so is patient, the time after which one is ejected that was
// not to be, because there are too many already.
const recently, patient = 2e9, 5e9

// take takes what was counted since the round before, which was gap ago. Drifts are looked
// for if there is a time within which answers have to come.
func (r *record) take(a *Answers, now, gap int64, drifts bool) {
	heard, patience := a.heard.Load(), max(a.patience.Load(), 1)
	r.alive = heard > r.heard
	r.heard, r.drift.fresh = heard, false
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
			if drifts {
				r.drift.add(float64(soon), float64(late), r.missed(question(k)))
			}
		}
	}
	a.waiting.Store(unanswered)
	a.longest.Store(a.first.Swap(0))
	if a.refused.Swap(false) {
		*r = record{heard: heard, alive: r.alive, out: r.out}
	}
	steady := r.drift.settle(now)
	if steady {
		a.belated.forget()
	}
	if r.left = a.left.Load() + a.leaving.Swap(0); r.alive {
		r.commit(steady)
		r.forgive(a)
	}
}

// busy reports whether anything was asked or answered.
func (r *record) busy() bool {
	return r.alive || r.known() && r.asked() > 0 || r.out != notEjected || r.asking != nil
}

// commit makes the past of what was held back, if that is not what an ejection is for, and if
// it is steady: what may be a change is not what is usual before it turns out to be none.
func (r *record) commit(steady bool) {
	r.rounds++
	r.usual += (r.recentSoon + r.recentLate - r.usual) / float64(min(r.rounds, 100))
	if !steady && r.out == notEjected {
		return
	}
	for k := range r.soon {
		if r.out != notEjected {
			break
		}
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
	a.leavers.forget()
	r.left = 0
}

// restart has the silence counted from now on, and what was held back forgotten.
func (r *record) restart(a *Answers, now int64) {
	a.hear(now)
	r.heard = a.heard.Load()
	r.heldSoon, r.heldLate = [questions]float64{}, [questions]float64{}
	r.fresh, r.drift = [questions]int64{}, drift{}
	a.belated.forget()
	r.forgive(a)
}

// excuse leaves a time out of the silence, of which nothing is known.
func (r *record) excuse(a *Answers, now, gap int64) {
	a.hear(min(r.heard+gap, now))
	r.heard = a.heard.Load()
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

// givenUp reports whether a third of those who have asked have given up, and not those of one
// source alone while others are served. If few ask who always did, those may be others.
func (r *record) givenUp(w *Watched, now int64) bool {
	a, expected := w.Answers, r.usual*math.Ln2/recently*float64(now-r.heard)
	if r.left < fewest || r.left < r.asked()/3 || float64(r.asked()) < expected/8 || r.missed(firstQuestion) > 0.05 {
		return false
	}
	return !a.leavers.oneSource(w.Judge, now)
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

// eject ejects it, if that may be: for a time, or if it stands still until it does not.
func (r *record) eject(now int64, w *Watched, why reason, cause string) {
	r.again = now + patient
	if w.Judge.Eject(now, cause, why == standsStill) {
		r.out = why
	}
}

// back is the end of an ejection.
func (r *record) back(a *Answers, now int64) {
	r.restart(a, now)
	r.out, r.asking, r.control, r.wait = notEjected, nil, nil, 0
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

// silence says why an endpoint is ejected that answers nobody.
func (r *record) silence(now int64, w *Watched, all []Watched, and string) string {
	n, since := r.asked(), time.Duration(now-r.heard).Round(100*time.Millisecond)
	return fmt.Sprintf("unanswered: %d of %d clients that have asked in the last %v%s; %s", n, n, since, peersText(w, all), and)
}

// peersText says how soon the other endpoints answer, if they do.
func peersText(w *Watched, all []Watched) string {
	var peers answerCounts
	for i := range all {
		if all[i].Answers != w.Answers {
			peers.add(all[i].Answers)
		}
	}
	took, part := peers.within(99)
	if part == 0 {
		return ""
	}
	return fmt.Sprintf("; its peers answer %.1f %% within %v", math.Floor(part*10)/10, rounded(took))
}
