package health

import (
	"fmt"
	"math"
	"time"
)

// A record is the state of an endpoint in an [Unanswered]. It belongs to the caller of Round.
type record struct {
	heard  int64 // Answers.heard in the last round
	alive  bool  // it was later than in the round before
	rounds int   // in which alive was true

	// Questions of the past, answered in time or not. Those since the endpoint was heard last
	// are held back until it is heard again, so that a silence does not count as usual while
	// it is judged.
	soon, late [questions]float64
	heldSoon   [questions]float64
	heldLate   [questions]float64
	// The same of the last seconds; a question counts half after recently.
	recentSoon, recentLate float64

	fresh [questions]int64 // see tallied; of this round
	left  int64            // clients that have given up since heard

	ends    answerOf // the result of a probe when it was well
	asking  *asking  // the probe under way; nil: there is none
	control *asking  // a peer's, for comparison; nil: none is needed
	nextAsk int64    // clock: no probe before it
	wait    int64    // between two probes; 0: none was answered since heard
	again   int64    // clock: no ejection before it, since max_ejected had no room
	out     reason   // why it is ejected

	suspected bool    // since heard
	usual     float64 // mean of recentSoon and recentLate
	drift     drift   // of answers towards late ones, if UnansweredConfig.Within is set
}

// A reason is why an endpoint is ejected.
type reason uint8

const (
	notEjected  reason = iota
	standsStill        // until it answers a client or a probe
	givenUp            // until it answers a client, or for a time
	slow               // for a time
)

// recently is in nanoseconds, as is patient: how long an ejection is not tried again that
// max_ejected had no room for.
const recently, patient = 2e9, 5e9

// take reads the counts since the round before, gap ago. With drifts it looks for one.
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
		// A question that stays unanswered counts once more for each further patience.
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

// busy reports whether there is anything to judge.
func (r *record) busy() bool {
	return r.alive || r.known() && r.asked() > 0 || r.out != notEjected || r.asking != nil
}

// commit adds the questions that were held back to the past. It drops those of an ejection,
// and holds them back for longer while there is a drift.
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

// forgive forgets the clients that have given up.
func (r *record) forgive(a *Answers) {
	a.left.Store(0)
	a.leavers.forget()
	r.left = 0
}

// restart begins the silence now, and drops the questions that were held back.
func (r *record) restart(a *Answers, now int64) {
	a.hear(now)
	r.heard = a.heard.Load()
	r.heldSoon, r.heldLate = [questions]float64{}, [questions]float64{}
	r.fresh, r.drift = [questions]int64{}, drift{}
	a.belated.forget()
	r.forgive(a)
}

// excuse takes a time in which this process may have stood still out of the silence.
func (r *record) excuse(a *Answers, now, gap int64) {
	a.hear(min(r.heard+gap, now))
	r.heard = a.heard.Load()
}

// missed is the probability, by the past, that a question is not answered in time; 1 for a kind
// of which too few were answered in time.
func (r *record) missed(k question) float64 {
	if r.soon[k] < fewest {
		return 1
	}
	return (r.late[k] + 1) / (r.soon[k] + r.late[k] + 2)
}

// known reports whether there is enough of a past to judge by.
func (r *record) known() bool {
	return total(r.soon) >= learned && r.rounds >= learnedRounds
}

// asked is the number of questions since heard that are unanswered, or were given up.
func (r *record) asked() int64 { return total(r.fresh) + r.left }

func total[N int64 | float64](of [questions]N) (sum N) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// telling reports whether these are so many that by the past their probability is below e to
// the -chance.
func (r *record) telling(chance float64) bool {
	weight := -float64(r.left) * math.Log(r.missed(firstQuestion))
	for k, n := range r.fresh {
		weight -= float64(n) * math.Log(r.missed(question(k)))
	}
	return r.known() && r.asked() >= fewest && weight >= chance
}

// A peerState is the state of a peer of a silent endpoint.
type peerState uint8

const (
	peerIdle   peerState = iota // it gets next to no questions
	peerWell                    // it answers as it used to
	peerSilent                  // it is silent, too
	peerSlow                    // it answers, but less often in time than it used to
	peerStates
)

// peer returns the endpoint's state as a peer.
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

// givenUp reports whether a third of the clients that have asked have given up, those of more
// than one source if others are served. Much fewer questions than usual are no evidence: they
// may be another kind of clients.
func (r *record) givenUp(w *Watched, now int64) bool {
	a, expected := w.Answers, r.usual*math.Ln2/recently*float64(now-r.heard)
	if r.left < fewest || r.left < r.asked()/3 || float64(r.asked()) < expected/8 || r.missed(firstQuestion) > 0.05 {
		return false
	}
	return !a.leavers.oneSource(w.Judge, now)
}

// acquit ends a suspicion, and drops its probes.
func (r *record) acquit() {
	if r.ends == yes {
		r.asking, r.control = nil, nil
	}
	if r.alive {
		r.wait = 0
	}
}

// eject ejects the endpoint if max_ejected has room.
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

// rounded rounds to two or three digits.
func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= 100*time.Microsecond:
		return d.Round(100 * time.Microsecond)
	}
	return d
}

// silence is the cause of an ejection because of silence.
func (r *record) silence(now int64, w *Watched, all []Watched, and string) string {
	n, since := r.asked(), time.Duration(now-r.heard).Round(100*time.Millisecond)
	return fmt.Sprintf("unanswered: %d of %d clients that have asked in the last %v%s; %s", n, n, since, peersText(w, all), and)
}

// peersText says how soon the other endpoints answer.
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
