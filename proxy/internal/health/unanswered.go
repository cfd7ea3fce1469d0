package health

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
)

// UnansweredConfig configures an [Unanswered].
type UnansweredConfig struct {
	// After is the time for which an endpoint leaves all questions unanswered until it is
	// ejected. 0: unanswered questions are only counted.
	After time.Duration
	// Within is the time in which endpoints answer. If an endpoint used to keep it, and its peers do, the endpoint is
	// ejected when half of its answers take longer. 0: there is no such bound.
	Within time.Duration
	// BySource says that clients get endpoints not by chance, but by their source: an endpoint's clients may differ from
	// its peers' clients.
	BySource bool
}

// A Watched is an endpoint in a round of an [Unanswered].
type Watched struct {
	Answers *Answers
	// Judge ejects the endpoint; nil: it is never ejected.
	Judge *OutlierMonitor
	// Away is as in [Target]. Such an endpoint says nothing about its peers.
	Away bool
	// Probe checks whether the endpoint closes a connection, see [ProbeConfig.End].
	Probe Prober
}

// An Unanswered finds endpoints of an upstream that do not answer, such as a stopped process: its kernel goes on
// accepting connections. In many protocols silence is normal. So an endpoint is ejected only if
//
//   - it has answered no question of any session for After, and clients have waited for as
//     long;
//   - there were so many questions meanwhile that by the endpoint's own past their probability
//     to be unanswered is below 10^-9. Questions of a kind that used to be answered in time weigh
//     much, questions of any other kind next to nothing. Questions that were unanswered before the
//     endpoint fell silent do not count. If the endpoint has answered no client yet, or hardly any,
//     its peers' past is used. Then more than one source has to have asked if others are served;
//   - its peers answer as they used to, or get no questions;
//   - it does not close the connection of a probe either, which it or its peers did when they
//     were well; or a third of the clients that have asked have given up.
//
// The endpoint returns as soon as it answers a client, or a probe.
//
// If everything holds but the peers' part, the endpoint is silent, see [Silence]. An endpoint with
// a past is silent, too, if it leaves such questions unanswered for a minute.
//
// With UnansweredConfig.Within it finds endpoints that have become slow, too; see drift.
//
// An Unanswered has no goroutine. Round is called every half second or so, by one goroutine at
// a time.
type Unanswered struct {
	last   int64        // clock: the last round
	asking atomic.Int64 // probes in progress
	turn   int          // the peer at which the search for a witness begins
	ctx    context.Context
	run    func(func()) // runs a probe, on a goroutine

	suspicions int // number of suspicions so far
}

const (
	// unlikely is the bound of the probability, 10^-9, as a natural logarithm.
	unlikely = 9 * math.Ln10
	// fewest is the least number of questions, whatever each weighs.
	fewest = 8
	// learned is the number of questions answered in time, in learnedRounds rounds, before an
	// endpoint is judged.
	learned, learnedRounds = 20, 5
	// memory is the largest number of questions of each kind in the past; beyond it they are halved.
	memory = 2000
	// learners is the number of healthy endpoints of an upstream that are probed at once. relearn is the time before the
	// next such probe of an endpoint that did not answer.
	learners = 8
	relearn  = time.Minute
)

// NewUnanswered returns an Unanswered. Its probes end with ctx; run calls a function on a
// goroutine.
func NewUnanswered(ctx context.Context, run func(func())) *Unanswered {
	return &Unanswered{ctx: ctx, run: run}
}

// patience returns the age at which a question counts as unanswered.
func (cfg *UnansweredConfig) patience() time.Duration {
	switch {
	case cfg.Within > 0:
		return cfg.Within
	case cfg.After > 0:
		return cfg.After / 2
	}
	return time.Second
}

// probe returns the time that an endpoint has to close the connection of a probe.
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
	case r.slow() && now >= r.again:
		if peersInTime(all, i) && !w.Answers.belated.oneSource(w.Judge, now) {
			r.eject(now, w, slow, r.lateness(cfg, w, all))
		}
	case cfg.After <= 0:
	case r.alive:
		r.dropSuspicion()
		u.learn(now, cfg, w)
	case r.unansweredFor(now) < int64(cfg.After), r.unasked(now), !r.significant():
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

// suspect looks for evidence against a silent endpoint. If there is some, the silence is reported, and the endpoint is
// ejected unless its peers have the same problem.
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
		r.prove(givenUp, fmt.Sprintf("%d of the clients gave up", r.left))
		if well && now >= r.again {
			r.eject(now, w, givenUp, r.silenceText(now, w, all, r.silence.proof))
		}
	case asks && now >= r.nextAsk:
		u.confirm(now, cfg, all, i, alone)
	case !asks:
		r.wait = 1
	}
	if r.known() && r.silence.reason == notEjected && r.unansweredFor(now) >= mute && r.waiters() > r.left {
		r.prove(lasting, "it was never silent for so long")
	}
}

// peersAnswer reports whether peers are well, and at least as many as are slow: a problem of all endpoints is not one
// endpoint's failure. alone says that no peer gets questions.
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

// confirm probes a silent endpoint and, if it is alone, a peer for comparison.
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
	r.prove(standsStill, "it does not close a connection that Penstock has closed")
	if well, _ := u.peersAnswer(now, all, i); well && compared && now >= r.again {
		r.eject(now, w, standsStill, r.silenceText(now, w, all, r.silence.proof))
	}
}

// witness returns a peer to probe for comparison, preferably a peer that has answered a probe
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

// learn probes a healthy endpoint, once its past is known.
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

