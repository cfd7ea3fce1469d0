// Package rival is the proxy that a Go programmer writes first: one dial, two goroutines,
// io.Copy each way. Penstock is measured against it, so it is written as well as that can be
// done. Half-closes are passed on, and both ends stay *net.TCPConn, with which io.Copy splices
// through the pipes that the net package keeps (internal/poll, splice_linux.go).
//
// Its other form hides the connections' types, as programs do that wrap them to count or log:
// io.Copy then copies through a buffer of its own, 32 KiB for each direction.
package rival

import (
	"context"
	"io"
	"net"
)

// copier is a form of io.Copy.
type copier func(dst, src *net.TCPConn) error

// Serve forwards each connection accepted from l, which it owns, to the
// address upstream, until ctx is done.
func Serve(ctx context.Context, l net.Listener, upstream string) error {
	return serve(ctx, l, upstream, func(dst, src *net.TCPConn) error {
		_, err := io.Copy(dst, src)
		return err
	})
}

// ServeCopying is Serve that is forced to copy.
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

// forward joins client to a new connection to upstream. A target that cannot
// be reached costs this client its connection.
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

// pass moves src to dst and then its end of file; a failed direction breaks
// both connections, so that its twin ends too.
func pass(dst, src *net.TCPConn, move copier) {
	if err := move(dst, src); err != nil {
		_ = src.Close()
		_ = dst.Close()
		return
	}
	_ = dst.CloseWrite()
}
