package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A census counts as many clients as are listed, each under its listener and the upstream
// of its binding, and the age of the oldest. Clients that are not joined are bound to
// nothing.
func TestCensus(t *testing.T) {
	t.Parallel()

	limits := [2]*relay.Limits{{Of: &tie{upstream: "u"}}, {Of: &tie{upstream: "v"}}}
	d := straight(echo(t))
	var turn atomic.Int64
	connect := d.next
	d.next = func(c *worker.Client, n int) worker.Step {
		if turn.Load() < 0 {
			return worker.Step{Action: worker.Park}
		}
		return connect(c, n)
	}
	d.reached = func() (*relay.Limits, error) { return limits[turn.Add(1)%3%2], nil }
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 10 * worker.ListLooks })
	r.serve(t)
	if got := r.ClientCounts(context.Background()); len(got) != 0 {
		t.Errorf("without clients: %v", got)
	}
	began := time.Now()
	const clients = 3 * (worker.ListMost + 1)
	for range clients {
		talk(t, r.dial(t))
	}
	turn.Store(-1)
	r.dial(t)
	eventually(t, func() bool { return r.Active() == clients+1 })
	listed := make(map[worker.CountKey]worker.ClientCount)
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		at := worker.CountKey{Listener: s.Listener, Upstream: s.Upstream}
		listed[at] = worker.ClientCount{Clients: listed[at].Clients + 1, Oldest: max(listed[at].Oldest, s.Age)}
	}
	got := r.ClientCounts(context.Background())
	most := time.Since(began)
	for upstream, n := range map[string]int{"u": 2 * clients / 3, "v": clients / 3, "": 1} {
		at := worker.CountKey{Listener: "first", Upstream: upstream}
		if c := got[at]; c.Clients != n || c.Clients != listed[at].Clients || c.Oldest < listed[at].Oldest || c.Oldest > most {
			t.Errorf("at %+v: %+v, listed are %+v within %v", at, c, listed[at], most)
		}
	}
	if len(got) != 3 {
		t.Errorf("counted are %v", got)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if got := r.ClientCounts(ended); len(got) != 0 {
		t.Errorf("when no caller waits for it: %v", got)
	}
}

// Clients of goroutines are counted as well.
func TestCensusOfGoroutines(t *testing.T) {
	t.Parallel()

	b := &tie{upstream: "tls"}
	r := directed(t, newHand(t, b).director(), nil)
	r.serve(t)
	talk(t, r.dial(t))
	talk(t, r.dial(t))
	at := worker.CountKey{Listener: "first", Upstream: "tls"}
	if got := r.ClientCounts(context.Background()); got[at].Clients != 2 || got[at].Oldest <= 0 {
		t.Errorf("counted are %v", got)
	}
}
