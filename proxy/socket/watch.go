package socket

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// ErrGone is the cause with which a context of [Watch] ends. It is a syscall.ECONNRESET.
var ErrGone = fmt.Errorf("the peer has gone: %w", syscall.ECONNRESET)

// Watch returns a context that ends with ctx, and with [ErrGone] as its cause as soon as a
// connection, from which nobody reads, is of no use any more: it was reset, or it is a unix
// socket that its peer has closed with nothing left in it. An end of file alone is no
// reason: the peer may wait for an answer.
//
// It takes a goroutine, until stop. Before stop has returned nobody may read from the
// connection nor set its read deadline, which is then the one given; zero: none. Stop ends
// the context too. Calling it again does nothing. Of a connection without a descriptor the
// context only ends with ctx.
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
		_ = c.SetReadDeadline(time.Unix(1, 0)) // it fails where the connection is closed, which ends the wait too
		<-over
		_ = c.SetReadDeadline(deadline)
		cancel(nil)
	})
}

// rawOf returns the descriptor of a connection, or of the one within it; nil: there is none.
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
