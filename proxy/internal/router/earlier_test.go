package router_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"pgregory.net/rapid"
)

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

// come has a client come.
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

// leave ends the session of a client that is served.
func (c *chain) leave(i int) {
	g := c.served[i]
	c.served = slices.Delete(c.served, i, i+1)
	g.binding.Ended(answered, nil)
}

// TestWaitersOfAFallback: a client that waits at the fallback gets the place that becomes free at
// its own upstream. Clients get places in the order in which they came.
func TestWaitersOfAFallback(t *testing.T) {
	c := newChain(t, 1, 1)
	for range 4 {
		c.come(t, 0)
	}
	first := c.waiting[0]
	if len(c.served) != 2 || len(c.waiting) != 2 {
		t.Fatalf("%d are served, %d wait", len(c.served), len(c.waiting))
	}
	c.leave(0) // the client of the upstream itself
	c.come(t, 0)
	if len(c.waiting) != 3 {
		t.Error("one that came later is before those that wait")
	}
	c.settle(t)
	if len(c.waiting) != 2 || first.binding == nil || c.rigs[0].active() != 1 {
		t.Errorf("%d wait, %d at the upstream", len(c.waiting), c.rigs[0].active())
	}
	for len(c.served) > 0 {
		c.leave(0)
		c.settle(t)
	}
	for i, r := range c.rigs {
		if r.active() != 0 || r.upstream.Waiting() != 0 {
			t.Errorf("upstream %d has %d sessions, and %d wait", i, r.active(), r.upstream.Waiting())
		}
	}
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
