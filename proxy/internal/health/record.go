package health

import (
	"fmt"
	"math"
	"time"
)

// A record is the state of an endpoint in an [Unanswered]. It belongs to the caller of Round.
type record struct {
	heard  int64 // Answers.heard in the last round
	alive  bool  // heard was later than in the round before
	rounds int   // number of rounds in which alive was true

	// Questions of the past, answered in time or not. Questions since the endpoint's last
	// answer are held back until its next answer, so that a silence does not count as normal
	// while it is judged.
	answeredSoon, answeredLate [questions]float64
	heldSoon                   [questions]float64
	heldLate                   [questions]float64
	// The same for the last seconds; a question's weight is halved after recently.
	recentSoon, recentLate float64

	fresh [questions]int64 // in this round, see tallied
	left  int64            // clients that have given up since heard
	// leftBefore is left in the round before. askedLast is the clock at which a client last waited or gave up.
	leftBefore, askedLast int64
	pressed               int64 // see Answers; since heard
	since                 int64 // clock: the first unanswered question since heard; 0: none

	// odds are the probabilities, by the past or by peers, that a question is not answered in time. informed says that
	// there is enough evidence for them.
	odds     [questions]float64
	informed bool

	ends      answerOf // the result of a probe while the endpoint was well
	asking    *asking  // the probe in progress; nil: none
	control   *asking  // the probe of a peer, for comparison; nil: none is needed
	noControl bool     // no control was found, though no peer gets questions: the probe ejects no endpoint
	nextAsk   int64    // clock before which there is no probe
	wait      int64    // time between two probes; 0: none was answered since heard
	again     int64    // clock before which there is no ejection, because max_ejected had no room
	out       reason   // of the present ejection

	suspected bool    // since heard
	silence   silence // if there is evidence
	usual     float64 // mean of recentSoon and recentLate
	drift     drift   // from answers in time to late ones, if UnansweredConfig.Within is set
}

// A reason is the reason of an ejection.
type reason uint8

const (
	notEjected  reason = iota
	standsStill        // until it answers a client or a probe
	givenUp            // until it answers a client, or for a time
	slow               // for a time
	lasting            // not ejected: the silence has lasted for mute
)

// recently and patient are in nanoseconds. patient is the time until the next attempt at an ejection for which max_ejected
// had no room.
const recently, patient = 2e9, 5e9

// take reads the counts since the round before, gap ago. If drifts is set it looks for a drift.
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
	r.pressed += a.pressed.Swap(0)
	r.left = a.left.Load() + a.leaving.Swap(0)
	if a.refused.Swap(false) {
		*r = record{alive: r.alive, out: r.out, silence: r.silence}
		r.silence.refused = true
		r.restart(a, now)
	}
	steady := r.drift.settle(now)
	if steady && (r.alive || r.known()) {
		a.belated.forget()
	}
	if r.alive {
		r.commit(steady)
		r.forgive(a)
	}
}

// date sets the time since which clients have waited; oldest is how long the first one has.
func (r *record) date(now, oldest int64) {
	switch {
	case r.waiters() == 0:
		r.since = 0
	case r.since == 0:
		r.since = max(now-oldest, r.heard)
	}
}

// busy reports whether there is anything to judge.
func (r *record) busy() bool {
	return r.alive || r.informed && r.asked() > 0 || r.out != notEjected || r.asking != nil || r.silence.reason != notEjected
}

// commit adds the questions that were held back to the past. It drops questions from the time of an
// ejection, and keeps holding questions back during a drift.
func (r *record) commit(steady bool) {
	r.rounds++
	r.usual += (r.recentSoon + r.recentLate - r.usual) / float64(min(r.rounds, 100))
	if !steady && r.out == notEjected {
		return
	}
	for k := range r.answeredSoon {
		if r.out != notEjected {
			break
		}
		r.answeredSoon[k] += r.heldSoon[k]
		r.answeredLate[k] += r.heldLate[k]
		if r.answeredSoon[k]+r.answeredLate[k] > memory {
			r.answeredSoon[k] /= 2
			r.answeredLate[k] /= 2
		}
	}
	r.heldSoon, r.heldLate = [questions]float64{}, [questions]float64{}
}

