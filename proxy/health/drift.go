package health

import (
	"fmt"
	"math"
	"time"
)

// A drift finds out when an endpoint begins to answer late that has answered in time: a
// cumulative sum (Page, "Continuous inspection schemes", 1954) of how much more likely what
// becomes of each question would be if as many were late as not than if all was as it has
// been. It is 0 as long as nothing speaks for that.
type drift struct {
	sum        float64 // natural logarithm of the odds, up to most
	soon, late float64 // questions since it was 0
	began      int64   // clock, then
	fresh      bool    // some were late in this round
}

const (
	// often is which part is late of an endpoint that has become slow.
	often = 0.5
	// seldom is which part may be late at most of one that is judged by this.
	seldom = 0.25
	// settled is how long a drift may go on before it is what is normal.
	settled = int64(time.Minute)
	// most bounds a drift, so that it is over soon after what it came from.
	most = 1.5 * unlikely
)

// add takes what became of questions, of which a part is late as a rule.
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

// slow reports whether the endpoint is so late that it is too unlikely to be chance.
func (r *record) slow(chance float64) bool {
	return r.drift.sum >= chance && r.drift.late >= fewest && r.drift.fresh && r.known()
}

// peersInTime reports whether no more peers have become slow, or were always, than answer in
// time. Those that nobody asks say nothing.
func peersInTime(all []Watched, i int) bool {
	well, ill := 0, 0
	for j := range all {
		p := &all[j].Answers.record
		late := total(p.late) / max(total(p.soon)+total(p.late), 1)
		switch {
		case j == i || p.out != notEjected:
		case p.drift.sum > unlikely/4 || late > seldom:
			ill++
		case p.recentSoon >= 2:
			well++
		}
	}
	return well > 0 && ill <= well
}

// lateness says why a slow endpoint is ejected.
func (r *record) lateness(cfg *UnansweredConfig, w *Watched, all []Watched) string {
	return fmt.Sprintf("slow: %.0f of %.0f clients had no answer within %v%s", r.drift.late, r.drift.late+r.drift.soon, cfg.Within, peersText(w, all))
}
