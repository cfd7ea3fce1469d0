package health_test

import (
	"testing"
	"time"
)

// TestSilentProtocols: of 100,000 sessions of each protocol in which silence is normal none
// has an endpoint ejected that is well.
func TestSilentProtocols(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 3, 3*time.Second)
			p.run(w)
			began := time.Now()
			w.until(1<<62, func() bool { return w.sessions >= 100_000 })
			var times [3]int
			for i, s := range w.endpoints {
				times[i] = s.times
			}
			t.Logf("%s: %v of simulated time, %v; suspicions %d, ejected %v", p.name, time.Duration(w.now()-int64(time.Hour)).Round(time.Second), time.Since(began).Round(time.Millisecond), w.judge.Suspicions(), times)
			for _, tr := range w.keeper.Told() {
				t.Errorf("%+v", tr)
				break
			}
		})
	}
}

// A failure is clients of a world in which an endpoint is going to fail.
type failure struct {
	name string
	come func(w *world)
	fail func(w *world)
	most time.Duration // that it may take
}

// freeze has the first endpoint stand still.
func freeze(w *world) { w.endpoints[0].freeze(time.Hour) }

var failures = []failure{
	{"requests", func(w *world) { w.come(25, w.request) }, freeze, 10 * second},
	{"requests, a tenth long polls", func(w *world) { w.come(25, w.mixed(0.1)) }, freeze, 10 * second},
	{"sessions that go on", func(w *world) { w.lasting(75, 3*second) }, freeze, 10 * second},
	{"sessions that go on, and are busy", func(w *world) { w.lasting(75, 100*time.Millisecond) }, freeze, 10 * second},
	{"sessions that do not wait for answers", func(w *world) { w.multiplexed(75) }, freeze, 10 * second},
	{"the server speaks first", func(w *world) { w.come(25, w.mail) }, freeze, 10 * second},
	{"two endpoints of five at once", func(w *world) { w.come(40, w.request) }, func(w *world) {
		w.endpoints[1].freeze(time.Hour)
		freeze(w)
	}, 10 * second},
	{"all clients at one endpoint", func(w *world) { w.comeTo(25, w.first, w.request) }, freeze, 10 * second},
	{"it lives, and clients give up after 5 s", func(w *world) { w.come(25, w.impatient) }, func(w *world) { w.endpoints[0].hang(time.Hour) }, 20 * second},
}

// lasting is sessions that go on for ever.
func (w *world) lasting(n int, pause time.Duration) {
	for i := range n {
		w.talk(w.connect(w.endpoints[i%len(w.endpoints)]), 1<<30, func() time.Duration { return w.exp(pause) })
	}
}

// multiplexed is sessions that ask again whether or not they were answered.
func (w *world) multiplexed(n int) {
	for i := range n {
		c := w.connect(w.endpoints[i%len(w.endpoints)])
		var next func()
		next = func() {
			c.answer(w.quick(), nil)
			w.after(w.exp(300*time.Millisecond), next)
		}
		next()
	}
}

// first is the first endpoint that is not ejected.
func (w *world) first() *server {
	for _, s := range w.endpoints {
		if !s.target.ejected.Load() {
			return s
		}
	}
	return w.endpoints[0]
}

// impatient asks once, and waits for no more than 5 s.
func (w *world) impatient(c *session) {
	w.after(5*second, c.leave)
	w.request(c)
}

// TestFrozen: an endpoint that stands still is found out, and is back soon after it goes on.
func TestFrozen(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			var most, mostBack time.Duration
			for seed := range uint64(50) {
				w := newWorld(seed, 3+2*int(seed%2), 3*second)
				if f.name == "two endpoints of five at once" {
					w = newWorld(seed, 5, 3*second)
				}
				s := w.endpoints[0]
				f.come(w)
				w.run(15*second + w.between(0, second))
				f.fail(w)
				began := w.now()
				w.until(began+int64(f.most), func() bool { return s.target.ejected.Load() })
				if !s.target.ejected.Load() {
					t.Fatalf("seed %d: it is not ejected after %v", seed, f.most)
				}
				most = max(most, time.Duration(w.now()-began))
				w.run(w.between(0, 20*second))
				if !s.target.ejected.Load() {
					t.Fatalf("seed %d: it is back, and is as it was", seed)
				}
				began = w.now()
				s.frozen, s.hung = 0, 0
				s.goOn()
				w.until(began+int64(5*second), func() bool { return !s.target.ejected.Load() })
				mostBack = max(mostBack, time.Duration(w.now()-began))
				for i, s := range w.endpoints {
					if i > 1 && s.times > 0 {
						t.Fatalf("seed %d: another one was ejected", seed)
					}
				}
				if seed == 0 {
					t.Log(w.keeper.Told())
				}
			}
			t.Logf("%s: out after %v at most, back after %v", f.name, most, mostBack)
		})
	}
}
