package million

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/loop"
)

// stuck has every session read a message that its destination does not take, and
// then has the destinations take them.
func (c *crowd) stuck() (*Stuck, error) {
	before, err := held()
	if err != nil {
		return nil, err
	}
	for _, k := range c.links {
		if err := stuff(k.nearB); err != nil {
			return nil, err
		}
	}
	stash, err := c.all(8, c.stash)
	if err != nil {
		return nil, err
	}
	if err := c.out(len(c.ids)); err != nil {
		return nil, err
	}
	now, err := held()
	if err != nil {
		return nil, err
	}
	for _, k := range c.links {
		if err := drain(k.farB); err != nil {
			return nil, err
		}
	}
	deliver, err := c.all(9, c.deliver)
	if err != nil {
		return nil, err
	}
	perSession := float64(now.heap-before.heap) / float64(len(c.ids))
	return &Stuck{HeapBytes: report.Number(perSession), Stash: stash.at(0.5), Deliver: deliver.at(0.5)}, c.out(0)
}

// all does something with every session, in random order.
func (c *crowd) all(seed uint64, f func(i int) (time.Duration, error)) (times, error) {
	took := make(times, 0, len(c.ids))
	for _, i := range anyOrder(len(c.ids), seed) {
		t, err := f(int(i))
		if err != nil {
			return nil, err
		}
		took = append(took, t)
	}
	return took, nil
}

// stash has session i read bytes that it cannot pass on.
func (c *crowd) stash(i int) (time.Duration, error) {
	if err := send(c.links.of(i).farA, c.numbered(i, slotSize)); err != nil {
		return 0, err
	}
	s := &c.conn(i).session
	begun := time.Now()
	c.loop.Hand(c.ids[i], s)
	s.Ready(0, loop.Readable)
	return time.Since(begun), nil
}

// deliver has session i pass on its bytes.
func (c *crowd) deliver(i int) (time.Duration, error) {
	c.numbered(i, slotSize)
	s := &c.conn(i).session
	begun := time.Now()
	c.loop.Hand(c.ids[i], s)
	s.Ready(1, loop.Writable)
	return time.Since(begun), c.expect(c.links.of(i), slotSize)
}

// out fails unless so many sessions have a slot. One is the buffer they read into.
func (c *crowd) out(want int) error {
	c.arena.Local(0).Flush()
	if out := c.arena.Stats().ByPurpose[arena.Residue].Out - 1; out != int64(want) {
		return fmt.Errorf("million: %d sessions have a slot of the arena, not %d", out, want)
	}
	return nil
}
