package router_test

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// TestQueueModel: the client that has waited longest is woken first, one at a time. Room that
// comes while a client is being woken is not forgotten. A client that leaves costs no other a
// turn. A client that comes back has its place again, behind those that came at the same time. In a full queue the
// newest clients of the sources with the most make room for a client of a source that has fewer even then.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q router.Queue
		var order []*router.Waiter // as they came
		since, from := map[*router.Waiter]int64{}, map[*router.Waiter]health.Source{}
		var gone []*router.Waiter
		now := int64(1)
		asked := map[*router.Waiter]bool{}
		room := 0
		join := func(t *rapid.T) {
			w := new(router.Waiter)
			most := rapid.IntRange(1, 5).Draw(t, "most")
			by := health.Source(rapid.IntRange(1, 3).Draw(t, "source"))
			now += int64(rapid.IntRange(0, 1).Draw(t, "time"))
			has := func(source health.Source) (n int) {
				for _, o := range order {
					if from[o] == source {
						n++
					}
				}
				return n
			}
			richest := func() (of health.Source) {
				for source := range health.Source(4) {
					if has(source) > has(of) {
						of = source
					}
				}
				return of
			}
			out := max(len(order)-most+1, 0)
			want := out == 0 || has(richest()) > has(by)+out
			if ok := q.Join(w, worker.WakerFunc(func() { asked[w] = true }), by, int64(most), now); ok != want {
				t.Fatalf("joined: %v with %d of %d", ok, len(order), most)
			}
			if !want {
				out = 0
			}
			for ; out > 0; out-- {
				i := len(order) - 1
				for ; i >= 0 && (q.Has(order[i]) || has(from[order[i]]) < has(richest())); i-- {
				}
				if i < 0 || !asked[order[i]] {
					t.Fatalf("%d more are to make room, and to be woken", out)
				}
				for _, o := range order[i+1:] {
					if from[o] == from[order[i]] && !asked[o] {
						t.Fatal("a newer one of the source stays")
					}
				}
				delete(asked, order[i])
				gone = append(gone, order[i])
				order = slices.Delete(order, i, i+1)
			}
			for _, o := range order {
				if !q.Has(o) {
					t.Fatal("one too many has made room")
				}
			}
			if want {
				order, since[w], from[w] = append(order, w), now, by
			}
		}
		back := func(t *rapid.T) {
			if len(gone) == 0 {
				return
			}
			n := rapid.IntRange(0, len(gone)-1).Draw(t, "who")
			w := gone[n]
			gone = slices.Delete(gone, n, n+1)
			at := slices.IndexFunc(order, func(o *router.Waiter) bool { return since[o] > since[w] })
			if at < 0 {
				at = len(order)
			}
			order = slices.Insert(order, at, w)
			if first := q.Rejoin(w, worker.WakerFunc(func() { asked[w] = true }), from[w], since[w]); first != (at == 0) {
				t.Fatalf("that it is the first is %v, want place %d", first, at)
			}
		}
		leave := func(t *rapid.T) {
			if len(order) == 0 {
				return
			}
			i := rapid.IntRange(0, len(order)-1).Draw(t, "who")
			q.Leave(order[i])
			q.Leave(order[i]) // again does nothing
			delete(asked, order[i])
			gone = append(gone, order[i])
			order = slices.Delete(order, i, i+1)
		}
		look := func(t *rapid.T) {
			for w := range asked {
				delete(asked, w)
				if !q.Turn(w) {
					t.Fatal("it was woken, and it is not its turn")
				}
				if w != order[0] && since[order[0]] >= since[w] {
					t.Fatal("it is the turn of one that came later")
				}
				for {
					if room > 0 {
						room--
						q.Leave(w)
						order = slices.DeleteFunc(order, func(o *router.Waiter) bool { return o == w })
						break
					}
					if !q.Stay(w) {
						break
					}
				}
				break
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": join, "leave": leave, "back": back, "look": look,
			"room": func(*rapid.T) {
				room++
				q.Next()
			},
			"": func(t *rapid.T) {
				if q.Waiting() != len(order) {
					t.Fatalf("%d wait, want %d", q.Waiting(), len(order))
				}
				if len(asked) > 1 {
					t.Fatal("two are woken at once")
				}
			},
		})
		for range len(order) + 1 { // with room for all, none is left
			room++
			q.Next()
			look(t)
		}
		for len(asked) > 0 {
			look(t)
		}
		if len(order) != 0 && room > 0 {
			t.Fatalf("%d wait though there is room for %d", len(order), room)
		}
	})
}

