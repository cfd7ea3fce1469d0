package loop

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"runtime/debug"
)

// A coroutine runs a handler. It is an iterator that is pulled (iter.Pull): the switch goes straight from one
// goroutine to the other on the same thread, and takes about 100 ns.
type coroutine struct {
	resume func() (struct{}, bool) // to the next wait, or the end
	pause  func(struct{}) bool     // within
	err    error                   // of the handler, at the end
}

// ErrElsewhere is the error of a [Conn] whose method would wait outside of its handler's coroutine: within Go, or on
// another goroutine.
var ErrElsewhere = errors.New("penstock: loop: it would wait, and this is not the coroutine of its handler: use AsyncWrite from elsewhere")

// A PanicError is the error of a handler that has panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns one line.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the error of a handler that has called runtime.Goexit.
var errGoexit = errors.New("penstock: loop: the handler has called runtime.Goexit")

// start makes the coroutine of a handler, which begins with the first resume. That must come before the next
// start.
func (c *Conn) start() {
	c.over, c.co.err, c.group.first = false, nil, c
	c.co.resume, _ = iter.Pull(c.group.body)
}

// run is a coroutine.
func (s *serving) run(yield func(struct{}) bool) {
	c := s.first
	c.co.pause = yield
	exits := true
	defer func() {
		c.over = true
		if v := recover(); v != nil {
			c.co.err = panicked(v)
		} else if exits {
			// Goexit would go on in the goroutine that has resumed this one, which is the loop's. It is
			// resumed once more by one that may end.
			c.co.err = errGoexit
			yield(struct{}{})
		}
	}()
	c.co.err = s.Handle(c)
	exits = false
}

// panicked is the error of a handler, while it panics. It is a function of its own so that coroutines need no
// stack for it.
//
//go:noinline
func panicked(v any) error { return &PanicError{Value: v, Stack: debug.Stack()} }

// finish gives back what the coroutine has, when it is over.
func (c *Conn) finish() {
	if c.co.err == errGoexit {
		go c.co.resume()
	}
	c.co = coroutine{}
}

// wait lets the loop serve others until one of some events, or the deadline that goes with it.
func (c *Conn) wait(what Events) error {
	switch {
	case c.group.Callbacks:
		return ErrIdle
	case !c.atWork():
		return ErrElsewhere
	}
	by := c.readBy
	if what == Writable {
		by = c.writeBy
	} else {
		c.flush()
	}
	if by != 0 {
		c.armFor(by)
	}
	if c.calls >= maxCalls {
		c.group.loop.Again(c.id)
	}
	c.waits, c.expired = uint8(what), false
	return c.yield()
}

// atWork reports whether the coroutine runs, which alone can wait.
func (c *Conn) atWork() bool {
	return !c.elsewhere && c.co.pause != nil && !c.over && c.waits == 0
}

// yield goes to the loop.
func (c *Conn) yield() error {
	if c.group.over {
		return net.ErrClosed
	}
	c.notePlace()
	c.co.pause(struct{}{})
	switch {
	case c.group.over || c.fd < 0:
		return net.ErrClosed
	case c.expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}
