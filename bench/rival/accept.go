package rival

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Accept accepts connections from l until ctx is done, and calls handle for each in a new goroutine. It owns l and
// every connection. A connection is closed when its handler returns. When ctx is done, Accept closes all
// connections, waits for the handlers, and returns nil. It returns any other error of accepting unchanged.
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

// handleOne runs one handler. When ctx ends, it closes the connection meanwhile.
func handleOne(ctx context.Context, conn *net.TCPConn, handle func(context.Context, *net.TCPConn)) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	handle(ctx, conn)
}