// TestQueueAtOnce: places are given to waiters by many goroutines, and none is lost.
func TestQueueAtOnce(t *testing.T) {
	var q router.Queue
	var places atomic.Int64
	const clients = 200
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			var w router.Waiter
			woken := make(chan struct{}, 1)
			q.Join(&w, worker.WakerFunc(func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}), health.NoSource, clients, 1)
			q.Next()
			for {
				if q.Turn(&w) {
					for {
						if n := places.Load(); n > 0 && places.CompareAndSwap(n, n-1) {
							q.Leave(&w)
							return
						}
						if !q.Stay(&w) {
							break
						}
					}
				}
				<-woken
			}
		})
	}
	for range clients {
		wg.Go(func() {
			places.Add(1)
			q.Next()
		})
	}
	wg.Wait()
	if q.Waiting() != 0 || places.Load() != 0 {
		t.Errorf("%d wait, %d places", q.Waiting(), places.Load())
	}
}

// TestSourcesShareAtOnce: many goroutines join two full queues with places in common, and each is served, refused, or woken to make
// room. No place is lost.
func TestSourcesShareAtOnce(t *testing.T) {
	var places router.Places
	places.Set(6)
	queues := [2]*router.Queue{router.NewQueue(&places), router.NewQueue(&places)}
	var evicted atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			q, from := queues[i%2], health.Source(1)
			if i%5 == 0 {
				from += health.Source(i % 3)
			}
			for n := range int64(200) {
				var w router.Waiter
				woken := make(chan struct{}, 1)
				if !q.Join(&w, worker.WakerFunc(func() {
					select {
					case woken <- struct{}{}:
					default:
					}
				}), from, 4, n) {
					continue
				}
				runtime.Gosched() // to others that join
				for q.Next(); q.Has(&w) && !q.Turn(&w); <-woken {
				}
				if !q.Has(&w) {
					evicted.Add(1)
				}
				q.Leave(&w)
			}
		})
	}
	wg.Wait()
	if n := queues[0].Waiting() + queues[1].Waiting(); n != 0 || places.InUse() != 0 {
		t.Errorf("%d wait, %d places are taken", n, places.InUse())
	}
	if evicted.Load() == 0 {
		t.Error("no client has made room")
	}
}

// TestSourcesShareTheQueue: if one source has filled the queue, for room or for an endpoint that serves, its newest clients are
// refused for clients of other sources, and it gets no more. Then all have equal parts, and nobody makes room.
func TestSourcesShareTheQueue(t *testing.T) {
	for _, full := range []bool{true, false} {
		r := newRig(t, 1, router.SnapshotConfig{QueueSize: 4, QueueTimeout: time.Minute, Hold: time.Minute}, nil)
		if full {
			defer r.occupy().Ended(0, answered, nil)
		} else {
			r.endpoint(0).SetBarred(true)
			r.endpoint(0).SetHealthy(false)
		}
		var waiting []*router.Search
		come := func(from string, want worker.Action) {
			s := router.NewWaitingSearch(r.listener, r.snapshot)
			s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort(from)), netip.MustParseAddrPort("192.0.2.2:2")), r.clock)
			if step := r.inVain(s); step.Action != want {
				t.Fatalf("full %v, after %d clients one of %s: %+v, %v", full, len(waiting), from, step, s.Err())
			} else if want == worker.Park {
				waiting = append(waiting, s)
			}
		}
		makesRoom := func(i int) {
			select {
			case <-waiting[i].Woken():
			default:
				t.Errorf("full %v: client %d is not woken", full, i)
			}
			r.takes(waiting[i], worker.GiveUp)
			if err := waiting[i].Err(); errors.Is(err, router.ErrQueueFull) != full {
				t.Errorf("full %v: client %d: %v", full, i, err)
			}
		}
		for range 4 {
			come("192.0.2.1:1", worker.Park)
		}
		come("192.0.2.1:1", worker.GiveUp)
		come("192.0.2.3:1", worker.Park)
		makesRoom(3)
		come("192.0.2.1:1", worker.GiveUp)
		come("192.0.2.3:1", worker.Park)
		makesRoom(2)
		come("192.0.2.3:1", worker.GiveUp)
		come("192.0.2.1:1", worker.GiveUp)
		come("192.0.2.4:1", worker.Park)
		come("192.0.2.5:1", worker.Park)
		come("192.0.2.6:1", worker.GiveUp)
		if n := r.upstream.Waiting(); n != 4 {
			t.Errorf("full %v: %d wait", full, n)
		}
		for _, s := range waiting {
			s.Close()
		}
		if n := r.upstream.Waiting(); n != 0 {
			t.Errorf("full %v: %d wait in the end", full, n)
		}
	}
}

