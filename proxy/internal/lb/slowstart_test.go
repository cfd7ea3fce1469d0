package lb_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// In a slow start an endpoint's share of the clients grows from nothing to its own,
// in proportion to the time since it became usable.
func TestSlowStart(t *testing.T) {
	for _, p := range lb.Policies() {
		if !spreads(p) {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			const n, slow, rounds = 10, 10 * time.Second, 20000
			for _, part := range []float64{0.1, 0.5, 0.9, 1, 2} {
				r := newRig(t, lb.Config{Policy: p, SlowStart: slow}, plain(n)...)
				e := r.endpoints[4]
				e.SetHealthy(false)
				e.SetHealthy(true)
				r.clock.Add(int64(part * float64(slow)))
				for i := range rounds { // sessions stay, so that loads can be compared
					req := client(i)
					r.one(&req)
				}
				f := min(part, 1)
				want := rounds * f / (n - 1 + f)
				if p.Keyed() {
					want = rounds * f / n // of its own clients
				}
				near(t, "share", float64(e.Active()), want, 0.2)
			}
		})
	}
}

// The first endpoints of an upstream are not in slow start, added ones are. The end of
// an open breaker begins none, the end of an ejection does.
func TestWhoStartsSlowly(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(e *lb.Endpoint)
		slow bool
	}{
		{"from the beginning", func(*lb.Endpoint) {}, false},
		{"added", (*lb.Endpoint).Added, true},
		{"healthy again", func(e *lb.Endpoint) { e.SetHealthy(false); e.SetHealthy(true) }, true},
		{"healthy all the time", func(e *lb.Endpoint) { e.SetHealthy(true) }, false},
		{"ejected no more", func(e *lb.Endpoint) { e.SetEjected(true); e.SetEjected(false) }, true},
		{"breaker closed again", func(e *lb.Endpoint) { e.SetBroken(true); e.SetBroken(false) }, false},
	} {
		r := newRig(t, lb.Config{SlowStart: time.Minute}, plain(2)...)
		c.do(r.endpoints[0])
		if got := r.many(1000)[0] < 100; got != c.slow {
			t.Errorf("%s: in slow start: %v, want %v", c.name, got, c.slow)
		}
	}
}

// If all start at the same time, all are used alike from the first client on.
func TestAllStartSlowly(t *testing.T) {
	each(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p, SlowStart: time.Minute}, plain(5)...)
		for _, e := range r.endpoints {
			e.Added()
		}
		for i := range 2000 {
			req := client(i)
			r.one(&req)
		}
		for i, got := range r.picked() {
			if spreads(p) && (got < 250 || got > 550) {
				t.Errorf("endpoint %d has %d of 2000", i, got)
			}
		}
	})
}

// The score of one that least_conn has not picked yet grows with time, not only when
// something happens to it.
func TestLeastConnNoticesTime(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.LeastConn, SlowStart: time.Minute}, plain(10)...)
	for range 500 {
		r.one(&lb.Request{})
	}
	r.endpoints[3].SetEjected(true)
	for r.endpoints[3].Active() > 0 {
		r.endpoints[3].Release()
	}
	r.endpoints[3].SetEjected(false)
	for range 10 {
		if r.one(&lb.Request{}) == 3 && r.endpoints[3].Active() > 1 {
			t.Fatal("one that has just started is sent more than its first")
		}
	}
	r.clock.Add(int64(time.Minute))
	for range 20 {
		r.one(&lb.Request{})
	}
	if got := r.endpoints[3].Active(); got < 18 {
		t.Errorf("after its slow start the one with the least sessions got %d of 20", got)
	}
}
