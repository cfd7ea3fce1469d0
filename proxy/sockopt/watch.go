package sockopt

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// ErrGone is the cause with which a context of [Watch] ends. It is a syscall.ECONNRESET.
var ErrGone = fmt.Errorf("the peer has closed the connection: %w", syscall.ECONNRESET)

// Watch returns a context that ends with ctx, and also when a connection that is not being read becomes useless; then
// the cause is [ErrGone]. A connection becomes useless when it is reset. A unix socket also does when the peer has
// closed it, and no data is left in it. An end of file alone is no reason: the peer may wait for an answer.
//
// Watch takes a goroutine until stop is called. Before stop has returned, the caller must not read from the connection
// or set its read deadline. Afterwards the connection has the given read deadline; zero: none. stop also ends the
// context. Calling it again does nothing. For a connection without a descriptor the context only ends with ctx.
func Watch(ctx context.Context, c net.Conn, deadline time.Time) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	raw := rawOf(c)
	if raw == nil {
		return watched, func() { cancel(nil) }
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := raw.Read(func(fd uintptr) bool { return hasGone(int(fd)) }); err == nil {
			cancel(ErrGone)
		}
	}()
	return watched, sync.OnceFunc(func() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // an error means that the connection is closed, which ends the wait too
		<-over
		_ = c.SetReadDeadline(deadline)
		cancel(nil)
	})
}

// rawOf returns the descriptor of a connection, or of the connection within it; nil: there is none.
func rawOf(c net.Conn) syscall.RawConn {
	for {
		switch inner := c.(type) {
		case syscall.Conn:
			raw, err := inner.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return nil
		}
	}
}

// hasGone reports whether a peer will neither receive nor send any more. A TCP peer that has
// closed looks like a peer that has only half-closed (tcp(7)).
func hasGone(fd int) bool {
	events, err := sys.Poll(fd, 0)
	switch {
	case err != nil:
		return false // EINTR: there was no event yet (fs/select.c, do_poll)
	case events&sys.POLLERR != 0:
		return true
	case events&sys.POLLHUP == 0:
		return false
	}
	queued, err := sys.FIONREAD(fd)
	return err == nil && queued == 0
}