// A chain is upstreams of one endpoint each, every one of which is the fallback of the one before
// it, and the clients that wait. Only the last one has a queue.
type chain struct {
	rigs    []*rig
	waiting []*guest // as they came
	served  []*guest
}

// A guest is a client whose own upstream is one of a chain.
type guest struct {
	*router.Search
	of      int
	binding worker.Binding // of its session, if it has one
}

func newChain(t testing.TB, limits ...int) *chain {
	c := &chain{rigs: make([]*rig, len(limits))}
	cfg := router.SnapshotConfig{QueueSize: 1024, QueueTimeout: time.Minute}
	for i := len(limits) - 1; i >= 0; i-- {
		c.rigs[i] = newRig(t, 1, cfg, nil)
		c.rigs[i].endpoint(0).SetLimit(limits[i])
		cfg = router.SnapshotConfig{Fallback: c.rigs[i].snapshot}
	}
	return c
}

// ask has a client look for an endpoint, and reports whether it was served. The client gets the
// binding of its session.
func (c *chain) ask(t failer, g *guest) bool {
	now := c.rigs[g.of].clock
	switch step := g.Next(now); step.Action {
	case worker.Park:
		return false
	case worker.Connect:
		limits, err := g.Reached(now)
		if err != nil {
			t.Fatalf("%v", err)
		}
		g.binding = limits.Of.(worker.Binding)
		g.Close()
		c.served = append(c.served, g)
		return true
	default:
		t.Fatalf("it is refused: %+v, %v", step, g.Err())
		return false
	}
}

type failer interface{ Fatalf(string, ...any) }

func (c *chain) come(t failer, of int) {
	s, _ := c.rigs[of].search()
	if g := (&guest{Search: s, of: of}); !c.ask(t, g) {
		c.waiting = append(c.waiting, g)
	}
}

// settle has all waiting clients look until none is served any more.
func (c *chain) settle(t failer) {
	for again := true; again; {
		again = false
		for i, g := range c.waiting {
			if c.ask(t, g) {
				c.waiting = slices.Delete(c.waiting, i, i+1)
				again = true
				break
			}
		}
	}
}

func (c *chain) leave(i int) {
	g := c.served[i]
	c.served = slices.Delete(c.served, i, i+1)
	g.binding.Ended(0, answered, nil)
}

