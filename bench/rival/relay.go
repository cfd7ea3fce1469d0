package rival

import (
	"context"
	"errors"
	"net"

	"github.com/penstock/penstock/relay"
)

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
