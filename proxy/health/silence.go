package health

import (
	"fmt"
	"math"
	"time"
)

// A Silence is the time for which an endpoint answers nobody, though its clients wait and it is
// not usual: whether or not it is ejected for that.
type Silence struct {
	Since   int64  // clock: the first question that was not answered
	Clients int64  // that have asked since, those that have given up included
	Usual   string // how it answers otherwise, or its peers do; "" if they do not
	Proof   string // what shows, beside the questions, that it is not usual
}

// Silence returns the one that there is, and whether there is one.
func (a *Answers) Silence() (s Silence, silent bool) {
	if now := a.silence.Load(); now != nil {
		return *now, true
	}
	return Silence{}, false
}

// A silence is a Silence in a record. It begins with evidence, and ends when the endpoint
// answers, closes a probe's connection that it did not close, cannot be connected to, or is not
// asked any more.
type silence struct {
	reason  reason // the evidence; notEjected: there is none
	proof   string
	since   int64
	most    int64 // clients
	asked   int64 // clock: somebody last waited
	told    bool
	refused bool // a connect, in this round
	closed  bool // a probe's connection was, in this round
}

// lonely is how long an endpoint is not asked until its silence is over, and mute after how
// long a silence is one though its clients stay and it closes connections.
const lonely, mute = int64(time.Minute), int64(time.Minute)

// prove takes evidence of a silence. A stronger one than there is replaces it.
func (r *record) prove(why reason, proof string) {
	if r.silence.reason == notEjected {
		r.silence.since = r.since
	}
	r.silence.reason, r.silence.proof = why, proof
}

// watchSilence logs when a silence begins and ends, and publishes it.
func (r *record) watchSilence(now int64, cfg *UnansweredConfig, w *Watched, all []Watched) {
	s := &r.silence
	if s.reason == notEjected || w.Judge == nil {
		if r.silence = (silence{}); w.Answers.silence.Load() != nil {
			w.Answers.silence.Store(nil)
		}
		return
	}
	n := r.waiters()
	if n > 0 {
		s.asked = now
	}
	s.most = max(s.most, n)
	if end := s.end(r, cfg, now); end != "" {
		if s.told {
			w.Judge.tellSilence(now, false, fmt.Sprintf("%s; nobody was answered for %v, %d clients have waited", end, roundedTenth(now-s.since), s.most))
		}
		w.Answers.silence.Store(nil)
		r.silence = silence{}
		return
	}
	if !s.told && r.out != notEjected { // that is told already
		return
	}
	usual := r.usualText(w, all)
	w.Answers.silence.Store(&Silence{Since: s.since, Clients: s.most, Usual: usual, Proof: s.proof})
	if !s.told {
		s.told = true
		w.Judge.tellSilence(now, true, fmt.Sprintf("nobody is answered: %d clients have waited, the first for %v%s; %s", s.most, roundedTenth(now-s.since), usual, s.proof))
	}
}

// end is why the silence is over, "" if it is not.
func (s *silence) end(r *record, cfg *UnansweredConfig, now int64) string {
	switch {
	case r.alive:
		return "it answers again"
	case s.refused:
		return "it cannot be connected to any more"
	case s.closed:
		return "it closes connections again"
	case now-s.asked >= lonely:
		return "it is not asked any more"
	case cfg.After <= 0:
		return "outlier_detection.unanswered is off"
	}
	return ""
}

func roundedTenth(d int64) time.Duration { return time.Duration(d).Round(100 * time.Millisecond) }

// usualText says how soon the endpoint answers otherwise or, if it never has, its peers.
func (r *record) usualText(w *Watched, all []Watched) string {
	took, part := w.Answers.Within(99)
	if part == 0 {
		return peersText(w, all)
	}
	return fmt.Sprintf("; it used to answer %.1f %% within %v", math.Floor(part*10)/10, rounded(took))
}

func (m *Member) tellSilence(now int64, silent bool, cause string) {
	t := Transition{Subject: m.subject, What: Answering, State: "answering", Bad: silent, Cause: cause, Time: now}
	if silent {
		t.State = "silent"
	}
	m.outlier.keeper.note(&m.silent, t)
}
