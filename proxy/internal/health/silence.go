package health

import (
	"fmt"
	"math"
	"time"
)

// A Silence is an unusual time in which an endpoint answers no client, though clients wait. It
// may be ejected for that or not.
type Silence struct {
	Since   int64  // clock: the first question that was not answered
	Clients int64  // that have asked since, those that have given up included
	Usual   string // how it usually answers, or its peers do; "" if they do not
	Proof   string // the evidence, beside the questions, that it is not usual
}

// Silence returns the present one, and whether there is one.
func (a *Answers) Silence() (s Silence, silent bool) {
	if now := a.silence.Load(); now != nil {
		return *now, true
	}
	return Silence{}, false
}

// A silence is a Silence in a record. It begins with evidence. It ends when the endpoint
// answers, closes a probe's connection that it did not close, cannot be connected to, or gets
// no more questions.
type silence struct {
	reason   reason // the evidence; notEjected: there is none
	proof    string
	since    int64
	most     int64 // clients
	reported bool
	refused  bool // a connect was, in this round
	closed   bool // a probe's connection was, in this round
}

// lonely is the time without questions after which a silence is over. mute is the time after
// which it is a silence even though the clients stay and the endpoint closes connections.
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
			w.Judge.reportSilence(now, false, fmt.Sprintf("%s; no client was answered for %v, %d clients have waited", end, roundedTenth(now-s.since), s.most))
		}
		w.Answers.silence.Store(nil)
		r.silence = silence{}
		return
	}
	if !s.reported && r.out != notEjected { // logged as an ejection already
		return
	}
	usual := r.usualText(w, all)
	w.Answers.silence.Store(&Silence{Since: s.since, Clients: s.most, Usual: usual, Proof: s.proof})
	if !s.reported {
		s.reported = true
		w.Judge.reportSilence(now, true, fmt.Sprintf("no client is answered: %d clients have waited, the first for %v%s; %s", s.most, roundedTenth(now-s.since), usual, s.proof))
	}
}

// end returns the reason for which the silence is over, "" if it is not.
func (s *silence) end(r *record, cfg *UnansweredConfig, now int64) string {
	switch {
	case r.alive:
		return "it answers again"
	case s.refused:
		return "it cannot be connected to any more"
	case s.closed:
		return "it closes connections again"
	case r.unasked(now):
		return "it is not asked any more"
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
