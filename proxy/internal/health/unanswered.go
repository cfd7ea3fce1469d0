package health

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// UnansweredConfig configures an [Unanswered].
type UnansweredConfig struct {
	// After is the time for which an endpoint leaves all questions unanswered until it is
	// ejected. 0: unanswered questions are only counted.
	After time.Duration
	// Within is the time in which endpoints answer. If an endpoint used to, and its peers do,
	// it is ejected when half of its answers take longer. 0: there is no such bound.
	Within time.Duration
	// BySource says that clients are not assigned to endpoints by chance, but by their source:
	// those of one endpoint may differ from those of its peers.
	BySource bool
}

// A Watched is an endpoint in a round of an [Unanswered].
type Watched struct {
	Answers *Answers
	// Judge ejects it; nil: it is not ejected.
	Judge *OutlierMonitor
	// Away says that it gets no clients: it is drained, or down. It says nothing of its peers then.
	Away bool
	// Probe checks whether it closes a connection, see [ProbeConfig.End].
	Probe Prober
}

// An Unanswered finds endpoints of an upstream that do not answer: a stopped process, for
// instance, for which its kernel goes on to accept connections. In many protocols silence is
// normal. So an endpoint is ejected only if
//
//   - it has answered no question of any session for After, and clients have waited for as
//     long;
//   - there were so many questions meanwhile that by the endpoint's own past their probability
//     to be unanswered is below 10^-9. Questions of a kind that used to be answered in time
//     weigh much, those of another kind weigh next to nothing. Questions that were unanswered
//     before the endpoint fell silent do not count. If the endpoint has answered no client
//     yet, or hardly any, its peers' past is used. Then more than one source has to have asked
//     if others are served;
//   - its peers answer as they used to, or get no questions;
//   - it does not close the connection of a probe either, which it or its peers did when they
//     were well; or a third of the clients that have asked have given up.
//
// The endpoint returns as soon as it answers a client, or a probe.
//
// If all of that is so but for its peers, an endpoint is silent, see [Silence]. So is one that
// has a past and leaves such questions unanswered for a minute.
//
// With UnansweredConfig.Within it finds endpoints that have become slow, too; see drift.
//
// An Unanswered has no goroutine. Round is called every half second or so, by one goroutine at
// a time.
type Unanswered struct {
	last   int64        // clock, of the last round
	asking atomic.Int64 // probes in progress
	turn   int          // the peer at which the search for a witness begins
	ctx    context.Context
	run    func(func()) // runs a probe, on a goroutine
	chance float64      // unlikely, unless a test sets another one

	suspicions int // ever
}

const (
	// unlikely is the bound of the probability, as a natural logarithm: 10^-9.
	unlikely = 9 * math.Ln10
	// fewest is the least number of questions, whatever each of them weighs.
	fewest = 8
	// learned is the number of questions answered in time, in learnedRounds rounds, before an
	// endpoint is judged.
	learned, learnedRounds = 20, 5
	// memory is the largest number of questions of each kind in the past; then they are
	// halved.
	memory = 2000
	// learners is the number of endpoints of an upstream that are probed at once while they
	// are well. relearn is the time before the next such probe of an endpoint that did not
	// answer.
	learners = 8
	relearn  = time.Minute
)

// NewUnanswered returns an Unanswered. Its probes end with ctx; run calls a function on a
// goroutine.
func NewUnanswered(ctx context.Context, run func(func())) *Unanswered {
	return &Unanswered{ctx: ctx, run: run, chance: unlikely}
}

// patience is the age at which a question is unanswered.
func (cfg *UnansweredConfig) patience() time.Duration {
	switch {
	case cfg.Within > 0:
		return cfg.Within
	case cfg.After > 0:
		return cfg.After / 2
	}
	return time.Second
}

// probe is the time that an endpoint has to close the connection of a probe.
func (cfg *UnansweredConfig) probe() time.Duration { return max(cfg.After/3, 100*time.Millisecond) }

// Round judges all endpoints. Their sessions must have been reported to [Answers.Watch] since
// the last round. late says that the round comes late: this process may have stood still.
// Round reports whether there was anything to judge.
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
		a.round.Store(now)
		a.judged.Store(a.record.known() && a.record.ends == yes)
	}
	peers := pastsOf(all)
	for i := range all {
		r := &all[i].Answers.record
		r.expect(peers, i)
		r.date(now, max(all[i].Answers.longest.Load(), int64(cfg.patience())))
		busy = busy || r.busy()
	}
	for i := range all {
		if all[i].Judge != nil && !late && !first {
			u.evaluate(now, cfg, all, i)
		}
		all[i].Answers.record.watchSilence(now, cfg, &all[i], all)
	}
	return busy
}

// evaluate ejects an endpoint, lets it return, or probes it.
func (u *Unanswered) evaluate(now int64, cfg *UnansweredConfig, all []Watched, i int) {
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
		r.dropSuspicion()
		u.learn(now, cfg, w)
	case r.unansweredFor(now) < int64(cfg.After), r.unasked(now), !r.significant(u.chance):
		if r.silence.reason == standsStill {
			r.silence.closed = u.closesAgain(now, cfg, w)
		} else {
			r.dropSuspicion()
		}
	default:
		u.suspect(now, cfg, all, i)
	}
	r.suspected = r.suspected && !r.alive
}

