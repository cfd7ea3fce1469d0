package health_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/proxy/internal/health"
)

// byDefault is the default of outlier_detection.unanswered.
const byDefault = 3 * second

// suspected runs 100,000 sessions of a protocol against some endpoints, all of them healthy.
// It returns how often one was suspected, and ejected.
func suspected(p *protocol, endpoints int) (times, ejected int, w *world) {
	w = newWorld(1, endpoints, byDefault)
	p.run(w)
	sessions := full.Times(10_000, 100_000)
	if race.Enabled || testing.Short() { // nothing here is concurrent, or another one for another user
		sessions = 5000
	}
	w.until(1<<62, func() bool { return w.sessions >= sessions })
	for _, s := range w.endpoints {
		ejected += s.times
	}
	return w.judge.Suspicions(), ejected, w
}

// TestSilentProtocols: in 100,000 sessions of each protocol in which silence is normal, or the
// normal behavior changes, no healthy endpoint is ejected or found silent. Nor is one in
// upstreams where one endpoint has never answered, as it should.
func TestSilentProtocols(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) { testSilent(t, &p, 3) })
		t.Run("one endpoint/"+p.name, func(t *testing.T) { testSilent(t, &p, 1) })
	}
	for _, p := range mixedUpstreams {
		t.Run("beside requests/"+p.name, func(t *testing.T) { testSilent(t, &p, 3) })
		t.Run("beside requests to one/"+p.name, func(t *testing.T) { testSilent(t, &p, 2) })
	}
}

func testSilent(t *testing.T, p *protocol, endpoints int) {
	t.Parallel()
	times, ejected, w := suspected(p, endpoints)
	n, first := w.alarms()
	t.Logf("suspected %d times", times)
	if ejected > 0 || n > 0 {
		t.Errorf("ejected %d times; silent %d times, at first: %+v", ejected, n, first)
	}
}

// A failure is a set of clients of a world in which the first endpoint is going to fail.
type failure struct {
	name string
	of   int // endpoints
	come func(w *world)
	fail func(w *world)
	most time.Duration // longest time until it is ejected, by default
	back time.Duration // longest time until it is back after its recovery
}

// deploy sends clients to the first endpoint only when it fails: it has never answered any.
func deploy(come func(*world)) func(*world) {
	return func(w *world) {
		w.endpoints[0].absent = true
		come(w)
	}
}

// joins sends clients to the first endpoint from now on, which are not answered.
func joins(fail func(*world)) func(*world) {
	return func(w *world) {
		w.endpoints[0].absent = false
		fail(w)
	}
}

// hang makes the first endpoint answer no client, though it lives.
func hang(w *world) { w.endpoints[0].hang(time.Hour) }

// mutes are failures of an endpoint that has never answered a client.
var mutes = []failure{
	{"it stands still", 3, deploy(func(w *world) { w.come(25, w.request) }), joins(freeze), 10 * second, second},
	{"it stands still, a tenth long polls", 3, deploy(func(w *world) { w.come(25, w.mixed(0.1)) }), joins(freeze), 15 * second, second},
	{"it stands still, and has one peer", 2, deploy(func(w *world) { w.come(25, w.request) }), joins(freeze), 10 * second, second},
	{"it stands still, the server speaks first", 3, deploy(func(w *world) { w.come(25, w.mail) }), joins(freeze), 10 * second, second},
	{"it lives, clients give up after 5 s", 3, deploy(func(w *world) { w.come(25, w.impatient) }), joins(hang), 15 * second, 40 * second},
	{"it lives, and has one peer", 2, deploy(func(w *world) { w.come(25, w.impatient) }), joins(hang), 15 * second, 40 * second},
	{"it lives, clients that are answered stay", 3, deploy(func(w *world) { w.come(25, w.staying) }), joins(hang), 20 * second, 40 * second},
}

