package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

const within = 200 * time.Millisecond

// within sets up a world of endpoints that answer in time.
func (w *world) within() *world {
	w.cfg.Within, w.period = within, within
	return w
}

// late is a request that an endpoint which has become slow answers late.
func (w *world) late(c *session) {
	took := w.quick()
	if c.slow {
		took += w.exp(3 * second)
	}
	c.answer(took, c.leave)
}

// TestSlow: of nine endpoints three become slow. They are detected soon, by their late
// answers, and ejected for a time; no others are.
func TestSlow(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, 9, byDefault).within()
		w.come(500, w.late)
		w.run(5*second + w.between(0, second))
		for _, s := range w.endpoints[:3] {
			s.slow = true
		}
		began := w.now()
		w.until(began+int64(5*second), func() bool {
			for _, s := range w.endpoints[:3] {
				if !s.target.ejected.Load() {
					return false
				}
			}
			return true
		})
		if took := time.Duration(w.now() - began); took > 1500*time.Millisecond {
			t.Errorf("seed %d: all are ejected after %v", seed, took)
		}
		if cause := w.keeper.Told()[0].Cause; !strings.HasPrefix(cause, "slow: ") || !strings.Contains(cause, "had no answer within 200ms; its peers answer") || !strings.HasSuffix(cause, "; for 30s") {
			t.Errorf("seed %d: %q", seed, cause)
		}
		w.run(20 * second)
		for i, s := range w.endpoints {
			if s.target.ejected.Load() != (i < 3) || s.times > 1 {
				t.Errorf("seed %d: endpoint %d was ejected %d times", seed, i, s.times)
			}
		}
		w.run(12 * second) // their time is over, and they are slow still
		for i, s := range w.endpoints[:3] {
			if !s.target.ejected.Load() || s.times != 2 {
				t.Errorf("seed %d: then endpoint %d was ejected %d times", seed, i, s.times)
			}
		}
	}
}

// TestNotSlow: no endpoint is ejected for slowness that all endpoints share, that comes from
// one source, that is too short, or that was always there.
func TestNotSlow(t *testing.T) {
	for _, p := range []protocol{
		{"all endpoints are slow together, for 20 s", func(w *world) { w.slowTogether() }},
		{"all endpoints stop together, for 20 s", func(w *world) {
			w.come(25, w.request)
			w.every(100*second, func() {
				for _, s := range w.endpoints {
					s.hang(20 * second)
				}
			})
		}},
		{"one source asks what is slow, everywhere", func(w *world) { w.slowSource(w.pick) }},
		{"one source asks what is slow, at one endpoint", func(w *world) {
			w.slowSource(func() *server { return w.endpoints[0] })
		}},
		{"endpoints that pause for up to 300 ms", func(w *world) {
			w.come(25, w.request)
			w.every(2*second, func() { w.endpoints[w.IntN(3)].freeze(w.between(0, 300*time.Millisecond)) })
		}},
		{"an endpoint that was always slow", func(w *world) {
			w.endpoints[1].slow = true
			w.come(25, w.late)
		}},
		{"requests, a tenth long polls, in bursts", func(w *world) { w.bursts(w.mixed(0.1)) }},
		{"slow answers, 2 s in the mean", func(w *world) {
			w.come(25, func(c *session) { c.answer(w.exp(2*second), c.leave) })
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 3, byDefault).within()
			p.run(w)
			w.until(1<<62, func() bool { return w.sessions >= 20_000 })
			if told := w.keeper.Told(); len(told) > 0 {
				t.Errorf("%d times, at first %+v", len(told), told[0])
			}
		})
	}
}

// slowSource sends requests, and as many of one source that are answered late.
func (w *world) slowSource(at func() *server) {
	w.come(25, w.request)
	w.comeTo(25, at, func(c *session) {
		c.source = health.Source(1<<63 | 99999)
		c.answer(w.exp(3*second), c.leave)
	})
}
