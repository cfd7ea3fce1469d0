package worker

import (
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Options that matter only to a connection that lasts are set once a session is older than
// this, and not twice that: short ones pay with a place in a list. There are
// two lists, of those that began in the present period and of those that did in the one
// before. A conn may be another client's by then, whose options come early.
const lateSockoptsAfter = time.Second

// batch is for how many sessions that is done in one turn of the loop.
const batch = 256

// A lateSockopts is the sessions whose endpoints are to get the same options.
type lateSockopts struct {
	worker        *worker
	options       sockopt.Options
	recent, older []*conn // sessions whose endpoints lack the options of lasting ones
	done          int     // how many of older have them
	timer         loop.Timer
}

// lateSockoptsOf returns that for some options. There are as many as there are different ones.
func (w *worker) lateSockoptsOf(options sockopt.Options) *lateSockopts {
	g := w.lateOptions[options]
	if g == nil {
		g = &lateSockopts{worker: w, options: options}
		w.lateOptions[options] = g
	}
	return g
}

// apply notes the beginning of a session.
func (g *lateSockopts) apply(n *conn) {
	if !n.tcp() {
		return // a unix socket has none of these options
	}
	g.recent = append(g.recent, n)
	if !g.timer.Armed() {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}

// Expired is called when the period is over.
func (g *lateSockopts) Expired(*loop.Timer) {
	for range batch {
		if g.done == len(g.older) {
			break
		}
		n := g.older[g.done]
		g.done++
		if n.state == joined && n.tcp() && n.ref.serving.lateSockopts == g && !n.carried() {
			_, b := n.descriptors()
			_ = g.options.Last(b) // without them it is a connection like any other
		}
	}
	if g.done < len(g.older) {
		g.worker.loop.Arm(&g.timer, g, 0)
		return
	}
	g.older, g.recent, g.done = g.recent, g.older[:0], 0
	if cap(g.recent) > 2*len(g.older) {
		g.recent = nil // of more sessions than begin now
	}
	if len(g.older) > 0 {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}