// TestWaitersOfAFallbackModel: whatever clients come and go, no upstream of a chain of fallbacks
// is idle while a client waits that may have it. Clients of the same upstream are served in turn.
func TestWaitersOfAFallbackModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := rapid.SliceOfN(rapid.IntRange(1, 3), 2, 4).Draw(rt, "limits")
		c := newChain(t, limits...)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			before := slices.Clone(c.waiting)
			switch what := rapid.IntRange(0, 5).Draw(rt, "what"); {
			case what < 3:
				c.come(rt, rapid.IntRange(0, len(limits)-1).Draw(rt, "of"))
			case what < 5 && len(c.served) > 0:
				c.leave(rapid.IntRange(0, len(c.served)-1).Draw(rt, "who"))
			case what == 5 && len(c.waiting) > 0: // one gives up
				i := rapid.IntRange(0, len(c.waiting)-1).Draw(rt, "who")
				c.waiting[i].Close()
				c.waiting = slices.Delete(c.waiting, i, i+1)
				before = slices.Clone(c.waiting)
			}
			c.settle(rt)
			c.check(rt, limits, before)
		}
		for _, g := range c.waiting {
			g.Close()
		}
		for len(c.served) > 0 {
			c.leave(0)
		}
		for i, r := range c.rigs {
			if r.active() != 0 || r.upstream.Waiting() != 0 {
				rt.Fatalf("in the end upstream %d has %d sessions, and %d wait", i, r.active(), r.upstream.Waiting())
			}
		}
	})
}

// check holds that no client waits while there is room, nor was passed by one that came later.
func (c *chain) check(rt *rapid.T, limits []int, before []*guest) {
	for _, g := range c.waiting {
		for i := g.of; i < len(limits); i++ {
			if c.rigs[i].active() < limits[i] {
				rt.Fatalf("a client of upstream %d waits, and there is room at %d", g.of, i)
			}
		}
	}
	for i, g := range before {
		for _, later := range before[i:] {
			if g.of == later.of && g.binding == nil && later.binding != nil {
				rt.Fatalf("of %d one that came later is served before one that waits", g.of)
			}
		}
	}
}

// occupied is a rig whose only endpoint is at its limit of one session, which is returned.
func occupied(t *testing.T, cfg router.SnapshotConfig) (*rig, worker.Binding) {
	t.Helper()
	r := newRig(t, 1, cfg, nil)
	return r, r.occupy()
}

// occupy sets the limit of the only endpoint to one session, and returns that.
func (r *rig) occupy() worker.Binding {
	r.t.Helper()
	r.endpoint(0).SetLimit(1)
	return r.serve()
}

// A crowd is clients that wait for an endpoint, all of which refuse connections until they accept.
type crowd struct {
	*rig
	clocks           []*int64 // of other rigs
	waiting          []*router.Search
	accepts          bool
	only             string // that accepts anyway
	connects, served int
	sessions         []worker.Binding
}

// come has clients come that are not served at once.
func (c *crowd) come(clients int) {
	c.t.Helper()
	for range clients {
		s, _ := c.search()
		c.waiting = append(c.waiting, s)
		c.look(len(c.waiting) - 1)
	}
}

// look has a client continue until it waits again or is served.
func (c *crowd) look(i int) {
	c.t.Helper()
	for range 100 {
		switch step := c.waiting[i].Next(c.clock); step.Action {
		case worker.Connect:
			c.connects++
			if c.accepts || step.Address.AddrPort.String() == c.only {
				limits := c.reached(c.waiting[i])
				c.sessions = append(c.sessions, limits.Of.(worker.Binding))
				c.waiting[i].Close()
				c.waiting[i] = nil
				c.served++
				return
			}
			c.waiting[i].Failed(syscall.ECONNREFUSED, c.clock)
		case worker.Park, worker.Pause:
			return
		default:
			c.t.Fatalf("client %d: %+v, %v", i, step, c.waiting[i].Err())
		}
	}
	c.t.Fatalf("client %d tries without end", i)
}

// wait has a time pass, at each millisecond of which all look whether they were woken or not.
func (c *crowd) wait(d time.Duration) {
	c.t.Helper()
	for end := c.clock + int64(d); c.clock < end; {
		c.pass(time.Millisecond)
		for _, clock := range c.clocks {
			*clock = c.clock
		}
		for i, s := range c.waiting {
			if s != nil {
				c.look(i)
			}
		}
	}
}

// leave ends all that are left, and their sessions.
func (c *crowd) leave() {
	for _, s := range c.waiting {
		if s != nil {
			s.Close()
		}
	}
	for _, b := range c.sessions {
		b.Ended(0, answered, nil)
	}
}

