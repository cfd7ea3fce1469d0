package million

import (
	"fmt"
	"slices"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// Sessions begin, talk and have their timers called in successive spans of the clock,
// as shares of the idle timeout. The timer that was armed first is due after each
// session has talked, and before any may end for that.
const (
	begunFrom, begunTo   = 0, idleTimeout * 4 / 10
	talkFrom, talkTo     = idleTimeout * 6 / 10, idleTimeout * 95 / 100
	lookedFrom, lookedTo = begunFrom + idleTimeout, begunTo + idleTimeout
)

// idle goes through the time in which the timers of all sessions are due that were
// armed when they began. One more session, which has never talked, ends.
func (c *crowd) idle(n int) (*IdleTimers, error) {
	turns, err := c.clock.run(c.loop, lookedFrom, lookedTo, n, nothing)
	if err != nil {
		return nil, err
	}
	if len(c.ended) != 1 || c.ended[0] != relay.ReasonIdle {
		return nil, fmt.Errorf("million: the idle timeout was to end one session, but what ended is %v", c.ended)
	}
	c.ended = nil
	return &IdleTimers{
		Session: each(turns.sum(), n), Turns: len(turns), Turn: turns.at(0.5), LongestTurn: seconds(slices.Max(turns)),
	}, nil
}

// silent starts a session that never carries a message, before all others. It has a link of
// its own, of which the caller closes the remaining descriptors.
func (c *crowd) silent() (*link, error) {
	k, err := newLink()
	if err != nil {
		return nil, err
	}
	n := &conn{crowd: c}
	a, err := c.register(k.nearA, 0, n)
	if err != nil {
		return k, err
	}
	b, err := c.register(k.nearB, 1, n)
	if err != nil {
		return k, err
	}
	c.driver.Start(&n.session, a, b, n)
	k.nearA, k.nearB = -1, -1
	return k, nil
}

// table measures the cost of finding a registration.
func (c *crowd) table() *Table {
	sessions := make([]loop.Handler, len(c.ids)) // so that no session is touched
	for i := range sessions {
		sessions[i] = &c.conn(i).session
	}
	hand := func(i uint32) { c.loop.Hand(c.ids[i], sessions[i]) }
	return &Table{Find: eachOf(anyOrder(len(c.ids), 10), hand), Hot: eachOf(make([]uint32, leastMessages), hand)}
}
