package worker

import (
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Options that matter only to a connection that lasts are set once a session is older than
// this, and not twice that: short ones pay with being put into a list and taken out. There are
// two lists, of those that began in the present period and of those that did in the one
// before.
const lateSockoptsAfter = time.Second

// batch is for how many sessions that is done in one turn of the loop.
const batch = 256

// A lateSockopts is the sessions whose endpoints are to get the same options.
type lateSockopts struct {
	worker        *worker
	options       sockopt.Options
	recent, older list // sessions whose endpoints lack the options of lasting ones
	timer         loop.Timer
}

// lateSockoptsOf returns that for some options. There are as many as there are different ones.
func (w *worker) lateSockoptsOf(options sockopt.Options) *lateSockopts {
	g := w.lateOptions[options]
	if g == nil {
		g = &lateSockopts{worker: w, options: options}
		g.recent.init()
		g.older.init()
		w.lateOptions[options] = g
	}
	return g
}

// apply notes the beginning of a session.
func (g *lateSockopts) apply(n *conn) {
	if !n.tcp {
		return // a unix socket has none of these options
	}
	g.recent.append(n)
	if !g.timer.Armed() {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}

// Expired is called when the period is over.
func (g *lateSockopts) Expired(*loop.Timer) {
	for range batch {
		if g.older.empty() {
			break
		}
		n := g.older.first()
		n.unlink()
		_ = g.options.Last(int(n.fd)) // without them it is a connection like any other
	}
	if !g.older.empty() {
		g.worker.loop.Arm(&g.timer, g, 0)
		return
	}
	g.older.move(&g.recent)
	if !g.older.empty() {
		g.worker.loop.Arm(&g.timer, g, lateSockoptsAfter)
	}
}
