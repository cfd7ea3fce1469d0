package health

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// UnansweredConfig says when an endpoint is ejected that answers nobody any more.
type UnansweredConfig struct {
	// After is for how long it has to have answered nobody who has asked; 0: it is never
	// ejected for that, and what is unanswered is only counted.
	After time.Duration
	// Within is the time in which an endpoint answers those who have asked. One that always
	// has, and whose peers do, is ejected when half of its answers take longer; 0: it may take
	// any time.
	Within time.Duration
}

// A Watched is an endpoint in a round of an [Unanswered].
type Watched struct {
	Answers *Answers
	// Judge ejects it; nil: nobody does.
	Judge *Member
	// Probe asks it whether it ends a connection that is ended, see [ProbeConfig.End].
	Probe Prober
}

// An Unanswered finds those endpoints of an upstream out that answer nobody any more: a
// process that stands still, for instance, for which its kernel goes on to accept. In many
// protocols it is normal for an endpoint to be silent, so it takes all of this:
//
//   - it has answered nobody for After, on no session;
//   - meanwhile so many have asked that their being unanswered would be less likely than
//     unlikely, if what has become of its questions until now goes on: those that nearly
//     always were answered in time weigh much, those that rarely were next to nothing;
//   - its peers answer as they always do, or are not asked;
//   - it does not end a connection either that is made and ended, which it has done when it
//     was well, and a peer does; or a third of those that have asked have given up, from more
//     than one source.
//
// Clients that had waited for an answer before the endpoint fell silent are no evidence. It
// returns as soon as it answers anybody, or ends a connection again.
//
// If somebody has said within which time endpoints answer it finds those out, too, that have
// become slow.
//
// An Unanswered has no goroutine: Round is called every half second or so, by one at a time.
type Unanswered struct {
	last   int64        // clock, of the last round
	asking atomic.Int64 // probes that are under way
	turn   int          // at which peer to begin to look for one that is asked as well
	run    func(func())
	chance float64 // unlikely, unless a test wants another one

	suspicions int // endpoints that began to be suspected, ever
}

const (
	// unlikely is how unlikely is unlikely enough, as a natural logarithm: 1 in 10^9.
	unlikely = 9 * math.Ln10
	// fewest is how many have to have asked, however telling each of them is.
	fewest = 8
	// learned is how many questions have to have been answered in time, in learnedRounds,
	// before an endpoint is judged by that.
	learned, learnedRounds = 20, 5
	// memory is how many questions of each kind are remembered, or half of that.
	memory = 2000
	// learners is how many endpoints of an upstream are probed at once while they are well,
	// and relearn how long one is not that has not answered such a probe.
	learners = 8
	relearn  = time.Minute
)

// NewUnanswered returns an Unanswered that has had no round.
func NewUnanswered() *Unanswered {
	return &Unanswered{run: func(f func()) { go f() }, chance: unlikely}
}

// patience is from when on a question is unanswered.
func (cfg *UnansweredConfig) patience() time.Duration {
	switch {
	case cfg.Within > 0:
		return cfg.Within
	case cfg.After > 0:
		return cfg.After / 2
	}
	return time.Second
}

// probe is how long an endpoint has to end a connection.
func (cfg *UnansweredConfig) probe() time.Duration { return max(cfg.After/3, 100*time.Millisecond) }

// Round looks at all endpoints, whose sessions have been shown to their [Answers] since the
// last one. late says that it comes later than it should: what has not moved meanwhile may be
// this process. It reports whether there was anything to look at: whether somebody has asked,
// or was answered.
func (u *Unanswered) Round(now int64, cfg *UnansweredConfig, all []Watched, late bool) (busy bool) {
	gap, first := now-u.last, u.last == 0
	u.last = now
	for i := range all {
		a := all[i].Answers
		a.record.take(a, now, gap, cfg.Within > 0)
		if a.patience.Swap(int64(cfg.patience())) != int64(cfg.patience()) || first {
			a.record.restart(a, now)
		} else if late {
			a.record.excuse(a, now, gap)
		}
		a.gap.Store(gap)
		a.judged.Store(a.record.known() && a.record.ends == yes)
		busy = busy || a.record.busy()
	}
	if late || first {
		return busy
	}
	for i := range all {
		if all[i].Judge != nil {
			u.judge(now, cfg, all, i)
		}
	}
	return busy
}

// judge ejects an endpoint, or has it return, or does what it takes to know more.
func (u *Unanswered) judge(now int64, cfg *UnansweredConfig, all []Watched, i int) {
	w := &all[i]
	r := &w.Answers.record
	switch {
	case r.out != notEjected:
		u.mayReturn(now, cfg, w)
	case r.slow(u.chance) && now >= r.again:
		if peersInTime(all, i) && !w.Answers.belated.oneSource(w.Judge, now) {
			r.eject(now, w, slow, r.lateness(cfg, w, all))
		}
	case cfg.After <= 0:
	case r.alive:
		r.acquit()
		u.learn(now, cfg, w)
	case now-r.heard < int64(cfg.After) || !r.telling(u.chance):
		r.acquit()
	case now >= r.again:
		u.suspect(now, cfg, all, i)
	}
	r.suspected = r.suspected && !r.alive
}

