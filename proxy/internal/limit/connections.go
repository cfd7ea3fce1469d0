package limit

import (
	"errors"
	"sync/atomic"
)

// ErrConnections says that there are as many connections as may be.
var ErrConnections = errors.New("connection limit reached")

// Connections is how many there may be at once. The zero value limits nothing, and
// counts.
type Connections struct {
	most  atomic.Int64
	inUse atomic.Int64
}

// NewConnections returns a limit of most connections at once; 0 or less means none.
func NewConnections(limit int64) *Connections {
	c := new(Connections)
	c.Set(limit)
	return c
}

// Set changes the limit. Connections beyond a lower one stay.
func (c *Connections) Set(limit int64) { c.most.Store(max(limit, 0)) }

// Take takes a place for a connection, and reports whether there was one. The caller gives it
// back by Give.
func (c *Connections) Take() bool {
	for {
		n, most := c.inUse.Load(), c.most.Load()
		if most > 0 && n >= most {
			return false
		}
		if c.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Add takes a place whether or not there is one. It is for callers that ask Full before they
// accept, and then have a connection although another one was faster.
func (c *Connections) Add() { c.inUse.Add(1) }

// Give gives a place back, and reports whether Take would fail until then and would not now,
// so that a client that waits for a place should be woken.
func (c *Connections) Give() (freed bool) {
	n, most := c.inUse.Add(-1), c.most.Load()
	return most > 0 && n+1 == most
}

// Full reports whether Take would fail now.
func (c *Connections) Full() bool {
	most := c.most.Load()
	return most > 0 && c.inUse.Load() >= most
}

// InUse returns how many places are taken, and Most how many there are, 0 if there is
// no limit.
func (c *Connections) InUse() int64 { return c.inUse.Load() }

// Max returns the limit, 0 if there is none.
func (c *Connections) Max() int64 { return c.most.Load() }
