//go:build linux

package core

import (
	"time"

	"github.com/penstock/penstock/loop"
)

// How long a client that lacks a descriptor waits for one: starvePause at a time
// when no other connection ends first, and starvePatience in all. Without the
// latter, clients that were accepted with the last descriptors would wait for each
// other.
const (
	starvePause    = 100 * time.Millisecond
	starvePatience = 5 * time.Second
)

// starve goes on with a client that got no descriptor: with those of idle pipes, or
// with the one that was kept for it, or later. Meanwhile nobody else is accepted.
func (c *core) starve(d *dialing, err error) {
	now := c.loop.Now()
	switch {
	case c.group.cfg.Host.Trim() > 0, c.spares.Claim():
		c.search(d)
		return
	case d.starving == 0:
		d.starving = now
		c.group.gate.holds.Add(1)
		c.group.nudge()
	case now-d.starving > int64(starvePatience):
		c.refuse(d, err)
		return
	}
	c.starved = append(c.starved, d)
	c.later()
}

// later has what failed for want of something tried again after a while.
func (c *core) later() {
	if !c.starveTimer.Armed() {
		c.loop.Arm(&c.starveTimer, (*hunger)(c), starvePause)
	}
}

// feed notes that a client does not starve, or not any more.
func (c *core) feed(d *dialing) {
	if d.starving == 0 {
		return
	}
	d.starving = 0
	for i, s := range c.starved {
		if s == d {
			c.starved = append(c.starved[:i], c.starved[i+1:]...)
			break
		}
	}
	c.group.gate.holds.Add(-1)
	c.group.nudge()
}

// retryStarved tries again for so many of those that starve, the ones that have
// waited longest first, as long as that helps.
func (c *core) retryStarved(all bool) {
	for range len(c.starved) {
		if len(c.starved) == 0 {
			return
		}
		d := c.starved[0]
		c.starved = c.starved[:copy(c.starved, c.starved[1:])]
		before := len(c.starved)
		c.search(d)
		if !all && len(c.starved) > before {
			return
		}
	}
}

// hunger is a core whose clients have starved for a while.
type hunger core

func (h *hunger) Expired(*loop.Timer) {
	c := (*core)(h)
	c.retryStarved(true)
	c.reopen()
	c.emptyQueues()
}