// suspect ejects an endpoint that is silent if there is nothing else that may explain it.
func (u *Unanswered) suspect(now int64, cfg *UnansweredConfig, all []Watched, i int) {
	w := &all[i]
	r := &w.Answers.record
	well, alone := u.peersAnswer(now, all, i)
	if well && !r.suspected {
		r.suspected = true
		u.suspicions++
	}
	switch {
	case !well:
		r.acquit()
	case r.wait > 0 && r.givenUp(w, now):
		r.eject(now, w, givenUp, r.silence(now, w, all, fmt.Sprintf("%d of them have given up", r.left)))
	case r.ends == yes && now >= r.nextAsk:
		u.confirm(now, cfg, all, i, alone)
	case r.ends != yes:
		r.wait = 1
	}
}

// peersAnswer reports whether some peer is well, and no more peers are slow: what befalls all
// of them is not one endpoint's failure. Where none is asked anything nothing speaks against
// it either, but alone says so.
func (u *Unanswered) peersAnswer(now int64, all []Watched, i int) (well, alone bool) {
	var count [peerStates]int
	for j := range all {
		if p := &all[j].Answers.record; j != i && p.out == notEjected {
			count[p.peer(now)]++
		}
	}
	if count[peerWell] == 0 {
		return count[peerSlow] == 0 && count[peerIdle] > 0, true
	}
	return count[peerSlow] <= count[peerWell], false
}

// confirm asks an endpoint that is silent whether it ends a connection and, where nobody asks
// its peers anything, one of these, too.
func (u *Unanswered) confirm(now int64, cfg *UnansweredConfig, all []Watched, i int, alone bool) {
	w := &all[i]
	r := &w.Answers.record
	if r.asking == nil {
		if alone {
			peer := u.witness(now, all, i)
			if peer == nil {
				return
			}
			r.control = u.ask(peer.Probe, cfg.probe())
		}
		r.asking = u.ask(w.Probe, cfg.probe())
		return
	}
	answer, over := r.asking.heard()
	control, controlled := r.control.heard()
	if !over || !controlled {
		return
	}
	r.asking, r.control = nil, nil
	if answer == no && control == yes {
		r.eject(now, w, standsStill, r.silence(now, w, all, "nor does it close a connection that was closed"))
	}
	if r.out != notEjected {
		return
	}
	r.wait = min(max(2*r.wait, int64(cfg.After)), int64(relearn))
	r.nextAsk = now + r.wait
}

// witness returns a peer to be probed as well, rather one that ends connections when it is
// well, and nil if all are silent.
func (u *Unanswered) witness(now int64, all []Watched, i int) (w *Watched) {
	u.turn++
	for k := range all {
		j := (u.turn + k) % len(all)
		r := &all[j].Answers.record
		if j == i || r.out != notEjected || all[j].Probe == nil || r.peer(now) == peerSilent {
			continue
		}
		if w = &all[j]; r.ends == yes {
			return w
		}
	}
	return w
}

// learn finds out, once it is known how an endpoint answers, whether it ends connections.
func (u *Unanswered) learn(now int64, cfg *UnansweredConfig, w *Watched) {
	r := &w.Answers.record
	if r.ends == yes || !r.known() || w.Probe == nil || now < r.nextAsk {
		return
	}
	if r.asking == nil {
		if u.asking.Load() < learners {
			r.asking = u.ask(w.Probe, cfg.probe())
		}
		return
	}
	if answer, over := r.asking.heard(); over {
		r.asking, r.ends = nil, answer
		if answer != yes {
			r.nextAsk = now + int64(relearn)
		}
	}
}

// mayReturn has an endpoint return that answers again or, if it did not do that either, ends
// connections again.
func (u *Unanswered) mayReturn(now int64, cfg *UnansweredConfig, w *Watched) {
	r := &w.Answers.record
	if _, ejected := w.Judge.Ejected(); !ejected {
		r.back(w.Answers, now)
		return
	}
	if r.alive && r.out != slow {
		w.Judge.Return(now, "it answers again")
		r.back(w.Answers, now)
		return
	}
	if r.out != standsStill || now < r.nextAsk {
		return
	}
	if r.asking == nil {
		r.asking = u.ask(w.Probe, cfg.probe())
		return
	}
	if answer, over := r.asking.heard(); over {
		if r.asking, r.nextAsk = nil, now+int64(cfg.probe()); answer == yes {
			w.Judge.Return(now, "it closes connections again")
			r.back(w.Answers, now)
		}
	}
}
