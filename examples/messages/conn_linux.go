package main

import (
	"cmp"
	"syscall"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

const (
	budget = 32 << 20   // bytes of slots for each loop
	slot   = 16 << 10   // bytes of one read
	holds  = 8          // slots that a client may hold at once
	most   = 2*slot + 8 // bytes of answers to one slot, if all messages are empty
	high   = 128 << 10  // bytes that may be pending for a client
	short  = slot / 32  // a shorter read is copied, so that it holds no slot
)

type conn struct {
	*server
	fd    int // owned
	id    loop.ID
	out   *vecio.Writer
	due   loop.Timer
	held  int // slots that out owns
	in    message
	ended bool // nothing more is read
}

// Ready sends pending bytes, and reads as long as there is room for the answers.
func (c *conn) Ready(uint8, loop.Events) {
	err := c.settle()
	for range 4 {
		if err != nil || !c.room() {
			break
		}
		err = c.read()
	}
	switch {
	case err == syscall.EAGAIN || err == arena.ErrBudget: // bytes have to come, or slots to come back
	case err != nil || c.ended && c.out.Pending() == 0:
		c.drop()
	case c.room():
		c.loop.Again(c.id) // after others have had their turn
	}
}

// room reports whether the answers to one more slot stay below the high mark.
func (c *conn) room() bool {
	return !c.ended && c.held < holds && c.out.Pending()+most <= high
}

// read answers the next bytes. If all slots are out it waits until the connection's own come back, or reads
// into the heap if the connection has none.
func (c *conn) read() error {
	b := c.spare
	if b == nil {
		h, err := c.slots.Get(slot, arena.Read)
		switch {
		case err == nil:
			b, _ = c.slots.Bytes(h) // cannot fail: the slot is out
			c.spare = b
		case c.out.Pending() > 0:
			return err
		default:
			b = make([]byte, slot)
		}
	}
	n, err := syscall.Read(c.fd, b)
	if err != nil {
		return err
	}
	c.ended = n == 0
	err = c.answer(b[:n])
	// The pieces are borrowed. An empty piece after them owns the slot, and is written when they are.
	if n >= short && c.spare != nil {
		c.held++
		c.spare = nil
		err = cmp.Or(err, c.out.Own(b[:0], c))
	}
	return cmp.Or(err, c.settle())
}

// Release takes a slot back from the writer.
func (c *conn) Release(b []byte) {
	c.slots.Release(b)
	c.held--
}

// settle flushes, unless the policy prefers to wait for the rest of an answer.
func (c *conn) settle() error {
	if wait, is := c.out.Due(); is && wait > 0 {
		if !c.due.Armed() {
			c.loop.Arm(&c.due, c, wait)
		}
		return nil
	}
	return unblocked(c.out.Flush())
}

func (c *conn) Expired(*loop.Timer) { c.Ready(0, 0) }

// unblocked returns err, or nil for vecio.ErrBlocked: the loop says when to flush again.
func unblocked(err error) error {
	if err == vecio.ErrBlocked {
		return nil
	}
	return err
}

func (c *conn) drop() {
	_ = c.out.Close() // first, because it gives the slots back
	c.loop.Disarm(&c.due)
	c.loop.Drop(c.id)
	syscall.Close(c.fd)
	delete(c.conns, c)
}
