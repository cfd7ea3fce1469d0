package router_test

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// An asker is the clients of a rig whose endpoints are judged by their answers.
type asker struct {
	*rig
	judge     *health.Unanswered
	watched   []health.Watched
	endpoints []*router.Endpoint
	deaf      [3]bool // endpoints that do not close a connection
	waiting   []waiting
}

// A waiting is a client that was not answered.
type waiting struct {
	limits *relay.Limits
	asked  int64
}

type proberFunc func() error

func (f proberFunc) Probe(context.Context) error { return f() }

func newAsker(t *testing.T) *asker {
	a := &asker{rig: newRig(t, 3, router.SnapshotConfig{}, nil)}
	a.judge = health.NewUnanswered(context.Background(), func(probe func()) { probe() })
	outlier := health.NewOutlierDetector(a.keeper, &health.OutlierConfig{BaseEjectionTime: time.Minute, MaxEjected: 0.5})
	for i, m := range a.members {
		e := m.Endpoint.Of.(*router.Endpoint)
		e.SetMonitor(outlier.Add("e", e))
		a.endpoints = append(a.endpoints, e)
		a.watched = append(a.watched, health.Watched{Answers: e.Answers(), Judge: outlier.Add("e", e), Probe: proberFunc(func() error {
			if a.deaf[i] {
				return os.ErrDeadlineExceeded
			}
			return nil
		})})
	}
	return a
}

// round has clients come for half a second, nine of them. Those of endpoints that are silent are
// not answered.
func (a *asker) round(silent func(*router.Endpoint) bool) {
	a.t.Helper()
	for range 9 {
		s, _ := a.search()
		if do := s.Next(a.clock).Action; do != worker.Connect {
			a.t.Fatal(do, s.Err())
		}
		limits, err := s.Reached(a.clock)
		if err != nil {
			a.t.Fatal(err)
		}
		s.Close()
		if b := limits.Of.(worker.Binding); silent(router.EndpointOf(b)) {
			a.waiting = append(a.waiting, waiting{limits, a.clock})
		} else {
			limits.FirstByteCame(time.Millisecond, true)
			b.Ended(answered, nil)
		}
	}
	a.pass(5e8)
	for _, w := range a.waiting {
		asked := time.Duration(a.clock - w.asked)
		w.limits.Of.(worker.Watcher).Watch(relay.Turn{Last: relay.SideA, Quiet: asked, Asked: asked}, a.clock)
	}
	a.judge.Round(a.clock, &health.UnansweredConfig{After: 3 * time.Second}, a.watched, false)
}

func (a *asker) rounds(n int, silent func(*router.Endpoint) bool) {
	a.t.Helper()
	for range n {
		a.round(silent)
	}
}

func (a *asker) none(*router.Endpoint) bool { return false }

func (a *asker) first(e *router.Endpoint) bool { return e == a.endpoints[0] }

// TestUnanswered: sessions without answers get an endpoint ejected that answers no client any
// more. When it answers, it returns.
func TestUnanswered(t *testing.T) {
	a := newAsker(t)
	a.rounds(10, a.none)
	for i, e := range a.endpoints {
		if took, part := e.Answers().Within(99); !e.Answers().Known() || part != 100 || took > 2*time.Millisecond {
			t.Errorf("endpoint %d: %v, %v %%", i, took, part)
		}
	}
	a.deaf[0] = true
	a.rounds(8, a.first)
	e := a.endpoints[0]
	if why := a.watched[0].Judge.Why(); !e.State().Ejected || !strings.HasPrefix(why, "unanswered: ") {
		t.Fatalf("%+v: %q", e.State(), why)
	}
	if n, longest := e.Answers().Unanswered(); n < 8 || longest < 3*time.Second {
		t.Errorf("%d are unanswered, for up to %v", n, longest)
	}
	a.waiting[0].limits.FirstByteCame(5*time.Second, true)
	a.waiting = nil
	if a.round(a.none); e.State().Ejected {
		t.Error("it has answered, and is ejected still")
	}
}

// TestAnEndIsALifeSign: an endpoint that ends a session, or resets it, is not silent.
func TestAnEndIsALifeSign(t *testing.T) {
	for name, end := range map[string]relay.Result{"ended": closedSilently, "reset": reset, "by the client": {Reason: relay.ReasonReset, Culprit: relay.SideA}} {
		a := newAsker(t)
		a.rounds(10, a.none)
		a.deaf[0] = true
		for range 10 {
			a.rounds(2, a.first)
			a.waiting[0].limits.Of.(worker.Binding).Ended(end, nil)
			a.waiting = a.waiting[1:]
		}
		if out, want := a.endpoints[0].State().Ejected, name == "by the client"; out != want {
			t.Errorf("%s: ejected is %v", name, out)
		}
	}
}

// fail has a client come to an endpoint that it cannot connect to.
func (a *asker) fail(i int, errno syscall.Errno) {
	a.t.Helper()
	for range 100 {
		s, _ := a.search()
		at := s.Next(a.clock).Address.AddrPort.String() == a.endpoints[i].Address.Name
		if at {
			s.Failed(errno, a.clock)
		}
		s.Close()
		if at {
			return
		}
	}
	a.t.Fatal("no client comes to it")
}

// TestRefusedIsForgotten: when no process listens at an endpoint, its answers are forgotten.
func TestRefusedIsForgotten(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.ECONNREFUSED: false, syscall.ETIMEDOUT: true} {
		a := newAsker(t)
		a.rounds(10, a.none)
		a.fail(0, errno)
		a.rounds(1, a.none)
		if a.endpoints[0].Answers().Known() != want {
			t.Errorf("after %v it is known: %v", errno, !want)
		}
	}
}

// TestGivenUp: clients that leave without an answer get an endpoint ejected, if it closes
// sessions that their clients have closed.
func TestGivenUp(t *testing.T) {
	a := newAsker(t)
	a.rounds(10, a.none)
	for range 12 {
		a.round(a.first)
		for len(a.waiting) > 0 && a.clock-a.waiting[0].asked >= 2e9 {
			w := a.waiting[0]
			a.waiting = a.waiting[1:]
			w.limits.Of.(worker.Binding).Ended(relay.Result{
				Reason: relay.ReasonEOF, First: relay.SideA, Duration: 2 * time.Second,
				AToB: relay.Flow{Copied: 1, Reason: relay.ReasonEOF}, BToA: relay.Flow{Reason: relay.ReasonEOF},
			}, nil)
		}
	}
	if why := a.watched[0].Judge.Why(); !strings.Contains(why, "have given up") {
		t.Errorf("%+v: %q", a.endpoints[0].State(), why)
	}
}