// TestNoStormBeforeAFullFallback: clients that wait for room at the fallback, because their own
// upstream refuses connections, try that at intervals, however many wait; and they are served there
// when it accepts again, whatever its checks have found.
func TestNoStormBeforeAFullFallback(t *testing.T) {
	for _, down := range []bool{false, true} {
		const clients = 20
		full, session := occupied(t, router.SnapshotConfig{QueueSize: 100, QueueTimeout: time.Minute})
		r := newRig(t, 1, router.SnapshotConfig{Fallback: full.snapshot}, nil)
		r.endpoint(0).SetHealthy(!down)
		c := &crowd{rig: r, clocks: []*int64{&full.clock}}
		c.come(clients)
		first := c.connects
		c.wait(10 * time.Second)
		if n := c.connects - first; n < 100 || n > 10*20+clients {
			t.Errorf("down %v: %d unsuccessful connects in 10 s of %d clients, and %d when they came", down, n, clients, first)
		}
		c.accepts = true
		c.wait(100 * time.Millisecond)
		if c.served != clients {
			t.Errorf("down %v: %d of %d are served", down, c.served, clients)
		}
		c.leave()
		session.Ended(0, answered, nil)
	}
}

// TestWaitersTryWhatIsFailing: clients that wait for room at an endpoint try another one at intervals
// that gets no clients because it has refused connections, and are served there when it accepts again,
// before their time in the queue is over.
func TestWaitersTryWhatIsFailing(t *testing.T) {
	for name, verdict := range map[string]func(*router.Endpoint, bool){
		"ejected": func(e *router.Endpoint, bad bool) { e.SetEjected(bad) },
		"down":    func(e *router.Endpoint, bad bool) { e.SetHealthy(!bad) },
		"none":    func(*router.Endpoint, bool) {},
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 20
			r := newRig(t, 2, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second}, nil)
			r.endpoint(0).SetEjected(true)
			r.endpoint(1).SetLimit(1)
			session := r.serve()
			r.endpoint(0).SetEjected(false)
			verdict(r.endpoint(0), true)
			r.endpoint(0).SetFailing(true)
			c := &crowd{rig: r}
			c.come(clients)
			c.wait(4 * time.Second)
			if n := c.connects; n < 40 || n > 4*20+clients {
				t.Errorf("%d unsuccessful connects in 4 s of %d clients", n, clients)
			}
			c.accepts = true
			c.wait(100 * time.Millisecond)
			if c.served != clients {
				t.Errorf("%d of %d are served", c.served, clients)
			}
			c.leave()
			session.Ended(0, answered, nil)
			if n := r.active(); n != 0 {
				t.Errorf("%d sessions in the end", n)
			}
		})
	}
}

// TestWaitersTryAllThatAreFailing: of two endpoints that refuse connections one is ejected, and
// the other is kept in by max_ejected. Clients that wait for room at a third one try both: they are
// served where connections are accepted again, whichever it is, and make no more trials than for one.
func TestWaitersTryAllThatAreFailing(t *testing.T) {
	for back := range 2 {
		const clients = 20
		r := newRig(t, 3, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second, Attempts: 2, Backoff: 25 * time.Millisecond, MaxBackoff: 250 * time.Millisecond}, nil)
		r.endpoint(0).SetEjected(true)
		r.endpoint(1).SetEjected(true)
		r.endpoint(2).SetLimit(1)
		session := r.serve()
		r.endpoint(1).SetEjected(false)
		r.endpoint(0).SetFailing(true)
		r.endpoint(1).SetFailing(true)
		c := &crowd{rig: r}
		c.come(clients)
		c.wait(4 * time.Second)
		if n := c.connects; n < 40 || n > 2*4*20+2*clients {
			t.Errorf("%d unsuccessful connects in 4 s of %d clients", n, clients)
		}
		c.only = r.endpoint(back).ID()
		c.wait(300 * time.Millisecond)
		if c.served != clients {
			t.Errorf("endpoint %d: %d of %d are served", back, c.served, clients)
		}
		c.leave()
		session.Ended(0, answered, nil)
		if n := r.active(); n != 0 {
			t.Errorf("%d sessions in the end", n)
		}
	}
}

