package rival_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/bench/rival"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

// listen listens on a free port until the test ends.
func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// form is Serve or ServeCopying.
type form func(ctx context.Context, l net.Listener, upstream string) error

// forms runs a test with both forms.
func forms(t *testing.T, test func(t *testing.T, serve form)) {
	t.Run("splicing", func(t *testing.T) { test(t, rival.Serve) })
	t.Run("copying", func(t *testing.T) { test(t, rival.ServeCopying) })
	t.Run("relay", func(t *testing.T) { test(t, rival.ServeRelay) })
}

// joined returns the two far ends of a connection through a rival.
func joined(t *testing.T, serve form) (client, endpoint *net.TCPConn) {
	t.Helper()
	behind := listen(t)
	front := serving(t, serve, behind.Addr().String())
	c := must.Get(net.Dial("tcp", front))(t)
	t.Cleanup(func() { _ = c.Close() })
	endpoint = must.Get(behind.AcceptTCP())(t)
	t.Cleanup(func() { _ = endpoint.Close() })
	return c.(*net.TCPConn), endpoint
}

// serving runs a rival in front of upstream until the test ends.
func serving(t *testing.T, serve form, upstream string) string {
	t.Helper()
	l := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, upstream) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// say sends a message and its end of file. The other side must read both.
func say(t *testing.T, from, to *net.TCPConn, message string) {
	t.Helper()
	must.Get(io.WriteString(from, message))(t)
	must.Do(t, from.CloseWrite())
	if got, err := io.ReadAll(to); err != nil || string(got) != message {
		t.Errorf("got %q, %v, want %q", got, err, message)
	}
}

func TestHalfClosesArePassedOnInEitherOrder(t *testing.T) {
	forms(t, func(t *testing.T, serve form) {
		t.Run("the client first", func(t *testing.T) {
			client, endpoint := joined(t, serve)
			say(t, client, endpoint, "ping")
			say(t, endpoint, client, "pong")
		})
		t.Run("the endpoint first", func(t *testing.T) {
			client, endpoint := joined(t, serve)
			say(t, endpoint, client, "pong")
			say(t, client, endpoint, "ping")
		})
	})
}

func TestABrokenConnectionBreaksItsTwin(t *testing.T) {
	forms(t, func(t *testing.T, serve form) {
		client, endpoint := joined(t, serve)
		must.Do(t, client.SetLinger(0))
		_ = client.Close() // a reset
		if _, err := io.ReadAll(endpoint); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	})
}

func TestServeEndsEveryConnectionWithItsContext(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	const n = 5
	var serving atomic.Int32
	handling := make(chan struct{}, n)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- rival.Accept(ctx, l, func(_ context.Context, c *net.TCPConn) {
			serving.Add(1)
			defer serving.Add(-1)
			handling <- struct{}{}
			_, _ = io.Copy(io.Discard, c) // until another goroutine closes the connection
		})
	}()
	for range n {
		c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		defer c.Close()
		<-handling
	}
	cancel()
	must.Do(t, <-done)
	if left := serving.Load(); left != 0 {
		t.Errorf("%d handlers outlive Serve", left)
	}
}