// staying gives up unless the first question is answered within 5 s, and then stays.
func (w *world) staying(c *session) {
	w.after(5*second, func() {
		if !c.spoke {
			c.leave()
		}
	})
	c.answer(w.quick(), func() { w.talk(c, 100, func() time.Duration { return w.exp(5 * second) }) })
}

// freeze stops the first endpoint.
func freeze(w *world) { w.endpoints[0].freeze(time.Hour) }

var failures = []failure{
	{"requests", 3, func(w *world) { w.come(25, w.request) }, freeze, 10 * second, second},
	{"requests, a tenth long polls", 3, func(w *world) { w.come(25, w.mixed(0.1)) }, freeze, 10 * second, second},
	{"sessions that go on", 3, func(w *world) { w.lasting(75, 3*second) }, freeze, 10 * second, second},
	{"sessions that go on, and are busy", 3, func(w *world) { w.lasting(75, 100*time.Millisecond) }, freeze, 10 * second, second},
	{"sessions that do not wait for answers", 3, func(w *world) { w.multiplexed(75) }, freeze, 10 * second, second},
	{"the server speaks first", 3, func(w *world) { w.come(25, w.mail) }, freeze, 10 * second, second},
	{"two endpoints of five at once", 5, func(w *world) { w.come(40, w.request) }, func(w *world) {
		w.endpoints[1].freeze(time.Hour)
		freeze(w)
	}, 10 * second, second},
	{"all clients at one endpoint", 3, func(w *world) { w.comeTo(25, w.first, w.request) }, freeze, 10 * second, second},
	{"it closes no connection, and clients give up after 5 s", 3, func(w *world) {
		for _, s := range w.endpoints {
			s.deaf = true
		}
		w.come(25, w.impatient)
	}, freeze, 20 * second, 40 * second},
	{"it lives, and clients give up after 5 s", 3, func(w *world) { w.come(25, w.impatient) }, hang, 20 * second, 40 * second},
}

// lasting is sessions without an end.
func (w *world) lasting(n int, pause time.Duration) {
	for i := range n {
		w.talk(w.connect(w.endpoints[i%len(w.endpoints)]), 1<<30, func() time.Duration { return w.exp(pause) })
	}
}

// multiplexed is sessions that send requests whether or not the earlier ones were answered.
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

// impatient sends one request, and waits for at most 5 s.
func (w *world) impatient(c *session) {
	w.after(5*second, c.leave)
	w.request(c)
}

// find returns the time until the failing endpoint is ejected, and until it is back. If that
// takes longer than a minute, ok is false.
func (f *failure) find(seed uint64) (out, back time.Duration, w *world) {
	w = newWorld(seed, f.of, byDefault)
	s := w.endpoints[0]
	f.come(w)
	w.run(15*second + w.between(0, second))
	f.fail(w)
	began := w.now()
	w.until(began+int64(time.Minute), s.target.ejected.Load)
	out = time.Duration(w.now() - began)
	w.run(w.between(0, 20*second))
	if !s.target.ejected.Load() {
		return out, -1, w
	}
	began = w.now()
	s.frozen, s.hung = 0, 0
	s.goOn()
	w.until(began+int64(time.Minute), func() bool { return !s.target.ejected.Load() })
	return out, time.Duration(w.now() - began), w
}

// TestStandsStill: a stopped endpoint is detected, and is back soon after it continues. So is
// one that has never answered a client. No other is ejected.
func TestStandsStill(t *testing.T) {
	for _, f := range slices.Concat(failures, mutes) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(30) {
				out, back, w := f.find(seed)
				if out > f.most || back < 0 || back > f.back {
					t.Fatalf("seed %d: ejected after %v, back after %v", seed, out, back)
				}
				for i, s := range w.endpoints[1:] {
					if s.times > 0 && s.frozen == 0 {
						t.Fatalf("seed %d: so was endpoint %d", seed, i+1)
					}
				}
			}
		})
	}
}

