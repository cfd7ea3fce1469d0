//go:build linux

package core

import (
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

// A core serves clients on one loop. What is not said to be anybody's belongs to
// the loop's goroutine.
type core struct {
	group         *Group
	index         int
	loop          *loop.Loop    // the group's
	driver        *relay.Driver // owned
	acceptors     []*acceptor   // that are not closed
	waiters       []*acceptor   // of those, that wait for room
	emptying      []*acceptor   // whose queues are being emptied
	unopened      []*Listening  // that could not be accepted from
	slabs         [][]conn
	unused        list
	dialings      *dialing   // that are not used
	spareDialings int        // how many that are
	starved       []*dialing // that lack a descriptor
	spares        Spares
	reserved      bool                     // one of them is for the next client that is accepted
	names         map[*conn][2]string      // of client and endpoint, where they are logged
	tickets       map[*conn]any            // that are not nil
	sources       map[*conn]netip.AddrPort // of clients whose PROXY header has told one
	agings        map[socket.Options]*aging
	guest         Client // that is asked for
	scratch       []byte // what clients send first, until it was looked at
	preface       []byte // what endpoints are sent first
	walk          walk
	held          tally   // what meters are not told yet; nil: they are told at once
	tours         []*tour // one after the other

	starveTimer loop.Timer

	accepted, active, refused, handedOver, canceledClients int64
	peeks, hellosFull, hellosMissing, taken                int64
	refusals                                               Refusals
	ended                                                  Totals

	paused   bool  // accepting is, somewhere, for want of something
	canceled error // why nobody is served any more

	load    atomic.Int64 // anybody's: clients that it has or is going to get
	nudged  atomic.Bool  // anybody's: it is going to look at what stands
	inbox   inbox        // anybody's
	changes changes      // anybody's
	wakes   wakes        // anybody's

	adjustOnce, settleGate, collect, changeOn, wakeOn, tourOn func() // made once
}

func newCore(g *Group, index int, l *loop.Loop, mem *arena.Local) (*core, error) {
	c := &core{
		group: g, index: index, loop: l,
		names: make(map[*conn][2]string), tickets: make(map[*conn]any), sources: make(map[*conn]netip.AddrPort),
		agings: make(map[socket.Options]*aging),
	}
	c.unused.init()
	c.adjustOnce, c.settleGate, c.collect = c.adjust, g.gate.settle, c.collectInbox
	c.changeOn, c.wakeOn, c.tourOn = c.change, c.collectWakes, c.tourSome
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

// adjust does what others have made possible or necessary.
func (c *core) adjust() {
	c.nudged.Store(false)
	c.retryStarved(false)
	c.admitWaiting()
	c.emptyQueues()
	c.resume()
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
			g.nudge() // somebody may have found no place meanwhile
			return
		}
		c.load.Add(1)
		c.begin(n, c.spares.Reserve() == nil)
	}
}

// resume accepts further clients if they may come.
func (c *core) resume() {
	g := &c.group.gate
	if g.holds.Load() > 0 || g.shut() || c.group.waiting.n.Load() > 0 {
		return
	}
	if g.open() {
		c.post(c.settleGate) // which is called after the next turn's accepting
	}
	c.unpause()
	var next [resumeBatch]*acceptor
	n := copy(next[:], c.waiters)
	left := copy(c.waiters, c.waiters[n:])
	clear(c.waiters[left:])
	c.waiters = c.waiters[:left]
	for _, a := range next[:n] {
		a.resume()
	}
	if left > 0 {
		c.nudge() // if there is room then for more than those
	}
}

// resumeBatch is how many of the sockets at which somebody waits are accepted from again
// in one turn, in the order in which they began to wait. If there is room for one client
// only, the others would find that out for nothing.
const resumeBatch = 64

// resume accepts again where there was no room, or asks whether there is some now.
func (a *acceptor) resume() {
	if a.waits = false; a.closing {
		return
	}
	a.unshort()
	a.Resume()
	a.Retry()
}

// unshort notes that it does not wait because of Room any more.
func (a *acceptor) unshort() {
	if a.short {
		a.short = false
		a.socket.short.Add(-1)
	}
}

// unpause tries to accept again where that has failed.
func (c *core) unpause() {
	if !c.paused {
		return
	}
	c.paused = false
	c.group.paused.Add(-1)
	c.reopen()
	for _, a := range c.acceptors {
		a.Retry()
	}
}

// cut ends everything at once.
func (c *core) cut(cause error) {
	if c.canceled != nil {
		return
	}
	c.canceled = cause
	for c.closeAny() {
	}
	for _, slab := range c.slabs {
		for i := range slab {
			switch n := &slab[i]; n.state {
			case joined:
				n.session.Cut(cause)
			case connecting:
				c.refuse(n.role.dial, cause)
			}
		}
	}
	c.nudge()
}
