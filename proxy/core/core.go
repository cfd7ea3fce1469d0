//go:build linux

package core

import (
	"sync/atomic"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// A core serves clients on one loop. What is not said to be anybody's belongs to
// the loop's goroutine.
type core struct {
	group     *Group
	loop      *loop.Loop    // the group's
	driver    *relay.Driver // owned
	acceptors []*acceptor
	slabs     [][]conn
	unused    list
	dialings  *dialing   // that are not used
	starved   []*dialing // that lack a descriptor
	spares    Spares
	names     map[*conn][2]string // of client and endpoint, where they are logged
	walk      walk

	young, older list // sessions whose endpoints lack what only lasting ones need
	youngTimer   loop.Timer
	starveTimer  loop.Timer

	accepted, active, refused, handedOver, canceledClients int64
	ended                                                  Totals

	suspended bool  // the acceptors are
	paused    bool  // one of them is, for want of something
	closing   bool  // the acceptors' queues are being emptied
	canceled  error // why nobody is served any more

	load   atomic.Int64 // anybody's: clients that it has or is going to get
	nudged atomic.Bool  // anybody's: it is going to look at what stands
	inbox  inbox        // anybody's

	adjustOnce, settleGate, collect func() // made once
}

func newCore(g *Group, l *loop.Loop, mem *arena.Local) (*core, error) {
	c := &core{group: g, loop: l, names: make(map[*conn][2]string)}
	for _, l := range []*list{&c.unused, &c.young, &c.older} {
		l.init()
	}
	c.adjustOnce, c.settleGate, c.collect = c.adjust, g.gate.settle, c.collectInbox
	var err error
	c.driver, err = g.cfg.Relay.NewDriver(l, mem)
	return c, err
}

// post has f called by the loop. One that never runs again has nothing to do.
func (c *core) post(f func()) { _ = c.loop.Post(f) }

// nudge has the core look at what stands. It may be called by any goroutine.
func (c *core) nudge() {
	if !c.nudged.Swap(true) {
		c.post(c.adjustOnce)
	}
}

func (c *core) nudgeAll() {
	for _, other := range c.group.cores {
		other.nudge()
	}
}

// adjust does what others have made possible or necessary.
func (c *core) adjust() {
	c.nudged.Store(false)
	c.retryStarved(false)
	c.admitWaiting()
	c.emptyQueues()
	c.resumeOrSuspend()
}

// admitWaiting serves those that have waited, as far as there are places.
func (c *core) admitWaiting() {
	g := c.group
	for g.waiting.n.Load() > 0 && g.gate.holds.Load() == 0 {
		if !g.gate.acquire() {
			if g.gate.shut() {
				return
			}
			continue
		}
		n, ok := g.waiting.pop()
		if !ok {
			g.gate.release()
			c.nudgeAll() // somebody may have found no place meanwhile
			return
		}
		c.load.Add(1)
		c.begin(n, c.spares.Reserve() == nil)
	}
}

// resumeOrSuspend accepts further clients if they may come.
func (c *core) resumeOrSuspend() {
	if c.closing {
		return
	}
	g := &c.group.gate
	open := g.holds.Load() == 0 && !g.shut() && c.group.waiting.n.Load() == 0
	if open {
		if g.open() {
			c.post(c.settleGate) // which is called after the next turn's accepting
		}
		c.unpause()
	}
	if open != c.suspended {
		return
	}
	c.suspended = !open
	for _, a := range c.acceptors {
		if open {
			a.Resume()
		} else {
			a.Suspend()
		}
	}
}

// unpause tries to accept again where that has failed.
func (c *core) unpause() {
	if c.paused {
		c.paused = false
		c.group.paused.Add(-1)
	}
	for _, a := range c.acceptors {
		a.Retry()
	}
}

// close closes the acceptors. What is in the queue of a listener one of the cores
// accepts before that: one alone, so that the order is kept.
func (c *core) close() {
	c.closing = true
	for _, a := range c.acceptors {
		if c.group.cores[a.socket.index%len(c.group.cores)] != c {
			a.close()
		}
	}
	c.emptyQueues()
}

// emptyBatch is how many clients one turn takes out of a queue that closes.
const emptyBatch = 64

// emptyQueues goes on with that. New clients may join a queue all the while, but it
// is first in, first out, and holds at most the backlog and one: no client that came
// before is behind that many others.
func (c *core) emptyQueues() {
	if !c.closing || c.canceled != nil || c.group.gate.holds.Load() > 0 {
		return
	}
	for _, a := range c.acceptors {
		if a.closed {
			continue
		}
		a.failed = false
		n := a.Empty(min(emptyBatch, a.socket.Backlog+1-a.emptied))
		a.emptied += n
		switch {
		case a.failed:
			if !c.starveTimer.Armed() {
				c.loop.Arm(&c.starveTimer, (*hunger)(c), starvePause)
			}
		case n < emptyBatch:
			a.close()
		default:
			c.nudge()
		}
	}
}

// close ends the core's part in a listening socket.
func (a *acceptor) close() {
	if a.closed {
		return
	}
	a.closed = true
	_ = a.Listener.Close() // it only leaves the loop
	if a.socket.open.Add(-1) == 0 {
		a.core.group.cfg.Host.Closed(a.socket.index)
	}
	a.core.group.accepting.Add(-1)
	a.core.group.finish()
}

// cut ends everything at once.
func (c *core) cut(cause error) {
	if c.canceled != nil {
		return
	}
	c.closing, c.canceled = true, cause
	for _, a := range c.acceptors {
		a.close()
	}
	for _, slab := range c.slabs {
		for i := range slab {
			switch n := &slab[i]; n.state {
			case joined:
				n.session.Cut(cause)
			case connecting:
				c.refuse(n.dial, cause)
			}
		}
	}
	c.nudge()
}
