// Package rival is the proxy that a Go programmer writes first: one dial, two goroutines, io.Copy each way.
// Penstock is measured against it, so it is written as well as possible. It passes half-closes on, and both ends
// stay *net.TCPConn. So io.Copy splices them through pipes that the net package keeps (internal/poll,
// splice_linux.go).
//
// Its other form hides the types of the connections, like programs that wrap connections to count or log. Then
// io.Copy copies through a buffer of 32 KiB for each direction.
package rival

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/penstock/penstock/relay"
)

// copier is a form of io.Copy.
type copier func(dst, src *net.TCPConn) error

// Serve forwards each connection from l to the address upstream, until ctx is done. It owns l.
func Serve(ctx context.Context, l net.Listener, upstream string) error {
	return serve(ctx, l, upstream, func(dst, src *net.TCPConn) error {
		_, err := io.Copy(dst, src)
		return err
	})
}

// ServeCopying is Serve, but copies instead of splicing.
func ServeCopying(ctx context.Context, l net.Listener, upstream string) error {
	return serve(ctx, l, upstream, func(dst, src *net.TCPConn) error {
		_, err := io.Copy(struct{ io.Writer }{dst}, struct{ io.Reader }{src})
		return err
	})
}

func serve(ctx context.Context, l net.Listener, upstream string, move copier) error {
	return Accept(ctx, l, func(ctx context.Context, client *net.TCPConn) {
		forward(ctx, client, upstream, move)
	})
}

// forward joins client to a new connection to upstream. If upstream cannot be reached, the client's connection is
// closed.
func forward(ctx context.Context, client *net.TCPConn, upstream string, move copier) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", upstream)
	if err != nil {
		return
	}
	endpoint := c.(*net.TCPConn)
	defer endpoint.Close()
	defer context.AfterFunc(ctx, func() { _ = endpoint.Close() })()

	back := make(chan struct{})
	go func() {
		defer close(back)
		pass(client, endpoint, move)
	}()
	pass(endpoint, client, move)
	<-back
}

// pass copies src to dst, and then passes on the end of file. If a direction fails, pass breaks both connections,
// so that the other direction ends too.
func pass(dst, src *net.TCPConn, move copier) {
	if err := move(dst, src); err != nil {
		_ = src.Close()
		_ = dst.Close()
		return
	}
	_ = dst.CloseWrite()
}

// ServeRelay is [Serve] with package relay in place of io.Copy: two goroutines for each session.
func ServeRelay(ctx context.Context, l net.Listener, upstream string) error {
	r, err := relay.New(nil)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	err = Accept(ctx, l, func(ctx context.Context, client *net.TCPConn) {
		var dialer net.Dialer
		if endpoint, err := dialer.DialContext(ctx, "tcp", upstream); err == nil {
			_, _ = r.Join(ctx, client, endpoint) // it closes both connections
		}
	})
	return errors.Join(err, r.Close())
}

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
