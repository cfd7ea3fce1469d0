package router_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"pgregory.net/rapid"
)

// grace returns for how long a server must have been able to serve for a client that is refused to
// be a client that it could have served: longer than from the last segment of a connect(2) until
// its end, for one that is lost is repeated after 1 s and 3 s.
func (w *world) grace() time.Duration {
	if w.connect <= 2*time.Second {
		return 1100 * time.Millisecond
	}
	return 2100 * time.Millisecond
}

// could returns the servers that could serve a client now, as found by a reference that knows the
// truth. Where no client is held, one that is failing is tried by one client at a time.
func (w *world) could() (list []string) {
	for _, s := range w.servers {
		if w.snapshot.Hold == 0 && s.Failing() {
			continue
		}
		if now, since := s.clock(), s.couldSince(); since != never && now-since >= int64(w.grace()) {
			list = append(list, fmt.Sprintf("%s for %v", s.addr, time.Duration(now-since)))
		}
	}
	return list
}

// look holds that no client is sent to a server that must not serve, by the operator or by the
// answers of its checks for a time.
func (w *world) look(to *server) {
	to.be(func() {})
	to.mu.Lock()
	noes, out := to.noes, to.out
	to.mu.Unlock()
	if known := w.clock() - noes; w.check != nil && w.check.Answered && noes != never && known > int64(30*time.Second) {
		w.err("a client is sent to %s, which has answered no for %v", to.addr, time.Duration(known))
	}
	if st := to.State(); out && !st.Draining && to.Weight() > 0 {
		w.err("%s is out, and its state does not show it", to.addr)
	}
}

// reachable returns the servers to which a client that could not reach some should first be sent:
// the last connection to them was made, and they are healthy otherwise.
func (w *world) reachable(tried []*server) (list []*server) {
	for _, s := range w.servers {
		st := s.State()
		well := !st.Down && !st.Ejected && !st.Broken && !st.Draining && !s.Failing()
		if len(tried) > 0 && well && s.Weight() > 0 && s.limit == 0 && !slices.Contains(tried, s) {
			list = append(list, s)
		}
	}
	return list
}

// lookElsewhere holds for a client that could not reach a server. It is not sent to another one
// that the last client could not reach, while there is one that was reachable just before and is
// now.
func (w *world) lookElsewhere(to *server, tried, before []*server) {
	if !to.Failing() || slices.Contains(before, to) {
		return
	}
	for _, s := range w.reachable(tried) {
		if slices.Contains(before, s) {
			w.err("a client that could not reach a server is sent to %s, which is failing, and not to %s", to.addr, s.addr)
		}
	}
}

// An event is something that happens to a server, after a time.
type event struct {
	after  time.Duration
	server int
	what   string
	to     int
}

func drawEvent(t *rapid.T, servers int) event {
	e := event{
		after:  time.Duration(rapid.SampledFrom([]int{5, 50, 400, 1000, 2500, 7000, 20000}).Draw(t, "after")) * time.Millisecond,
		server: rapid.IntRange(0, servers-1).Draw(t, "server"),
		what:   rapid.SampledFrom([]string{"is", "is", "is", "is", "role", "drain", "weight", "eject"}).Draw(t, "what"),
	}
	switch e.what {
	case "is":
		e.to = rapid.IntRange(0, int(conditions)-1).Draw(t, "condition")
	case "role":
		e.to = rapid.IntRange(0, int(roles)-1).Draw(t, "role")
	default:
		e.to = rapid.IntRange(0, 1).Draw(t, "on")
	}
	return e
}

// happen makes an event so.
func (w *world) happen(e event) {
	s := w.servers[e.server]
	switch e.what {
	case "is":
		w.turn(e.server, condition(e.to))
	case "role":
		if w.check != nil && w.check.Answered {
			s.be(func() { s.role = role(e.to) })
		}
	case "drain", "weight":
		s.be(func() {
			if s.out = e.to == 1; e.what == "drain" {
				s.SetDraining(s.out)
				_ = s.SetWeight(1)
			} else {
				s.SetDraining(false)
				_ = s.SetWeight(1 - e.to)
			}
		})
	case "eject": // by an outcome other than a connect
		if w.outlierless {
			return
		}
		for range 5 {
			s.Judge().Report(health.Silent, w.clock())
		}
	}
}

// drawSetting returns an upstream that may be configured in any way.
func drawSetting(t *rapid.T) setting {
	of := defaults(rapid.IntRange(1, 4).Draw(t, "servers"))
	of.seed = uint64(rapid.IntRange(1, 1000).Draw(t, "phases"))
	of.connect = time.Duration(rapid.IntRange(1, 5).Draw(t, "connect")) * time.Second
	of.snapshot.Attempts = rapid.IntRange(0, 3).Draw(t, "attempts")
	of.budget.Floor = rapid.SampledFrom([]int{0, 1, 30}).Draw(t, "floor")
	if rapid.IntRange(0, 5).Draw(t, "limited") == 0 {
		of.limits[0] = 1
	}
	switch rapid.IntRange(0, 4).Draw(t, "checks") {
	case 0:
		of.check = nil
	case 1, 2:
		of.check.Answered = true
	}
	of.outlierless = rapid.IntRange(0, 4).Draw(t, "outlierless") == 0
	if rapid.IntRange(0, 4).Draw(t, "breakerless") == 0 {
		of.breaker = nil
	}
	of.policy = rapid.SampledFrom(lb.Policies()).Draw(t, "policy")
	of.snapshot.BySource = rapid.Bool().Draw(t, "by source")
	if rapid.IntRange(0, 5).Draw(t, "holdless") == 0 {
		of.snapshot.Hold = 0
	}
	return of
}

// TestNobodyIsRefusedWhomAServerCouldServe: whatever happens to servers, and whatever state an
// upstream has for them, no client is refused that a reference which knows the truth would have
// had served. A client that waits, waits for its time, and a server that serves may.
func TestNobodyIsRefusedWhomAServerCouldServe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		of := drawSetting(rt)
		rate := rapid.SampledFrom([]int{1, 10, 40}).Draw(rt, "clients")
		var events []event
		for range rapid.IntRange(1, 15).Draw(rt, "events") {
			events = append(events, drawEvent(rt, len(of.limits)))
		}
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, of)
			for _, e := range events {
				w.happen(e)
				w.come(rate, e.after)
			}
			w.end()
		})
		w.judge(rt)
	})
}

// judge reports the failures.
func (w *world) judge(rt *rapid.T) {
	for _, what := range w.wrong {
		rt.Error(what)
	}
	for _, l := range w.refused {
		if len(l.could) > 0 {
			rt.Errorf("a client that came at %v was refused at %v (%v), and %v could serve it", l.came, l.at, l.cause, l.could)
		}
		limited := w.limits[0] > 0
		if hold := w.snapshot.Hold; l.at-l.came < hold && !limited {
			rt.Errorf("a client that came at %v was refused at %v, and not held for %v: %v", l.came, l.at, hold, l.cause)
		}
	}
	if len(w.refused) > 0 && rt.Failed() {
		rt.FailNow()
	}
}
