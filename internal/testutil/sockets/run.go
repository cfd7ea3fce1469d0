package sockets

import (
	"context"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// Run calls serve with a listener on loopback, and returns its address. At the end of the test Run ends ctx,
// waits for serve, and fails the test if serve returns an error.
func Run(t testing.TB, serve func(ctx context.Context, l *net.TCPListener) error) (address string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l.(*net.TCPListener)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}
