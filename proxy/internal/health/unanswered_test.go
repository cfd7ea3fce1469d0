package health_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/race"
)

// byDefault is the default of outlier_detection.unanswered, on which the table is based.
const byDefault = 3 * second

// suspected runs 100,000 sessions of a protocol against some endpoints, all of them healthy.
// It returns how often one was suspected, and ejected.
func suspected(p *protocol, endpoints int, after time.Duration, digits float64) (times, ejected int, w *world) {
	w = newWorld(1, endpoints, after)
	w.judge.SetChance(digits)
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
	times, ejected, w := suspected(p, endpoints, byDefault, 9)
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
func (f *failure) find(seed uint64, after time.Duration, digits float64) (out, back time.Duration, w *world) {
	w = newWorld(seed, f.of, after)
	w.judge.SetChance(digits)
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
				out, back, w := f.find(seed, byDefault, 9)
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

var table = flag.Bool("unanswered", false, "print the table of TestUnansweredTable, which takes minutes")

// TestUnansweredTable prints the time until a stopped endpoint is detected, and how often
// healthy ones are suspected and ejected, by the bound.
func TestUnansweredTable(t *testing.T) {
	if !*table {
		t.Skip("it proves nothing: go test ./proxy/internal/health -run UnansweredTable -v -unanswered prints it")
	}
	for _, at := range []struct {
		after  time.Duration
		digits float64
	}{{second, 9}, {2 * second, 9}, {3 * second, 6}, {3 * second, 9}, {3 * second, 12}, {5 * second, 9}, {8 * second, 9}} {
		var cells []string
		for _, f := range slices.Concat(failures, mutes) {
			var outs []time.Duration
			for seed := range uint64(101) {
				out, _, _ := f.find(seed, at.after, at.digits)
				outs = append(outs, out)
			}
			slices.Sort(outs)
			cells = append(cells, fmt.Sprintf("%.1f / %.1f", outs[len(outs)/2].Seconds(), outs[len(outs)-1].Seconds()))
		}
		times, ejected, by := everyProtocol(at.after, at.digits)
		_, paused, _ := suspected(&pauses, 3, at.after, at.digits)
		t.Logf("| %v | 10^-%v | %s | %d | %d | %d | %s |", at.after, at.digits, strings.Join(cells, " | "), times, ejected, paused, by)
	}
}

// everyProtocol counts suspicions in all of them together, two at a time.
func everyProtocol(after time.Duration, digits float64) (times, ejected int, by string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, 2)
	for _, p := range slices.Concat(protocols, mixedUpstreams) {
		all.Go(func() {
			places <- struct{}{}
			s, e, _ := suspected(&p, 3, after, digits)
			<-places
			mu.Lock()
			defer mu.Unlock()
			times += s
			if ejected += e; s > 0 {
				by += fmt.Sprintf("%s: %d, %d; ", p.name, s, e)
			}
		})
	}
	all.Wait()
	return times, ejected, by
}