// TestBreakerCountsWaiters: the upstream's breaker counts each client that waits for room, is not let
// make a trial, and gets another endpoint's room. Its counts are 0 in the end.
func TestBreakerCountsWaiters(t *testing.T) {
	const clients = 20
	r := newRig(t, 3, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second, Attempts: 2}, nil)
	breaker := r.breakerOf(health.BreakerConfig{Connections: clients + 10})
	r.endpoint(0).SetEjected(true)
	r.endpoint(1).SetEjected(true)
	r.endpoint(2).SetLimit(1)
	session := r.serve()
	r.endpoint(1).SetEjected(false)
	r.endpoint(0).SetFailing(true)
	r.endpoint(1).SetFailing(true)
	c := &crowd{rig: r}
	c.only = r.endpoint(2).ID()
	c.come(clients)
	c.wait(100 * time.Millisecond)
	r.endpoint(2).SetLimit(clients / 2)
	session.Ended(0, answered, nil)
	c.wait(time.Second)
	if c.served != clients/2 {
		t.Errorf("%d of %d are served where there is room for %d", c.served, clients, clients/2)
	}
	if n, pending := breaker.Load(); n != int64(c.served) || pending != 0 {
		t.Errorf("%d connections, %d pending, of %d sessions", n, pending, c.served)
	}
	c.leave()
	if n, pending := breaker.Load(); n != 0 || pending != 0 {
		t.Errorf("%d connections, %d pending in the end", n, pending)
	}
}

// TestTrialsOfWaitersAreShort: a client that waits for room is not kept for long by an endpoint that
// does not answer, and has its place again.
func TestTrialsOfWaitersAreShort(t *testing.T) {
	r := newRig(t, 2, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second}, nil)
	r.endpoint(0).SetEjected(true)
	r.endpoint(0).SetFailing(true)
	r.endpoint(1).SetLimit(1)
	session := r.serve()
	first, _ := r.search()
	second, _ := r.search()
	for _, s := range []*router.Search{first, second} {
		r.takes(s, worker.Park)
		r.pass(100 * time.Millisecond)
	}
	step := first.Next(r.clock)
	if step.Action != worker.Connect || step.Timeout <= 0 || step.Timeout > 500*time.Millisecond {
		t.Fatalf("%+v", step)
	}
	if step := second.Next(r.clock); step.Action != worker.Park { // which is the first meanwhile
		t.Errorf("the second: %+v", step)
	}
	r.pass(step.Timeout)
	first.Failed(syscall.ETIMEDOUT, r.clock)
	r.takes(first, worker.Park)
	session.Ended(0, answered, nil)
	if step := second.Next(r.clock); step.Action != worker.Park {
		t.Errorf("the second: %+v", step)
	}
	if step := first.Next(r.clock); step.Action != worker.Connect || step.Address.AddrPort.String() != r.endpoint(1).ID() {
		t.Errorf("the first, when there is room: %+v", step)
	}
	first.Close()
	second.Close()
}

// TestWaitersTryNoOthers: an endpoint that gets no clients for another reason than that it could not be
// connected to is not tried by clients that wait for room elsewhere, nor is one of which that is so after
// it could be connected to again.
func TestWaitersTryNoOthers(t *testing.T) {
	for _, revived := range []bool{false, true} {
		r := newRig(t, 2, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 5 * time.Second}, nil)
		if revived {
			r.endpoint(0).SetFailing(true)
			r.endpoint(1).SetDraining(true)
			r.serve().Ended(0, answered, nil)
			r.endpoint(1).SetDraining(false)
		}
		r.endpoint(0).SetEjected(true)
		r.endpoint(1).SetLimit(1)
		session := r.serve()
		c := &crowd{rig: r, accepts: true}
		c.come(5)
		if c.wait(4 * time.Second); c.connects != 0 {
			t.Errorf("revived %v: %d connects to it", revived, c.connects)
		}
		session.Ended(0, answered, nil)
		if c.wait(10 * time.Millisecond); c.served != 1 {
			t.Errorf("revived %v: %d have the room of one", revived, c.served)
		}
		c.leave()
	}
}

