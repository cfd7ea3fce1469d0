package lb_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

func TestWeightsOutOfRange(t *testing.T) {
	e := lb.NewEndpoint(lb.EndpointConfig{ID: "a", Weight: 1000})
	if got := e.Weight(); got != lb.MaxWeight {
		t.Errorf("weight is %d, want %d", got, lb.MaxWeight)
	}
}

// TestAdd: a session that there is already takes a place, also of a full endpoint and of one that is down, and its end gives it back.
func TestAdd(t *testing.T) {
	e := lb.NewEndpoint(lb.EndpointConfig{ID: "a", Weight: 1, Connections: 1})
	var room int
	set := lb.NewSet([]lb.Member{{Endpoint: e, Weight: 1, Connections: 1}}, &lb.Config{OnRoom: func() { room++ }}, nil)
	set.Attach()
	defer set.Detach()
	e.SetHealthy(false)
	e.Add()
	e.SetHealthy(true)
	if _, err := set.Pick(&lb.Request{}); e.Active() != 1 || !errors.Is(err, lb.ErrFull) {
		t.Errorf("%d sessions, a pick: %v", e.Active(), err)
	}
	e.Add()
	room = 0
	e.Release()
	e.Release()
	if picked, err := set.Pick(&lb.Request{}); err != nil || picked != e || room == 0 {
		t.Errorf("after their ends: %v, room %d times", err, room)
	}
}

func TestState(t *testing.T) {
	e := lb.NewEndpoint(lb.EndpointConfig{ID: "a", Weight: 1})
	for _, c := range []struct {
		set   func(bool)
		state lb.State
	}{
		{func(on bool) { e.SetHealthy(!on) }, lb.State{Down: true}},
		{e.SetEjected, lb.State{Ejected: true}},
		{e.SetBroken, lb.State{Broken: true}},
		{e.SetDraining, lb.State{Draining: true}},
	} {
		c.set(true)
		if got := e.State(); got != c.state {
			t.Errorf("state %+v, want %+v", got, c.state)
		}
		if e.Acquire() {
			t.Errorf("%+v: acquired", c.state)
		}
		c.set(false)
		if !e.Acquire() {
			t.Errorf("after %+v: not acquired", c.state)
		}
		if got, want := e.State(), (lb.State{Active: 1}); got != want {
			t.Errorf("state %+v, want %+v", got, want)
		}
		e.Release()
	}
}

// With any number of concurrent acquirers, an endpoint never has more sessions than its
// limit, and none after it was set to drain.
func TestLimitIsNeverPassed(t *testing.T) {
	const limit = 5
	e := lb.NewEndpoint(lb.EndpointConfig{ID: "a", Weight: 1, Connections: limit})
	var inside, most, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5000 {
				if !e.Acquire() {
					refused.Add(1)
					continue
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				inside.Add(-1)
				e.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() > limit || e.Active() != 0 {
		t.Errorf("%d sessions at a time, %d left; want at most %d, and 0", most.Load(), e.Active(), limit)
	}
	for range limit {
		if !e.Acquire() {
			t.Fatal("there is room, and it was not given")
		}
	}
	if e.Acquire() {
		t.Error("acquired beyond the limit")
	}
	e.SetLimit(limit + 1)
	if !e.Acquire() {
		t.Error("not acquired after the limit was raised")
	}
}

// When all goroutines have ended, the beliefs of a set are true, however states,
// limits, loads and picks have met.
func TestSetFollowsEndpoints(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.LeastConn}, plain(37)...)
	r.SetRandom(rand.Uint64)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			var mine []*lb.Endpoint
			for range 3000 {
				e := r.endpoints[rng.IntN(len(r.endpoints))]
				switch rng.IntN(10) {
				case 0:
					e.SetHealthy(rng.IntN(2) == 0)
				case 1:
					e.SetEjected(rng.IntN(2) == 0)
				case 2:
					e.SetLimit(rng.IntN(4))
				case 3:
					e.SetWeight(rng.IntN(4))
				case 4, 5, 6:
					for _, e := range mine {
						e.Release()
					}
					mine = mine[:0]
				default:
					if e, err := r.Pick(&lb.Request{}); err == nil {
						mine = append(mine, e)
					}
				}
			}
			for _, e := range mine {
				e.Release()
			}
		})
	}
	wg.Wait()
	if i := r.TreeNodes(); i != 0 {
		t.Errorf("node %d of the tree is not the least of its children", i)
	}
	scores, root := r.Tree()
	least := scores[0]
	for _, s := range scores {
		least = min(least, s)
	}
	if root != least {
		t.Errorf("the root has %#x, the least score is %#x", root, least)
	}
	believed, open := r.Open()
	usable := 0
	for i := range open {
		if believed[i] != open[i] {
			t.Errorf("endpoint %d: open is believed %v, is %v", i, believed[i], open[i])
		}
		if s := r.endpoints[i].State(); !s.Down && !s.Ejected && r.endpoints[i].Weight() > 0 {
			usable++
		}
		if n := r.endpoints[i].Active(); n != 0 {
			t.Errorf("endpoint %d has %d sessions left", i, n)
		}
	}
	if got := r.Status().UsablePrimaries; got != usable {
		t.Errorf("%d are believed usable, %d are", got, usable)
	}
}

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
		if told := r.endpoints[0].SlowUntil(time.Minute) > 0; told != c.slow {
			t.Errorf("%s: SlowUntil says %v, want %v", c.name, told, c.slow)
		}
		if got := r.many(1000)[0] < 100; got != c.slow {
			t.Errorf("%s: in slow start: %v, want %v", c.name, got, c.slow)
		}
	}
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
