package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// silences returns the reports of silent endpoints.
func (w *world) silences() (told []health.Transition) {
	for _, t := range w.keeper.Told() {
		if t.Kind == health.Answering {
			told = append(told, t)
		}
	}
	return told
}

// TestSilenceIsTold: if no endpoint may be ejected, or none for its own failure, the silence
// of one is reported once. So is its next answer, with the duration of the silence.
func TestSilenceIsTold(t *testing.T) {
	freezeAll := func(w *world) {
		for _, s := range w.endpoints {
			s.freeze(time.Hour)
		}
	}
	for _, f := range []failure{
		{"the only endpoint stands still", 1, func(w *world) { w.come(25, w.request) }, freezeAll, 10 * second, second},
		{"the only endpoint lives, clients give up after 5 s", 1, func(w *world) { w.come(25, w.impatient) }, hang, 20 * second, second},
		{"the only endpoint lives, clients wait", 1, func(w *world) { w.come(25, w.request) }, hang, 70 * second, second},
		{"all endpoints stand still", 3, func(w *world) { w.come(25, w.request) }, freezeAll, 10 * second, second},
		{"sessions that go on", 1, func(w *world) { w.lasting(25, 3*second) }, freezeAll, 10 * second, second},
		{"two of three stand still", 3, func(w *world) { w.come(25, w.request) }, func(w *world) {
			w.endpoints[1].freeze(time.Hour)
			w.after(5*second, func() { freeze(w) })
		}, 20 * second, second},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(10) {
				f.silence(t, seed)
			}
		})
	}
}

// silence makes an upstream fail, and recover.
func (f *failure) silence(t *testing.T, seed uint64) {
	w := newWorld(seed, f.of, byDefault)
	s := w.endpoints[0]
	f.come(w)
	w.run(15*second + w.between(0, second))
	f.fail(w)
	began := w.now()
	silent := func() bool { _, yes := s.answers.Silence(); return yes }
	w.until(began+int64(2*time.Minute), silent)
	took := time.Duration(w.now() - began)
	now, _ := s.answers.Silence()
	if took > f.most || now.Clients < 8 || now.Since > w.now()-int64(byDefault) || now.Since < began-int64(byDefault) || !strings.Contains(now.Usual, "it used to answer") {
		t.Fatalf("seed %d: after %v: %+v", seed, took, now)
	}
	w.run(30 * second)
	told := w.silences()
	if len(told) == 0 || !told[0].Bad || told[0].State != "silent" || !strings.Contains(told[0].Cause, " clients have waited, the first for ") {
		t.Fatalf("seed %d: %+v", seed, told)
	}
	began = w.now()
	for _, s := range w.endpoints {
		s.frozen, s.hung = 0, 0
		s.goOn()
	}
	w.until(began+int64(time.Minute), func() bool { return !silent() })
	if took := time.Duration(w.now() - began); took > f.back {
		t.Fatalf("seed %d: it is over after %v", seed, took)
	}
	w.run(10 * second)
	if over := w.silences(); len(told) > f.of || len(over) != len(told) || over[0].Bad || over[0].State != "answering" || !strings.Contains(over[0].Cause, "again; no client was answered for ") {
		t.Fatalf("seed %d: %+v, %+v", seed, told, over)
	}
}

// TestSilenceEnds without an answer when there are no more questions, or when connects fail.
func TestSilenceEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"it is not asked any more":                func(w *world) {},
		"it cannot be connected to any more":      func(w *world) { w.endpoints[0].refuses = true; w.connect(w.endpoints[0]) },
		"outlier_detection.unanswered is off":     func(w *world) { w.cfg.After = 0 },
		"it closes connections again; no client ": func(w *world) { s := w.endpoints[0]; s.frozen, s.held = 0, nil },
	} {
		w := newWorld(1, 1, byDefault)
		w.lasting(25, second)
		w.run(20 * second)
		freeze(w)
		w.run(20 * second)
		s := w.endpoints[0]
		if _, silent := s.answers.Silence(); !silent {
			t.Fatal("it is not silent")
		}
		for len(s.live) > 0 {
			s.live[0].over()
		}
		w.silences()
		end(w)
		w.run(70 * second)
		if told := w.silences(); len(told) != 1 || !strings.Contains(told[0].Cause, name) {
			t.Errorf("%s: %+v", name, told)
		}
	}
}

// TestSilenceOfThoseWhoLeft: clients that gave up, and are not followed by others, are no silence after a minute, and end the present one.
func TestSilenceOfThoseWhoLeft(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(seed, 1, byDefault)
		coming := true
		w.come(25, func(c *session) {
			if coming {
				w.impatient(c)
			} else {
				c.over() // it asks nothing
			}
		})
		w.run(15 * second)
		hang(w)
		w.run(20 * second)
		coming = false
		silent := func() bool { _, yes := w.endpoints[0].answers.Silence(); return yes }
		if !silent() {
			t.Fatalf("seed %d: it is not silent", seed)
		}
		w.run(70 * second)
		if told := w.silences(); silent() || len(told) != 2 || !strings.Contains(told[1].Cause, "it is not asked any more") {
			t.Errorf("seed %d: %+v", seed, told)
		}
	}
}