// TestNobodyWaitsForRoomOfTheDead: clients wait for room of endpoints, and these die. The clients
// stop waiting for that room: they go to the fallback, or are held, which is an outage.
func TestNobodyWaitsForRoomOfTheDead(t *testing.T) {
	for _, fallback := range []bool{false, true} {
		idle := newRig(t, 2, router.SnapshotConfig{}, nil)
		idle.endpoint(0).SetDraining(true) // it has the address of the one that dies
		cfg := router.SnapshotConfig{QueueSize: 100, QueueTimeout: 10 * time.Second, Hold: 3 * time.Second, Attempts: 2}
		if fallback {
			cfg.Fallback = idle.snapshot
		}
		r, session := occupied(t, cfg)
		c := &crowd{rig: r, clocks: []*int64{&idle.clock}, only: idle.endpoint(1).ID()}
		c.come(20)
		c.wait(time.Second)
		if c.connects != 0 || r.upstream.Unserved() {
			t.Fatalf("fallback %v: %d connects while it serves", fallback, c.connects)
		}
		session.Ended(0, reset, nil)
		c.wait(100 * time.Millisecond)
		if want := 20; fallback && c.served != want {
			t.Errorf("%d of %d are served by the fallback", c.served, want)
		}
		if held := r.upstream.Counts().Held; !fallback && (held != 20 || !r.upstream.Unserved()) {
			t.Errorf("%d are held, that no client is served is %v", held, r.upstream.Unserved())
		}
		if c.connects > 70+20 {
			t.Errorf("fallback %v: %d unsuccessful connects", fallback, c.connects)
		}
		c.leave()
	}
}

// TestHeldForRoomOfAChain: clients are held because their own upstream is full and its fallback
// refuses connections. They get its room in the order in which they came, and before those that
// come later. The same applies to clients whose time in its own queue ends before they try the
// fallback.
func TestHeldForRoomOfAChain(t *testing.T) {
	t.Run("without a queue", func(t *testing.T) { heldForRoomOfAChain(t, router.SnapshotConfig{}) })
	t.Run("with a queue", func(t *testing.T) {
		heldForRoomOfAChain(t, router.SnapshotConfig{QueueSize: 100, QueueTimeout: 2500 * time.Millisecond})
	})
}

func heldForRoomOfAChain(t *testing.T, cfg router.SnapshotConfig) {
	dead := newRig(t, 1, router.SnapshotConfig{QueueSize: 100, QueueTimeout: time.Minute, Hold: 3 * time.Second}, nil)
	cfg.Fallback = dead.snapshot
	r, session := occupied(t, cfg)
	come := func() *router.Search {
		s, _ := r.search()
		r.held(s)
		return s
	}
	var waiting []*router.Search
	for range 5 {
		waiting = append(waiting, come())
		r.pass(time.Second)
		for _, s := range waiting {
			r.held(s)
		}
	}
	for i, s := range waiting {
		session.Ended(0, answered, nil)
		waiting = append(waiting, come())
		for j := len(waiting) - 1; j > i; j-- {
			r.takes(waiting[j], worker.Park)
		}
		r.takes(s, worker.Connect)
		limits := r.reached(s)
		session = limits.Of.(worker.Binding)
		s.Close()
	}
	for _, s := range waiting[5:] {
		s.Close()
	}
	session.Ended(0, answered, nil)
}

