package worker

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay"
)

const (
	// laneGap is how long a session that comes back waits for a moment at which nothing of it is on the way. Without one a
	// sender waits for its retransmission timer.
	laneGap = 200 * time.Millisecond
	// laneReturns is how many come back at a time: each has a thread wait for the kernel's grace period.
	laneReturns = 64
)

// CutLane ends the sessions that match and have left user space: both sides are reset, and their results have the
// cause. Those that match and are about to leave stay. It returns how many were cut.
func (g *Group) CutLane(match Match, cause error) int {
	counts := make([]int, len(g.workers)) // each its worker's, until that has been scanned
	cut := 0
	for _, t := range g.scanLane(match, func(w *worker, n *conn) {
		counts[w.index]++
		n.driven().Cut(cause)
	}) {
		cut += counts[t.worker.index]
	}
	return cut
}

// scanLane calls visit for sessions that match and have left user space. Those that are about to leave stay, and are asked later.
func (g *Group) scanLane(match Match, visit func(w *worker, n *conn)) []scanned {
	return g.scanClients(func(w *worker, n *conn) {
		switch {
		case n.state != joined || n.lane == nil || !match(n.ref.serving.socket, n.binding()):
		case w.withdraw(n):
			w.askLater(n)
		default:
			visit(w, n)
		}
	})
}

// ReturnLane has the sessions that match and have left user space go on there again, and returns how many do, and how many could
// not, so that both sides were reset: their results have the reason. Those that end meanwhile are neither. One that has
// come back leaves again as others do. It may be called at any time by any goroutine but those of the loops.
func (g *Group) ReturnLane(match Match) (returned, reset int) {
	lists := make([][]*laneSession, len(g.workers)) // each its worker's, until that has been scanned
	var back, failed atomic.Int64
	var all sync.WaitGroup
	for _, t := range g.scanLane(match, func(w *worker, n *conn) {
		if c := n.lane; !c.is(coming) {
			c.set(coming, true)
			lists[w.index] = append(lists[w.index], c)
		}
	}) {
		for _, c := range lists[t.worker.index] {
			g.returning <- struct{}{}
			all.Go(func() {
				defer func() { <-g.returning }()
				switch here, err := c.comeBack(t.worker); {
				case here:
					back.Add(1)
				case err != nil && !errors.Is(err, net.ErrClosed):
					failed.Add(1)
				}
			})
		}
	}
	all.Wait()
	return int(back.Load()), int(failed.Load())
}

// comeBack has a session go on in user space, and reports whether it does. It waits. An error that wraps net.ErrClosed is
// that of one that has ended; with others both sides were reset.
func (c *laneSession) comeBack(w *worker) (here bool, err error) {
	a, b, ended, err := c.session.TakeBack(laneGap)
	switch {
	case a < 0: // it has not left, or has ended
		w.onLoop(c, func() { c.set(coming, false) })
		return false, err
	case err != nil: // its sockets are in repair still
		c.discard(a, b)
		return false, err
	}
	arrived := make(chan error, 1)
	if err := w.loop.Post(func() { arrived <- c.arrive(w, a, b, ended) }); err != nil {
		c.discard(a, b)
		return false, err
	}
	select {
	case err = <-arrived:
	case <-w.group.ended:
		select {
		case err = <-arrived:
		default:
			err = ErrEnding
		}
	}
	return err == nil, err
}

// discard ends a session whose new sockets are of no use, with a reset of both.
func (c *laneSession) discard(a, b int) {
	for _, fd := range [2]int{a, b} {
		_ = sys.AbortOnClose(fd)
		closeSocket(fd)
	}
	c.session.Reset() // Ended is called
}

// arrive is the second half of comeBack, on the loop.
func (c *laneSession) arrive(w *worker, a, b int, ended [2]bool) error {
	n := c.conn
	c.set(coming, false)
	if n.lane != c { // it was cut meanwhile
		c.discard(a, b)
		return net.ErrClosed
	}
	session := n.driven()
	ida, errA := w.loop.Add(a, whichClient, session)
	idb, errB := w.loop.Add(b, whichEndpoint, session)
	if err := errors.Join(errA, errB); err != nil {
		w.loop.Drop(ida)
		w.loop.Drop(idb)
		c.discard(a, b)
		return err
	}
	c.setOptions([2]int{a, b})
	last := relay.SideNone
	if v, ok := c.session.Look(); ok && v.Ends[0].Last {
		last = relay.SideA
	} else if ok && v.Ends[1].Last {
		last = relay.SideB
	}
	c.set(cameBack, true)
	w.askLater(n)
	if !session.Return(relay.Socket{FD: a, ID: ida, TCP: true, NoDelay: true}, relay.Socket{FD: b, ID: idb, TCP: true, NoDelay: true}, ended, last) {
		w.loop.Drop(ida) // it is being reset
		w.loop.Drop(idb)
		c.discard(a, b)
		return net.ErrClosed
	}
	return nil
}

// AskLane asks again sessions that match, and have not left user space, whether they may.
func (g *Group) AskLane(match Match) {
	for _, w := range g.workers {
		w.post(func() { w.askAgain(match) })
	}
}

func (w *worker) askAgain(match Match) {
	w.beginClientScan(&clientScan{over: make(chan scanned, 1), visit: func(w *worker, n *conn) {
		if t := &w.lanes; t.lane != nil && n.state == joined && !n.carried() && match(n.ref.serving.socket, n.binding()) {
			t.first.add(n, w.began(n), t.after)
		}
	}})
}

// askLater has a session be asked again.
func (w *worker) askLater(n *conn) {
	if t := &w.lanes; t.lane != nil {
		t.again.add(n, w.began(n), laneRetry*t.after)
	}
}

// began is when the session of a client began, by the loop's clock.
func (w *worker) began(n *conn) int64 { return w.loop.Now() - int64(n.result().Duration) }