// closesAgain probes an endpoint that stood still, again and again. It reports whether the endpoint has closed the
// connection of the last probe.
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

// An answerOf is the result of a probe.
type answerOf uint32

const (
	unknown answerOf = iota // none yet, or an error that is not the endpoint's
	yes                     // it closed the connection, or sent something
	no                      // it has done neither in time
)

// An asking is a probe that is running, or has ended.
type asking struct {
	over   atomic.Bool
	answer atomic.Uint32
}

func (u *Unanswered) ask(p Prober, within time.Duration) *asking {
	q := new(asking)
	u.asking.Add(1)
	u.run(func() {
		defer u.asking.Add(-1)
		ctx, cancel := context.WithTimeout(u.ctx, within)
		defer cancel()
		q.answer.Store(uint32(heardOf(p.Probe(ctx), ctx)))
		q.over.Store(true)
	})
	return q
}

// heardOf returns the result of a probe that has ended. A refused connect, or a lack of
// descriptors in this process, is no result.
func heardOf(err error, ctx context.Context) answerOf {
	switch {
	case err == nil:
		return yes
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return no
	}
	return unknown
}

// heard returns the result, and whether it is final. A nil asking has the result yes, because no probe was needed.
func (q *asking) heard() (answer answerOf, over bool) {
	if q == nil {
		return yes, true
	}
	return answerOf(q.answer.Load()), q.over.Load()
}

// A Silence is an unusual time in which an endpoint answers no client, though clients wait. The endpoint need not be
// ejected for it.
type Silence struct {
	Since   int64  // clock: the first question that was not answered
	Clients int64  // clients that have asked since, including clients that have given up
	Usual   string // how the endpoint or, if it never has, its peers usually answer; "" if they do not
	Proof   string // evidence, beside the questions, that the silence is unusual
}

// Silence returns the present silence, if any.
func (a *Answers) Silence() (s Silence, silent bool) {
	if now := a.silence.Load(); now != nil {
		return *now, true
	}
	return Silence{}, false
}

// A silence is a Silence in a record. It begins with evidence. It ends when the endpoint answers, closes a probe's
// connection after it had not, cannot be connected to, or gets no more questions.
type silence struct {
	reason   reason // the evidence; notEjected: none
	proof    string
	since    int64
	most     int64 // clients
	reported bool
	refused  bool // a connect was refused in this round
	closed   bool // a probe's connection was closed in this round
}

// lonely is the time without questions after which a silence is over. After mute without an answer it is a silence even if
// the clients stay and the endpoint closes connections.
const lonely, mute = int64(time.Minute), int64(time.Minute)

// prove records the evidence of a silence. Stronger evidence replaces it.
func (r *record) prove(why reason, proof string) {
	if r.silence.reason == notEjected {
		r.silence.since = r.since
	}
	r.silence.reason, r.silence.proof = why, proof
}

// watchSilence logs when a silence begins and ends, and publishes it.
func (r *record) watchSilence(now int64, cfg *UnansweredConfig, w *Watched, all []Watched) {
	s, n := &r.silence, r.waiters()
	if n > r.left || r.left > r.leftBefore {
		r.askedLast = now
	}
	r.leftBefore = r.left
	if s.reason == notEjected || w.Judge == nil {
		if r.silence = (silence{}); w.Answers.silence.Load() != nil {
			w.Answers.silence.Store(nil)
		}
		return
	}
	s.most = max(s.most, n)
	if end := s.end(r, cfg, now); end != "" {
		if s.reported {
			w.Judge.reportSilence(now, false, fmt.Sprintf("%s; no client got an answer for %v, %d clients waited", end, roundedTenth(now-s.since), s.most))
		}
		w.Answers.silence.Store(nil)
		r.silence = silence{}
		return
	}
	if !s.reported && r.out != notEjected { // the ejection is logged already
		return
	}
	usual := r.usualText(w, all)
	w.Answers.silence.Store(&Silence{Since: s.since, Clients: s.most, Usual: usual, Proof: s.proof})
	if !s.reported {
		s.reported = true
		w.Judge.reportSilence(now, true, fmt.Sprintf("no client gets an answer: %d clients waited, the first for %v%s; %s", s.most, roundedTenth(now-s.since), usual, s.proof))
	}
}

// end returns why the silence is over, or "" if it is not.
func (s *silence) end(r *record, cfg *UnansweredConfig, now int64) string {
	switch {
	case r.alive:
		return "it answers again"
	case s.refused:
		return "connections to it fail now"
	case s.closed:
		return "it closes connections again"
	case r.unasked(now):
		return "clients no longer send it bytes"
	case cfg.After <= 0:
		return "outlier_detection.unanswered is off"
	}
	return ""
}

// unasked reports whether no client has waited, or given up, for a while.
func (r *record) unasked(now int64) bool { return now-r.askedLast >= lonely }

func roundedTenth(d int64) time.Duration { return time.Duration(d).Round(100 * time.Millisecond) }

// usualText describes how soon the endpoint usually answers or, if it never has, its peers.
func (r *record) usualText(w *Watched, all []Watched) string {
	took, part := w.Answers.Within(99)
	if part == 0 {
		return peersText(w, all)
	}
	return fmt.Sprintf("; it used to answer %.1f %% within %v", math.Floor(part*10)/10, rounded(took))
}

func (m *OutlierMonitor) reportSilence(now int64, silent bool, cause string) {
	t := Transition{Subject: m.subject, Kind: Answering, State: "answering", Bad: silent, Cause: cause, Time: now}
	if silent {
		t.State = "silent"
	}
	m.outlier.scheduler.note(&m.silent, t)
}
