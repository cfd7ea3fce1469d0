package router_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

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
	s, _ := r.search()
	s.Next(r.clock)
	limits, err := s.Reached(r.clock)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Close()
	return limits.Of.(worker.Binding)
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
				limits, err := c.waiting[i].Reached(c.clock)
				if err != nil {
					c.t.Fatal(err)
				}
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
		b.Ended(answered, nil)
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
		session.Ended(answered, nil)
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
			session.Ended(answered, nil)
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
		session.Ended(answered, nil)
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
	session.Ended(answered, nil)
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
		if step := s.Next(r.clock); step.Action != worker.Park {
			t.Fatalf("%+v, %v", step, s.Err())
		}
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
	if step := first.Next(r.clock); step.Action != worker.Park {
		t.Fatalf("%+v", step)
	}
	session.Ended(answered, nil)
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
			r.serve().Ended(answered, nil)
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
		session.Ended(answered, nil)
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
		session.Ended(reset, nil)
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
		if step := r.inVain(s); step.Action != worker.Park {
			t.Fatalf("%+v, %v", step, s.Err())
		}
		return s
	}
	var waiting []*router.Search
	for range 5 {
		waiting = append(waiting, come())
		r.pass(time.Second)
		for _, s := range waiting {
			if step := r.inVain(s); step.Action != worker.Park {
				t.Fatalf("%+v, %v", step, s.Err())
			}
		}
	}
	for i, s := range waiting {
		session.Ended(answered, nil)
		waiting = append(waiting, come())
		for j := len(waiting) - 1; j > i; j-- {
			if step := waiting[j].Next(r.clock); step.Action != worker.Park {
				t.Fatalf("client %d, when it is the turn of %d: %+v, %v", j, i, step, waiting[j].Err())
			}
		}
		if step := s.Next(r.clock); step.Action != worker.Connect {
			t.Fatalf("client %d: %+v, %v", i, step, s.Err())
		}
		limits, err := s.Reached(r.clock)
		if err != nil {
			t.Fatal(err)
		}
		session = limits.Of.(worker.Binding)
		s.Close()
	}
	for _, s := range waiting[5:] {
		s.Close()
	}
	session.Ended(answered, nil)
}
