package sockopt_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/sockopt"
)

// within hides what is within, as TLS does.
type within struct {
	net.Conn
	inner net.Conn
}

func (w within) NetConn() net.Conn { return w.inner }

// TestWatch: a peer has gone if it was reset, or has closed a unix socket with nothing left in
// it. A peer that has sent data, or has half-closed, is still there.
func TestWatch(t *testing.T) {
	type half interface {
		net.Conn
		CloseWrite() error
	}
	say := func(c half) error { _, err := c.Write([]byte("x")); return err }
	end := func(c half) error { return c.CloseWrite() }
	closes := func(c half) error { return c.Close() }
	reset := func(c half) error { return errors.Join(c.(*net.TCPConn).SetLinger(0), c.Close()) }
	for name, test := range map[string]struct {
		network string
		do      []func(half) error
		gone    bool
	}{
		"nothing":                     {"tcp", nil, false},
		"data":                        {"tcp", []func(half) error{say, say}, false},
		"an end of file":              {"tcp", []func(half) error{end}, false},
		"closed":                      {"tcp", []func(half) error{closes}, false},
		"reset":                       {"tcp", []func(half) error{reset}, true},
		"reset after data":            {"tcp", []func(half) error{say, reset}, true},
		"reset after an end of file":  {"tcp", []func(half) error{end, reset}, true},
		"unix, data":                  {"unix", []func(half) error{say}, false},
		"unix, an end of file":        {"unix", []func(half) error{end}, false},
		"unix, closed":                {"unix", []func(half) error{closes}, true},
		"unix, closed with data left": {"unix", []func(half) error{say, closes}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var far half
			var near net.Conn
			if test.network == "unix" {
				c, s := sockets.UnixPair(t)
				far, near = c, s
			} else {
				c, s := sockets.TCPPair(t)
				far, near = c, s
			}
			ctx, stop := sockopt.Watch(t.Context(), within{near, near}, time.Unix(1, 0))
			defer stop()
			for _, do := range test.do {
				if err := do(far); err != nil {
					t.Fatal(err)
				}
			}
			if test.gone {
				select {
				case <-ctx.Done():
				case <-time.After(condition.Patience):
					t.Fatal("it is not noticed")
				}
			} else {
				stop()
			}
			if gone := context.Cause(ctx) == sockopt.ErrGone; gone != test.gone || gone != errors.Is(context.Cause(ctx), syscall.ECONNRESET) {
				t.Errorf("%v", context.Cause(ctx))
			}
			stop()
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("afterwards: %v, want the deadline that was asked for", err)
			}
		})
	}
}

// TestWatchEnds: with its context, with the connection, and at once if there is nothing to
// watch.
func TestWatchEnds(t *testing.T) {
	enough := errors.New("enough")
	_, near := sockets.TCPPair(t)
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, stop := sockopt.Watch(parent, near, time.Time{})
	cancel(enough)
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != enough {
		t.Error(cause)
	}
	stop()
	if ctx, stop = sockopt.Watch(t.Context(), near, time.Time{}); ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	near.Close()
	stop()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx, stop = sockopt.Watch(t.Context(), a, time.Time{})
	stop()
	if context.Cause(ctx) == sockopt.ErrGone {
		t.Error("a pipe has gone")
	}
}
