package sockets

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/must"
)

// Serve calls handle for each connection that l accepts, on a new goroutine, and closes the connection
// afterwards. When the test ends it closes l, and waits for all calls.
func Serve(t testing.TB, l net.Listener, handle func(net.Conn)) {
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			switch {
			case errors.Is(err, syscall.EMFILE): // the tested code has taken all descriptors
				time.Sleep(time.Millisecond)
				continue
			case err != nil:
				return
			}
			serving.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
}

// Server serves connections by handle on a loopback address, as [Serve] does, and returns the address.
func Server(t testing.TB, handle func(net.Conn)) (address string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	Serve(t, l, handle)
	return l.Addr().String()
}

// Echo is for Serve: it sends its bytes back, and its end of file. The ends are wrapped so that package net
// does not splice: its pipes would be descriptors that come and go.
func Echo(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }
