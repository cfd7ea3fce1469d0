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

// Serve accepts connections until ctx ends, and calls handle for each, in a
// goroutine of its own; handle owns the connection, and it or who it leaves that
// to calls release, once, when the connection has ended. At the limit accepting
// pauses, and connections wait in the kernel's accept queue. With several
// listeners under one limit each of them may hold one connection more, which
// waits unserved for its turn.
//
// When ctx ends, the path of a unix socket is unlinked, the connections in the
// accept queue are accepted, and the listener is closed: every connection that
// was established before is served, those above the limit when it is their turn.
//
// Serve returns once every connection has been released, with the error of Close.
// It may be called once.
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

// acceptUntil accepts until ctx ends or the listener is closed, and passes the
// connections on, each with a slot of the limit. One that got none before ctx
// ended is returned.
//
// A slot is taken after accept(2): a listener that took one before would keep it
// from the others while nobody connects to it. room comes before, so that a
// connection without a slot is one that was waited for while another listener
// took the last.
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
		<-interrupted // lest it interrupts what comes after
	}
	return left
}

// accept returns the next connection, or nil when ctx has ended or the listener
// was closed. It skips connections that failed in the queue, and pauses on every
// other error: what is wrong may go away, and cannot be put right from here.
func (l *Listener) accept(ctx context.Context) net.Conn {
	for {
		conn, err := l.tryAccept()
		switch {
		case err == nil:
			return conn
		case failedInQueue(err):
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case !l.pause(ctx.Done(), err):
			return nil
		}
	}
}

// tryAccept accepts, once there is what the connection will need.
func (l *Listener) tryAccept() (net.Conn, error) {
	if !l.reserved && l.cfg.Reserve != nil {
		if err := l.cfg.Reserve(); err != nil {
			return nil, err
		}
		l.reserved = true
	}
	conn, err := l.sock.Accept()
	if err != nil {
		return nil, err
	}
	l.reserved = false
	if c, ok := conn.(*net.UnixConn); ok {
		l.disinherited(c)
	}
	return conn, nil
}

// disinherited sets the options that a connection of a unix socket does not inherit.
// Without them it is one like any other.
func (l *Listener) disinherited(c *net.UnixConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = l.cfg.Options.Control("unix", "", raw)
	}
}

// pause waits until accepting may work again: a connection ended, or some time
// went by. It reports false if the listener was closed or done first.
func (l *Listener) pause(done <-chan struct{}, err error) bool {
	l.pauses.Add(1)
	if l.cfg.OnPause != nil {
		l.cfg.OnPause(cause(err))
	}
	select {
	case <-l.cfg.Limit.Released():
	case <-l.after(pauseTime):
	case <-done:
		return false
	case <-l.closed:
		return false
	}
	return l.unheld(done)
}

// unheld waits until nobody holds the limit. It reports false if the listener was
// closed or done first.
func (l *Listener) unheld(done <-chan struct{}) bool {
	for held := l.cfg.Limit.holding(); held != nil; held = l.cfg.Limit.holding() {
		select {
		case <-held:
		case <-done:
			return false
		case <-l.closed:
			return false
		}
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
