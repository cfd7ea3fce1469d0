package loop

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"strings"
)

// ErrNoCoroutine is the error of [Conn.Go] in a callback, which has no coroutine to come back to: start a goroutine,
// return [ErrIdle], and answer by [Conn.AsyncWrite].
var ErrNoCoroutine = errors.New("penstock: loop: Go in a callback, which cannot wait: start a goroutine that calls AsyncWrite, and return ErrIdle")

// Go calls f on a goroutine of its own, where it may block, and returns when f does; the loop serves others
// meanwhile. f must not use the connection but for AsyncWrite. A panic in f is one of the handler. In a callback it
// fails with [ErrNoCoroutine], and f is not called.
func (c *Conn) Go(f func()) error {
	switch {
	case c.group.Callbacks:
		return ErrNoCoroutine
	case !c.atWork():
		return ErrElsewhere
	}
	if c.group.over || c.fd < 0 {
		return net.ErrClosed
	}
	c.flush()
	var panicked any
	c.elsewhere = true
	c.group.away.Add(1)
	go func() {
		returned := false
		defer func() {
			if !returned {
				if panicked = recover(); panicked == nil {
					panicked = errGoexit
				}
			}
			_ = c.group.loop.Post(c.back)
			c.group.away.Done()
		}()
		f()
		returned = true
	}()
	c.notePlace()
	c.co.pause(struct{}{})
	if panicked != nil {
		panic(panicked)
	}
	return nil
}

// back resumes the coroutine after Go.
func (c *Conn) back() {
	if c.elsewhere {
		c.elsewhere = false
		c.step()
	}
}

// Detach takes the connection off its loop for good: it is one of package net from then on, the caller's own, and the
// handler should return. ahead is what was read of the client and not taken. What is pending is flushed first, which
// may wait; a callback gets ErrIdle if the kernel does not take all, and is called again when bytes come. It is for
// what the loop does not do, such as relay.Join:
//
//	conn, ahead, err := c.Detach()
//	...
//	go relay.Join(ctx, relay.Prefixed(conn, ahead), upstream)
//
// After an error of Flush the connection is as it was. With any other one it has been closed. The end of the handler
// is reported to [Server.Ended] as ever.
func (c *Conn) Detach() (conn net.Conn, ahead []byte, err error) {
	if err := c.mayWrite(); err != nil {
		return nil, nil, err
	}
	for c.flush(); c.out != nil; {
		if err := c.Flush(); err != nil {
			return nil, nil, err
		}
	}
	if c.failure != nil {
		return nil, nil, c.failure
	}
	fd := int(c.fd)
	ahead = append(ahead, c.in.bytes()...)
	c.fd, c.closing = -1, true
	c.drop(&c.in)
	if err := c.group.loop.Detach(c.id); err != nil {
		closeSocket(fd)
		return nil, nil, c.errorOf("detach", err)
	}
	conn, err = Give(fd)
	return conn, ahead, err
}

// notePlace notes where a handler that has run for too long waits.
func (c *Conn) notePlace() {
	if s := c.group; s.Slow != nil && s.loop.clock()-s.resumed > int64(s.slowTime()) {
		s.at = waitsAt()
	}
}

// waitsAt is the place in the handler from which it was called.
func waitsAt() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); !strings.Contains(f.Function, "/penstock/loop.") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
	return ""
}

// place is where the handler begins.
func (s *Server) place() string {
	f := runtime.FuncForPC(reflect.ValueOf(s.Handle).Pointer())
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s:%d", file, line)
}