// suspect looks for evidence against a silent endpoint. If there is some, the silence is
// reported, and the endpoint is ejected unless its peers show that it is not its own failure.
func (u *Unanswered) suspect(now int64, cfg *UnansweredConfig, all []Watched, i int) {
	w := &all[i]
	r := &w.Answers.record
	well, alone := u.peersAnswer(now, all, i)
	if well && !r.suspected {
		r.suspected = true
		u.suspicions++
	}
	if !r.known() && oneSource(all, i, now) {
		return
	}
	asks := r.closes(all, i) && w.Probe != nil
	switch {
	case r.wait > 0 && r.givenUp(cfg, all, i, now):
		r.prove(givenUp, fmt.Sprintf("%d of them have given up", r.left))
		if well && now >= r.again {
			r.eject(now, w, givenUp, r.silenceText(now, w, all, r.silence.proof))
		}
	case asks && now >= r.nextAsk:
		u.confirm(now, cfg, all, i, alone)
	case !asks:
		r.wait = 1
	}
	if r.known() && r.silence.reason == notEjected && r.unansweredFor(now) >= mute && r.waiters() > r.left {
		r.prove(lasting, "that was never so for so long")
	}
}

// peersAnswer reports whether peers are well, and no more of them slow: a problem of all
// endpoints is not one endpoint's failure. alone says that no peer gets questions.
func (u *Unanswered) peersAnswer(now int64, all []Watched, i int) (well, alone bool) {
	var count [peerStates]int
	for j := range all {
		if p := &all[j].Answers.record; j != i && p.out == notEjected && !all[j].Away {
			count[p.peer(now)]++
		}
	}
	if count[peerWell] == 0 {
		return count[peerSlow] == 0 && count[peerIdle] > 0, true
	}
	return count[peerSlow] <= count[peerWell], false
}

// confirm probes a silent endpoint and, where it is alone, a peer for comparison.
func (u *Unanswered) confirm(now int64, cfg *UnansweredConfig, all []Watched, i int, alone bool) {
	w := &all[i]
	r := &w.Answers.record
	if r.asking == nil {
		r.noControl = false
		if alone {
			peer := u.witness(now, all, i)
			if r.noControl = peer == nil; !r.noControl {
				r.control = u.ask(peer.Probe, cfg.probe())
			}
		}
		r.asking = u.ask(w.Probe, cfg.probe())
		return
	}
	answer, over := r.asking.heard()
	control, controlled := r.control.heard()
	if !over || !controlled {
		return
	}
	compared := control == yes && !r.noControl && (r.control != nil || !alone)
	r.asking, r.control = nil, nil
	if answer == no {
		u.standsStill(now, all, i, compared)
	}
	if r.out != notEjected {
		return
	}
	if r.wait = min(max(2*r.wait, int64(cfg.After)), int64(relearn)); answer == no {
		r.wait = int64(cfg.After)
	}
	r.silence.closed = answer == yes && r.silence.reason == standsStill
	r.nextAsk = now + r.wait
}

// standsStill records that an endpoint has not closed the connection of a probe, and ejects
// it. compared says that a peer would have closed it.
func (u *Unanswered) standsStill(now int64, all []Watched, i int, compared bool) {
	w := &all[i]
	r := &w.Answers.record
	r.prove(standsStill, "nor does it close a connection that was closed")
	if well, _ := u.peersAnswer(now, all, i); well && compared && now >= r.again {
		r.eject(now, w, standsStill, r.silenceText(now, w, all, r.silence.proof))
	}
}

// witness returns a peer to probe for comparison, preferably one that has answered a probe
// before; nil if all are silent.
func (u *Unanswered) witness(now int64, all []Watched, i int) (w *Watched) {
	u.turn++
	for k := range all {
		j := (u.turn + k) % len(all)
		r := &all[j].Answers.record
		if j == i || r.out != notEjected || all[j].Away || all[j].Probe == nil || r.peer(now) == peerSilent {
			continue
		}
		if w = &all[j]; r.ends == yes {
			return w
		}
	}
	return w
}

// learn probes an endpoint that is well, once its past is known.
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

// mayReturn ends the ejection of an endpoint that answers a client or, if it stood still, a
// probe.
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
	if r.out == standsStill && u.closesAgain(now, cfg, w) {
		w.Judge.Return(now, "it closes connections again")
		r.silence.closed = true
		r.back(w.Answers, now)
	}
}

// closesAgain probes an endpoint that stood still, again and again, and reports whether it has
// closed the connection of the last probe.
func (u *Unanswered) closesAgain(now int64, cfg *UnansweredConfig, w *Watched) bool {
	r := &w.Answers.record
	if now < r.nextAsk {
		return false
	}
	if r.asking == nil {
		r.asking, r.control = u.ask(w.Probe, cfg.probe()), nil
		return false
	}
	answer, over := r.asking.heard()
	if over {
		r.asking, r.nextAsk = nil, now+int64(cfg.probe())
	}
	return over && answer == yes
}
