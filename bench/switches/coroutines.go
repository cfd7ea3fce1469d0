package switches

import (
	"context"
	"errors"
	"net"

	"github.com/penstock/penstock/loop"
)

// serveCoroutines serves each connection by a coroutine of one of Penstock's loops, of which there is one for
// each CPU.
func serveCoroutines(ctx context.Context, l *net.TCPListener, open *census) error {
	s := &loop.Server{Handle: func(c *loop.Conn) error {
		ticket := open.enter(func() {}) // the end of the loops ends it
		defer open.leave(ticket)
		for {
			if err := c.More(); err != nil {
				return err
			}
			b, err := c.Next(len(c.Buffered()))
			if err != nil {
				return err
			}
			if _, err := c.Write(b); err != nil {
				return err
			}
			open.echoed.Add(int64(len(b)))
		}
	}}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, loop.ErrServerClosed) {
		return err
	}
	return nil
}
