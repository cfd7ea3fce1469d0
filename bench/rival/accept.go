package rival

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Accept accepts connections from l and hands each one to handle in a goroutine
// of its own, until ctx is done. It owns l and every connection: when ctx is
// done it closes them all, waits for the handlers, and returns nil; any other
// end of accepting is returned as it is. A connection is closed when its
// handler returns.
func Accept(ctx context.Context, l net.Listener, handle func(context.Context, *net.TCPConn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			_ = l.Close()
			if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
				return nil
			}
			return err
		}
		conn, ok := c.(*net.TCPConn)
		if !ok {
			_ = c.Close()
			continue
		}
		handlers.Go(func() { handleOne(ctx, conn, handle) })
	}
}

// handleOne runs one handler; the end of ctx closes the connection under it.
func handleOne(ctx context.Context, conn *net.TCPConn, handle func(context.Context, *net.TCPConn)) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	handle(ctx, conn)
}
