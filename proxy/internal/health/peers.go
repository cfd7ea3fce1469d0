package health

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A peerState is the state of a peer of a silent endpoint.
type peerState uint8

const (
	peerIdle   peerState = iota // it gets almost no questions
	peerWell                    // it answers as it used to
	peerSilent                  // it is silent, too
	peerSlow                    // it answers, but less often in time than it used to
	peerStates
)

// peer returns the endpoint's state as a peer.
func (r *record) peer(now int64) peerState {
	all := r.recentSoon + r.recentLate
	usual := r.usuallyLate()
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

// pasts are the pasts of all endpoints in a round. They judge an endpoint that has too little past of its own.
type pasts struct {
	// worst are, by kind of question, the two endpoints that leave the largest part unanswered.
	worst [questions][2]struct {
		of     int
		missed float64 // 0: none
	}
	known bool // at least one endpoint with a past is not ejected
}

// pastsOf goes through all endpoints only once, because an upstream may have 10,000.
func pastsOf(all []Watched) *pasts {
	p := new(pasts)
	for i := range all {
		r := &all[i].Answers.record
		p.known = p.known || r.out == notEjected && r.known()
		for k := range p.worst {
			if r.answeredSoon[k]+r.answeredLate[k] < fewest {
				continue
			}
			switch missed, w := r.missed(question(k)), &p.worst[k]; {
			case missed > w[0].missed:
				w[1] = w[0]
				w[0].of, w[0].missed = i, missed
			case missed > w[1].missed:
				w[1].of, w[1].missed = i, missed
			}
		}
	}
	return p
}

// expect estimates, in this round, the probability that a question is not answered in time: by
// the endpoint's past or, while that is too short, by its peers.
func (r *record) expect(p *pasts, i int) {
	r.informed = r.known()
	for k := range r.odds {
		r.odds[k] = r.missed(question(k))
		if !r.informed {
			r.odds[k] = r.missedByPeers(question(k), p, i)
		}
	}
	r.informed = r.informed || p.known // then p.known is about a peer
}

// missedByPeers estimates the probability that a question is not answered in time, from
// the peers with the largest part of unanswered questions: the endpoint may be like them.
// The endpoint's own answered and unanswered questions bound it.
func (r *record) missedByPeers(k question, p *pasts, i int) float64 {
	most := p.worst[k][0].missed
	if p.worst[k][0].of == i {
		most = p.worst[k][1].missed
	}
	if most == 0 {
		return 1
	}
	if own := r.answeredSoon[k] + r.answeredLate[k]; own > 0 {
		most = max(most, (r.answeredLate[k]+1)/(own+2))
	}
	return most
}

// closes reports whether the endpoint, if it were well, would close the connection of a probe. It has done so before or,
// while its past is too short, its peers have.
func (r *record) closes(all []Watched, i int) bool {
	if r.known() {
		return r.ends == yes
	}
	any := false
	for j := range all {
		if p := &all[j].Answers.record; j != i && p.known() {
			if p.ends == no {
				return false
			}
			any = any || p.ends == yes
		}
	}
	return any
}

// oneSource reports whether most unanswered questions of an endpoint may come from one source while
// other sources are served, by this or another endpoint.
func oneSource(all []Watched, i int, now int64) bool {
	from, part := all[i].Answers.belated.worst()
	if from == UnsampledSource || part <= 0.75 {
		return from == UnsampledSource
	}
	for j := range all {
		if all[j].Judge != nil && all[j].Judge.ServesOthers(from, now) {
			return true
		}
	}
	return false
}

// waits reports whether clients that left without an answer had waited for one: they sent nothing more, unlike clients that
// only send, and almost all stayed for a while.
func (r *record) waits(a *Answers) bool {
	return r.pressed <= r.left/fewest && a.early.Load() <= r.left/fewest
}

// behaveOtherwise reports whether the endpoint's clients behave otherwise than clients of peers that answer: fewer of the
// peers' clients leave, or they leave after other times. Clients that do not need answers behave the same, answered or not.
func behaveOtherwise(r *record, all []Watched, i int) bool {
	var mine, theirs lengthCounts
	mine.add(&all[i].Answers.gaveUp)
	var answered answerCounts
	for j := range all {
		if a := all[j].Answers; j != i && a.record.known() {
			theirs.add(&a.ended)
			answered.add(a)
		}
	}
	n, left, stay := total(mine[:]), total(theirs[:]), float64(total(answered[:]))
	if n < fewest || stay < learned {
		return false
	}
	if 4*left/stay <= float64(r.left)/float64(r.asked()) {
		return true
	}
	return left >= learned && mine.distance(&theirs) >= 0.75
}

// peersText describes how soon the other endpoints that get clients answer.
func peersText(w *Watched, all []Watched) string {
	var peers answerCounts
	for i := range all {
		if all[i].Answers != w.Answers && !all[i].Away {
			peers.add(all[i].Answers)
		}
	}
	took, part := peers.within(99)
	if part == 0 {
		return ""
	}
	return fmt.Sprintf("; its peers answer %.1f %% within %v", math.Floor(part*10)/10, rounded(took))
}

// lengths count sessions by their length, in powers of two of a millisecond; the last element counts all longer ones. They
// are safe for concurrent use.
type lengths [20]atomic.Int64

func (l *lengths) add(lasted time.Duration) {
	l[min(bits.Len64(uint64(max(lasted.Milliseconds(), 0))), len(l)-1)].Add(1)
}

func (l *lengths) forget() {
	for i := range l {
		l[i].Store(0)
	}
}

// lengthCounts are the lengths of several endpoints at a moment.
type lengthCounts [len(lengths{})]float64

func (t *lengthCounts) add(l *lengths) {
	for i := range t {
		t[i] += float64(l[i].Load())
	}
}

// distance returns the total variation distance of two distributions: 0 if they are the same, 1 if no length is in both.
func (t *lengthCounts) distance(other *lengthCounts) (d float64) {
	mine, theirs := max(total(t[:]), 1), max(total(other[:]), 1)
	for i := range t {
		d += math.Abs(t[i]/mine-other[i]/theirs) / 2
	}
	return d
}
