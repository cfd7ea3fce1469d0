package listener

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Serve accepts connections until ctx ends, and calls handle for each, in a goroutine of its
// own. handle owns the connection; release must be called, once, when the connection has
// ended. At the limit accepting pauses, and connections wait in the kernel's accept queue.
// With several listeners under one limit each of them may hold one connection more, which
// waits unserved for its turn.
//
// When ctx ends, the path of a unix socket is unlinked, the connections in the accept queue
// are accepted, and the listener is closed: every connection that was established before is
// served, those above the limit when it is their turn.
//
// Serve returns once every connection has been released, with the error of Close. It may be
// called once.
func (l *Listener) Serve(ctx context.Context, handle func(conn net.Conn, release func())) error {
	var handlers sync.WaitGroup
	release := func() {
		l.cfg.Limit.release()
		handlers.Done()
	}
	serve := func(conn net.Conn) { // which has a slot
		handlers.Add(1)
		go handle(conn, release)
	}
	take := func(conn net.Conn) {
		l.cfg.Limit.acquire(context.Background())
		serve(conn)
	}
	left := l.acceptUntil(ctx, serve)
	l.path.remove() // Close says if it failed
	waiting := make(chan net.Conn, min(l.backlog+1, maxWaiting))
	handlers.Go(func() {
		if left != nil {
			take(left)
		}
		for conn := range waiting {
			take(conn)
		}
	})
	l.empty(waiting)
	close(waiting)
	err := l.Close()
	handlers.Wait()
	return err
}

// maxWaiting is how many connections are taken out of the accept queue before
// there is a slot for them. A longer queue is emptied as there are slots.
const maxWaiting = 1 << 16

// acceptUntil accepts until ctx ends or the listener is closed, and passes the connections on,
// each with a slot of the limit. One that got none before ctx ended is returned.
//
// A slot is taken after accept(2): a listener that took one before would keep it from the
// others while no client connects to it. room comes before, so that a connection without a
// slot is one that was waited for while another listener took the last.
func (l *Listener) acceptUntil(ctx context.Context, serve func(net.Conn)) (left net.Conn) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.sock.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	for ctx.Err() == nil && l.cfg.Limit.room(ctx) {
		conn := l.accept(ctx)
		if conn == nil {
			break
		}
		if !l.cfg.Limit.acquire(ctx) {
			left = conn
			break
		}
		serve(conn)
	}
	if !stop() {
		<-interrupted // lest it interrupts the following accepts
	}
	return left
}

// accept returns the next connection, or nil when ctx has ended or the listener was closed. It
// skips connections that failed in the queue, and pauses on every other error: its cause may
// go away, and cannot be removed from here.
func (l *Listener) accept(ctx context.Context) net.Conn {
	for {
		conn, err := l.sock.Accept()
		switch {
		case err == nil:
			return conn
		case failedInQueue(err):
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case !l.pause(ctx.Done()):
			return nil
		}
	}
}

// pause waits until accepting may work again: a connection ended, or some time
// went by. It reports false if the listener was closed or done first.
func (l *Listener) pause(done <-chan struct{}) bool {
	select {
	case <-l.cfg.Limit.released():
	case <-l.after(pauseTime):
	case <-done:
		return false
	case <-l.closed:
		return false
	}
	return true
}

// queueFailures are errors of connections that failed before they were accepted,
// and that are gone with them: "Error handling" in accept(2).
var queueFailures = []syscall.Errno{
	syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPROTO, syscall.ETIMEDOUT, syscall.ENOPROTOOPT,
	syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
}

func failedInQueue(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(queueFailures, errno)
}
