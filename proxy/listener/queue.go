package listener

import (
	"errors"
	"net"
	"os"
	"time"
)

// patience bounds one accept of a connection that the kernel said is there. It
// is there: the bound is for a kernel that errs.
const patience = time.Second

// empty sends what waits in the accept queue to conns. New connections may join
// the queue all the while, but it is first in, first out, and holds at most the
// backlog and one: no connection that was established before the call is behind
// that many others.
func (l *Listener) empty(conns chan<- net.Conn) {
	for range l.backlog + 1 {
		if !l.queued() || !l.unheld(nil) {
			return
		}
		conn, ok := l.acceptQueued()
		if !ok {
			return
		}
		if conn != nil {
			conns <- conn
		}
	}
}

// acceptQueued takes the head of the queue out of it: a connection, or nil for
// one that had failed. It reports false if there was none.
func (l *Listener) acceptQueued() (net.Conn, bool) {
	for {
		// A deadline that has passed would keep package net from asking the kernel.
		l.sock.SetDeadline(time.Now().Add(patience))
		conn, err := l.tryAccept()
		switch {
		case err == nil:
			return conn, true
		case failedInQueue(err):
			return nil, true
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil, false
		case !l.pause(nil, err):
			return nil, false
		}
	}
}
