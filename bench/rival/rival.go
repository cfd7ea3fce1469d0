// Package rival is the proxy that a Go programmer writes first: one dial, two
// goroutines, io.Copy each way. It is what Penstock is measured against, so it
// is written as well as that can be done: half-closes are passed on, and both
// ends stay *net.TCPConn, with which io.Copy splices through the pipes that
// the net package keeps (internal/poll, splice_linux.go).
package rival

import (
	"context"
	"io"
	"net"

	"github.com/penstock/penstock/bench/service"
)

// Serve forwards each connection accepted from l, which it owns, to the
// address upstream, until ctx is done.
func Serve(ctx context.Context, l net.Listener, upstream string) error {
	return service.Serve(ctx, l, func(ctx context.Context, client *net.TCPConn) {
		forward(ctx, client, upstream)
	})
}

// forward joins client to a new connection to upstream. A target that cannot
// be reached costs this client its connection.
func forward(ctx context.Context, client *net.TCPConn, upstream string) {
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
		pass(client, endpoint)
	}()
	pass(endpoint, client)
	<-back
}

// pass copies src to dst and then its end of file; a failed direction breaks
// both connections, so that its twin ends too.
func pass(dst, src *net.TCPConn) {
	if _, err := io.Copy(dst, src); err != nil {
		_ = src.Close()
		_ = dst.Close()
		return
	}
	_ = dst.CloseWrite()
}
