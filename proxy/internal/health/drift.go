package health

import (
	"fmt"
	"math"
	"time"
)

// A drift detects the change of an endpoint from answers in time to late ones. It is a
// cumulative sum (Page, "Continuous inspection schemes", 1954) of the log-likelihood ratio of
// each question's outcome: half of them late against the usual part of them.
type drift struct {
	sum        float64 // at least 0, at most most
	soon, late float64 // questions since it was 0
	began      int64   // clock, at that time
	fresh      bool    // some were late in this round
}

const (
	// often is the part of late answers of a slow endpoint.
	often = 0.5
	// seldom is the largest usual part of late answers with which an endpoint is judged.
	seldom = 0.25
	// settled is the longest duration of a drift; then it is the usual state.
	settled = int64(time.Minute)
	// most bounds the sum, so that it falls to 0 soon after the answers are in time again.
	most = 1.5 * unlikely
)

// add counts questions; usual is the part that was late in the past.
func (d *drift) add(soon, late, usual float64) {
	if usual > seldom {
		return
	}
	d.sum = min(d.sum+late*math.Log(often/usual)+soon*math.Log((1-often)/(1-usual)), most)
	d.fresh = d.fresh || late > 0
	d.soon += soon
	d.late += late
}

// settle ends a round. It reports whether there is no drift.
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
func (r *record) slow(chance float64) bool {
	return r.drift.sum >= chance && r.drift.late >= fewest && r.drift.fresh && r.known()
}

// peersInTime reports whether the peers that answer in time are at least as many as those that
// have become slow or always were. Peers without questions do not count.
func peersInTime(all []Watched, i int) bool {
	well, ill := 0, 0
	for j := range all {
		p := &all[j].Answers.record
		late := total(p.answeredLate) / max(total(p.answeredSoon)+total(p.answeredLate), 1)
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
