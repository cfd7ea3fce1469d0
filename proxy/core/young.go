//go:build linux

package core

import (
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/socket"
)

// What matters only to a connection that lasts is set once a session is older than
// youth, and not twice that: short ones pay with being put into a list and taken
// out. There are two lists, of those that began in the present period and of those
// that did in the one before.
const youth = time.Second

// batch is for how many sessions that is done in one turn of the loop.
const batch = 256

// An aging is the sessions whose endpoints are to get the same options.
type aging struct {
	core         *core
	options      socket.Options
	young, older list // sessions whose endpoints lack what only lasting ones need
	timer        loop.Timer
}

// agingOf returns that for some options. There are as many as there are different ones.
func (c *core) agingOf(options socket.Options) *aging {
	g := c.agings[options]
	if g == nil {
		g = &aging{core: c, options: options}
		g.young.init()
		g.older.init()
		c.agings[options] = g
	}
	return g
}

// age notes the beginning of a session.
func (g *aging) age(n *conn) {
	if !n.tcp {
		return // a unix socket has none of these options
	}
	g.young.append(n)
	if !g.timer.Armed() {
		g.core.loop.Arm(&g.timer, g, youth)
	}
}

// Expired is told that the period is over.
func (g *aging) Expired(*loop.Timer) {
	for range batch {
		if g.older.empty() {
			break
		}
		n := g.older.first()
		n.unlink()
		_ = g.options.Last(int(n.fd)) // without them it is a connection like any other
	}
	if !g.older.empty() {
		g.core.loop.Arm(&g.timer, g, 0)
		return
	}
	g.older.move(&g.young)
	if !g.older.empty() {
		g.core.loop.Arm(&g.timer, g, youth)
	}
}
