package rival_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/bench/rival"
)

func TestServeEndsEveryConnectionWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		<-handling
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := serving.Load(); left != 0 {
		t.Errorf("%d handlers outlive Serve", left)
	}
}

func TestServeClosesWhatAHandlerLeaves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- rival.Accept(ctx, l, func(context.Context, *net.TCPConn) {}) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeReturnsAnErrorOfItsListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := rival.Accept(t.Context(), l, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
