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
	end    func()
	pause  func(struct{}) bool // within; false: the server ends
	err    error               // of the handler, at the end
	over   bool
}

// ErrElsewhere is the error of a [Conn] whose method would wait outside of its handler's coroutine, as in Go.
var ErrElsewhere = errors.New("penstock: loop: it would wait, outside of its handler: use AsyncWrite")

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

// start begins the coroutine of a handler, which runs from the first resume on.
func (co *coroutine) start(handle func() error) {
	co.over, co.err = false, nil
	co.resume, co.end = iter.Pull(func(yield func(struct{}) bool) {
		co.pause = yield
		exits := true
		defer func() {
			co.over = true
			if v := recover(); v != nil {
				co.err = &PanicError{Value: v, Stack: debug.Stack()}
			} else if exits {
				// Goexit would go on in the goroutine that has resumed this one, which is the loop's. It is
				// resumed once more by one that may end.
				co.err = errGoexit
				yield(struct{}{})
			}
		}()
		co.err = handle()
		exits = false
	})
}

// finish gives back what the coroutine has, when it is over.
func (co *coroutine) finish() {
	if end := co.end; co.err == errGoexit {
		go end()
	}
	*co = coroutine{}
}

// wait lets the loop serve others until one of some events, or the deadline that goes with it.
func (c *Conn) wait(what Events) error {
	if c.group.Callbacks {
		return ErrIdle
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
		c.loop.Again(c.id)
	}
	c.waits, c.expired = what, false
	return c.yield()
}

// yield goes to the loop.
func (c *Conn) yield() error {
	switch {
	case c.elsewhere || c.co.pause == nil || c.co.over:
		return ErrElsewhere
	case c.group.over:
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
