//go:build linux

package core

import (
	"time"

	"github.com/penstock/penstock/loop"
)

// What matters only to a connection that lasts is set once a session is older than
// youth, and not twice that: short ones pay with being put into a list and taken
// out. There are two lists, of those that began in the present period and of those
// that did in the one before.
const youth = time.Second

// batch is for how many sessions that is done in one turn of the loop.
const batch = 256

// age notes the beginning of a session.
func (c *core) age(n *conn) {
	if !n.tcp {
		return // a unix socket has none of these options
	}
	c.young.append(n)
	if !c.youngTimer.Armed() {
		c.loop.Arm(&c.youngTimer, (*youngTimer)(c), youth)
	}
}

// youngTimer is a core whose period is over.
type youngTimer core

func (t *youngTimer) Expired(*loop.Timer) {
	c := (*core)(t)
	for range batch {
		if c.older.empty() {
			break
		}
		n := c.older.first()
		n.unlink()
		_ = c.group.cfg.Options.Last(int(n.fd)) // without them it is a connection like any other
	}
	if !c.older.empty() {
		c.loop.Arm(&c.youngTimer, t, 0)
		return
	}
	c.older.move(&c.young)
	if !c.older.empty() {
		c.loop.Arm(&c.youngTimer, t, youth)
	}
}