// TestHeldKeepTheirOrder: after an outage, when the only endpoint serves again and is full, the
// clients that were held have its room before those that come later. The later ones are not held
// for lack of an endpoint. One whose time is over is refused as in a queue.
func TestHeldKeepTheirOrder(t *testing.T) {
	r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: 5 * time.Second, Hold: 3 * time.Second}, nil)
	r.endpoint(0).SetLimit(1)
	come := func() *router.Search {
		s, _ := r.search()
		return s
	}
	parks := func(who string, s *router.Search) {
		t.Helper()
		r.takes(s, worker.Park)
	}
	connects := func(who string, s *router.Search) worker.Binding {
		t.Helper()
		r.takes(s, worker.Connect)
		limits := r.reached(s)
		return limits.Of.(worker.Binding)
	}
	first, second, third, fourth := come(), come(), come(), come()
	r.inVain(first)
	parks("the second, in the outage", second)
	held := r.upstream.Counts().Held
	r.clock += int64(time.Second)
	session := connects("the first, that is held", first)
	parks("the second", second)
	parks("the third, when the endpoint is full", third)
	session.Ended(0, answered, nil)
	parks("the fourth, when there is room", fourth)
	parks("the third, when there is room", third)
	session = connects("the second, when there is room", second)
	parks("the third", third)
	if n := r.upstream.Counts().Held; n != held || n != 2 {
		t.Errorf("%d are held for want of an endpoint, %d of them in the outage", n, held)
	}
	r.clock += int64(6 * time.Second)
	if step := third.Next(r.clock); step.Action != worker.GiveUp || r.upstream.Refusals.ByReason(false)["queue_timeout"] != 1 {
		t.Errorf("the third after its time: %v, %v, %v", step.Action, third.Err(), r.upstream.Refusals.ByReason(false))
	}
	session.Ended(0, answered, nil)
	for _, s := range []*router.Search{first, second, third, fourth} {
		s.Close()
	}
}

// TestHeldThenFull: clients that were held, and then find the endpoint full, wait for room for queue.timeout, as clients that come
// then, and no longer than queue.hold in all. They look again only when they are woken, or their time is over.
func TestHeldThenFull(t *testing.T) {
	for name, c := range map[string]struct{ hold, timeout, back, waits time.Duration }{
		"timeout below hold":      {3 * time.Second, 2 * time.Second, 500 * time.Millisecond, 2500 * time.Millisecond},
		"back when hold ends":     {3 * time.Second, 2 * time.Second, 2500 * time.Millisecond, 3 * time.Second},
		"hold below timeout":      {time.Second, 2 * time.Second, 500 * time.Millisecond, 2 * time.Second},
		"the endpoint stays away": {3 * time.Second, 2 * time.Second, time.Hour, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, router.SnapshotConfig{QueueSize: 10, QueueTimeout: c.timeout, Hold: c.hold}, nil)
			r.endpoint(0).SetLimit(1)
			began, refused, served := r.clock, 0, 0
			type client struct {
				*router.Search
				due int64
			}
			var waiting []*client
			for range 3 {
				s := router.NewWaitingSearch(r.listener, r.snapshot)
				s.Begin(worker.NewClient(source.TCP(netip.MustParseAddrPort("192.0.2.1:1")), netip.MustParseAddrPort("192.0.2.2:2")), r.clock)
				waiting = append(waiting, &client{s, r.clock})
			}
			looks := func(s *client) (goesOn bool) {
				for {
					step := s.Next(r.clock)
					switch step.Action {
					case worker.Park:
						s.due = r.clock + int64(step.Timeout)
						return true
					case worker.GiveUp:
						if refused++; time.Duration(r.clock-began) != c.waits {
							t.Errorf("refused after %v: %v", time.Duration(r.clock-began), s.Err())
						}
					case worker.Connect:
						if r.clock-began < int64(c.back) {
							s.Failed(syscall.ECONNREFUSED, r.clock)
							continue
						}
						limits := r.reached(s.Search)
						t.Cleanup(func() { limits.Of.(worker.Binding).Ended(0, answered, nil) })
						served++
					}
					s.Close()
					return false
				}
			}
			for r.clock <= began+int64(4*time.Second) {
				waiting = slices.DeleteFunc(waiting, func(s *client) bool {
					select {
					case <-s.Woken():
					default:
						if r.clock < s.due {
							return false
						}
					}
					return !looks(s)
				})
				r.pass(10 * time.Millisecond)
			}
			if want := min(int(time.Hour/c.back)/2, 1); len(waiting) > 0 || served != want || refused != 3-want {
				t.Errorf("%d wait, %d are served, %d refused", len(waiting), served, refused)
			}
		})
	}
}