// TestDrainedPeers: a drained endpoint does not vouch for its peers, though its sessions go on: nothing could serve the
// clients of the one that is left. Its silence is reported.
func TestDrainedPeers(t *testing.T) {
	for _, drained := range []bool{true, false} {
		w := newWorld(1, 2, byDefault)
		w.come(100, func(c *session) { c.answer(w.quick(), c.leave) })
		lasting := w.connect(w.endpoints[1])
		w.every(20*time.Millisecond, func() { lasting.answer(w.quick(), nil) })
		w.run(20 * second)
		w.endpoints[1].drained = drained
		w.endpoints[0].freeze(time.Hour)
		w.run(30 * second)
		if times := w.endpoints[0].times; (times > 0) == drained {
			t.Errorf("drained %v: the other one was ejected %d times", drained, times)
		}
		if n, first := w.alarms(); drained && (n != 1 || strings.Contains(first.Cause, "its peers answer")) {
			t.Errorf("%d alarms, %q", n, first.Cause)
		}
	}
}

// TestLateRounds: while this process is stopped there are no reports of endpoints. They are
// not found silent because of that, and a silent one is still detected.
func TestLateRounds(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, 3, byDefault)
		w.comeTo(25, [...]func() *server{w.pick, w.first}[seed%2], func(c *session) {
			c.answer(w.between(second/2, second), c.leave)
		})
		w.every(7*second, func() { w.stall = w.between(0, 5*second) })
		w.run(2 * time.Minute)
		if n := w.judge.Suspicions(); n > 0 {
			t.Fatalf("seed %d: healthy endpoints were suspected %d times", seed, n)
		}
		freeze(w)
		w.run(40 * second)
		if s := w.endpoints[0]; !s.target.ejected.Load() {
			t.Fatalf("seed %d: it is not found out", seed)
		}
	}
}

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
	if len(told) == 0 || !told[0].Bad || told[0].State != "silent" || !strings.Contains(told[0].Cause, " clients waited, the first for ") {
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
	if over := w.silences(); len(told) > f.of || len(over) != len(told) || over[0].Bad || over[0].State != "answering" || !strings.Contains(over[0].Cause, "again; no client got an answer for ") {
		t.Fatalf("seed %d: %+v, %+v", seed, told, over)
	}
}

// TestSilenceEnds without an answer when there are no more questions, or when connects fail.
func TestSilenceEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"clients no longer send it bytes":         func(w *world) {},
		"connections to it fail now":              func(w *world) { w.endpoints[0].refuses = true; w.connect(w.endpoints[0]) },
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
		if told := w.silences(); silent() || len(told) != 2 || !strings.Contains(told[1].Cause, "clients no longer send it bytes") {
			t.Errorf("seed %d: %+v", seed, told)
		}
	}
}

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
		if cause := w.keeper.Told()[0].Cause; !strings.HasPrefix(cause, "for 30s: slow: ") || !strings.Contains(cause, "had no answer within 200ms; its peers answer") {
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

// TestJoin: an endpoint made by NewMonitor is neither judged nor counted for MaxEjected until
// it joins.
func TestJoin(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1})
	never, m, e := o.NewMonitor("never", new(target)), o.NewMonitor("m", new(target)), o.Add("e", new(target))
	of := func(want int) {
		t.Helper()
		if _, n := o.Ejected(); n != want {
			t.Errorf("%d are judged, want %d", n, want)
		}
	}
	fail := func(m *health.OutlierMonitor) bool {
		m.Report(health.ConnectFailed, c.Now())
		_, ejected := m.Ejected()
		return ejected
	}
	of(1)
	if fail(m) {
		t.Error("one that has not joined is ejected")
	}
	never.Remove()
	of(1)
	o.Join(m)
	of(2)
	if !fail(m) || !fail(e) {
		t.Error("those that have joined are not ejected")
	}
	m.Remove()
	of(1)
}
