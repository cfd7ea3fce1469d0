package switches

import (
	"context"
	"errors"
	"net"
	"sync"
)

// bufferSize is the buffer of each connection, in bytes; the servers have the same.
const bufferSize = 4 << 10

// serveGoroutines serves each connection by a goroutine that reads and writes
// the net package's connection.
func serveGoroutines(ctx context.Context, l *net.TCPListener, open *census) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) && ctx.Err() != nil {
				return nil
			}
			return err
		}
		all.Go(func() { echo(c, open) })
	}
}

// echo sends back all bytes received on c, which it owns, until either ends.
func echo(c *net.TCPConn, open *census) {
	defer c.Close()
	ticket := open.enter(func() { _ = c.Close() })
	defer open.leave(ticket)
	buf := make([]byte, bufferSize)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
		open.echoed.Add(int64(n))
	}
}