// forgive resets the clients that have given up.
func (r *record) forgive(a *Answers) {
	a.left.Store(0)
	a.early.Store(0)
	a.gaveUp.forget()
	a.leavers.forget()
	r.left, r.pressed, r.since = 0, 0, 0
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

// excuse subtracts from the silence a time in which this process may have stood still.
func (r *record) excuse(a *Answers, now, gap int64) {
	a.hear(min(r.heard+gap, now))
	r.heard = a.heard.Load()
}

// missed returns the probability, by the past, that a question is not answered in time. It is 1 if too few questions of its
// kind were answered.
func (r *record) missed(k question) float64 {
	if r.answeredSoon[k] < fewest {
		return 1
	}
	return (r.answeredLate[k] + 1) / (r.answeredSoon[k] + r.answeredLate[k] + 2)
}

// known reports whether the past is long enough to judge by.
func (r *record) known() bool {
	return total(r.answeredSoon[:]) >= learned && r.rounds >= learnedRounds
}

// waiters returns the number of questions in asked that should have been answered.
func (r *record) waiters() int64 {
	n := r.left
	for k := range r.fresh {
		if r.odds[k] < 0.9 {
			n += r.fresh[k]
		}
	}
	return n
}

// asked returns the number of questions since heard that are unanswered, or were given up.
func (r *record) asked() int64 { return total(r.fresh[:]) + r.left }

// usuallyLate returns the part of late answers in the past.
func (r *record) usuallyLate() float64 {
	late := total(r.answeredLate[:])
	return late / max(total(r.answeredSoon[:])+late, 1)
}

func total[N uint32 | int64 | float64](counts []N) (sum N) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// significant reports whether the probability that all questions in asked stay unanswered is below
// e to the -unlikely.
func (r *record) significant() bool {
	weight := -float64(r.left) * math.Log(r.odds[firstQuestion])
	for k, n := range r.fresh {
		weight -= float64(n) * math.Log(r.odds[k])
	}
	return r.informed && r.asked() >= fewest && weight >= unlikely
}

// unansweredFor returns how long clients have waited in vain.
func (r *record) unansweredFor(now int64) int64 {
	if r.since == 0 {
		return 0
	}
	return now - r.since
}

// givenUp reports whether a third of the clients that have asked have given up. If other clients are served, they must be
// of more than one source. If the endpoint has a past, many fewer questions than usual are no evidence: they may come from
// another kind of clients. If the endpoint has no past, it is compared with its peers.
func (r *record) givenUp(cfg *UnansweredConfig, all []Watched, i int, now int64) bool {
	w, expected := &all[i], r.usual*math.Ln2/recently*float64(now-r.heard)
	switch {
	case r.left < fewest, r.left < r.asked()/3, r.odds[firstQuestion] > 0.05:
		return false
	case !r.known():
		return !cfg.BySource && r.waits(w.Answers) && behaveOtherwise(r, all, i)
	}
	return float64(r.asked()) >= expected/8 && !w.Answers.leavers.oneSource(w.Judge, now)
}

// dropSuspicion ends a suspicion, and drops its probes.
func (r *record) dropSuspicion() {
	if r.ends == yes || !r.known() {
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

// back ends an ejection.
func (r *record) back(a *Answers, now int64) {
	r.restart(a, now)
	r.out, r.asking, r.control, r.wait = notEjected, nil, nil, 0
	if !r.silence.reported {
		r.silence = silence{}
	}
}

func rounded(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	case d >= 100*time.Microsecond:
		return d.Round(100 * time.Microsecond)
	}
	return d
}

// silenceText returns the cause of an ejection because of silence.
func (r *record) silenceText(now int64, w *Watched, all []Watched, and string) string {
	n, since, never := r.waiters(), time.Duration(r.unansweredFor(now)).Round(100*time.Millisecond), ""
	if !r.known() {
		never = ", and no client before them"
	}
	return fmt.Sprintf("unanswered: %d of %d clients that sent bytes in the last %v%s%s; %s", n, n, since, never, peersText(w, all), and)
}

// A drift detects that an endpoint changes from answers in time to late ones. It is a cumulative sum (Page, "Continuous
// inspection schemes", 1954) of the log-likelihood ratio of each question's outcome: half of the answers late, against the
// usual part.
type drift struct {
	sum        float64 // at least 0, at most most
	soon, late float64 // questions since sum was 0
	began      int64   // clock at that time
	fresh      bool    // some answers were late in this round
}

const (
	// often is the part of late answers of a slow endpoint.
	often = 0.5
	// seldom is the largest usual part of late answers with which an endpoint is judged.
	seldom = 0.25
	// settled is the longest duration of a drift; after that, late answers are the usual state.
	settled = int64(time.Minute)
	// most bounds the sum, so that it falls to 0 soon after the answers are in time again.
	most = 1.5 * unlikely
)

// add counts questions; usual is the usual part of late answers.
func (d *drift) add(soon, late, usual float64) {
	if usual > seldom {
		return
	}
	d.sum = min(d.sum+late*math.Log(often/usual)+soon*math.Log((1-often)/(1-usual)), most)
	d.fresh = d.fresh || late > 0
	d.soon += soon
	d.late += late
}

// settle ends a round, and reports whether there is no drift.
func (d *drift) settle(now int64) bool {
	if d.sum > 0 && d.began == 0 {
		d.began = now
	}
	if d.sum <= 0 || now-d.began > settled {
		*d = drift{}
	}
	return d.sum == 0
}

// slow reports whether the endpoint has become slow.
func (r *record) slow() bool {
	return r.drift.sum >= unlikely && r.drift.late >= fewest && r.drift.fresh && r.known()
}

// peersInTime reports whether the peers that answer in time are at least as many as the slow ones. Peers without questions
// do not count.
func peersInTime(all []Watched, i int) bool {
	well, ill := 0, 0
	for j := range all {
		p := &all[j].Answers.record
		late := p.usuallyLate()
		switch {
		case j == i || p.out != notEjected || all[j].Away:
		case p.drift.sum > unlikely/4 || late > seldom:
			ill++
		case p.recentSoon >= 2:
			well++
		}
	}
	return well > 0 && ill <= well
}

// lateness returns the cause of an ejection of a slow endpoint.
func (r *record) lateness(cfg *UnansweredConfig, w *Watched, all []Watched) string {
	return fmt.Sprintf("slow: %.0f of %.0f clients had no answer within %v%s", r.drift.late, r.drift.late+r.drift.soon, cfg.Within, peersText(w, all))
}
