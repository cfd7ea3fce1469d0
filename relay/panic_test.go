package relay_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// Wrapped connections that do other things than fail.

type leaving struct{ *net.TCPConn }

func (leaving) Read([]byte) (int, error) { runtime.Goexit(); return 0, nil }

// TestGoexit: a wrapper that ends its goroutine ends its session, by a reset.
func TestGoexit(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, swap := range []bool{false, true} {
		_, bad := tcp(t)
		far, near := tcp(t)
		var a, b net.Conn = leaving{bad.(*net.TCPConn)}, near
		if swap {
			a, b = b, a
		}
		o := end(t, start(t, r.NewSession(a, b)))
		if o.err == nil || o.result.Reason != relay.ReasonError {
			t.Errorf("%+v, %v", o.result, o.err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other side sees %v", err)
		}
	}
}

type panicsInClose struct{ *net.TCPConn }

func (panicsInClose) Close() error { panic("close") }

type panicsInDeadline struct{ *net.TCPConn }

func (panicsInDeadline) SetDeadline(time.Time) error { panic("deadline") }
func (panicsInDeadline) Read([]byte) (int, error)    { panic("read") }

// lateWriter lets the first write fail as if it had been cut, and panics then.
type lateWriter struct {
	*net.TCPConn
	writes atomic.Int32
	cut    func()
}

func (w *lateWriter) Write([]byte) (int, error) {
	if w.writes.Add(1) == 1 {
		w.cut()
		return 0, os.ErrDeadlineExceeded
	}
	panic("write")
}

// TestPanics: whatever method of a wrapper panics, Run panics in turn, both
// connections are closed, and nobody sees a clean end that was none.
func TestPanics(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		wrap  func(*net.TCPConn) net.Conn
		first string // of the panics
		clean bool
	}{
		"close":    {func(c *net.TCPConn) net.Conn { return panicsInClose{c} }, "close", true},
		"deadline": {func(c *net.TCPConn) net.Conn { return panicsInDeadline{c} }, "read", false},
	} {
		r := newRelay(t, nil)
		farA, a := tcp(t)
		farB, b := tcp(t)
		if c.clean {
			_ = farA.CloseWrite()
			_ = farB.CloseWrite()
		}
		func() {
			defer func() {
				if p := recover(); p != c.first {
					t.Errorf("%s: recovered %v", name, p)
				}
			}()
			_, _ = r.Join(context.Background(), c.wrap(a.(*net.TCPConn)), b)
		}()
		if err := b.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the other connection is left open: %v", name, err)
		}
		if _, err := farB.Read(make([]byte, 1)); !c.clean && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the other side sees %v", name, err)
		}
		a.(*net.TCPConn).Close()
	}
}

// TestPanicWhileSettling: the last attempt at delivering meets a wrapper that
// panics.
func TestPanicWhileSettling(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	farA, a := tcp(t)
	farB, b := tcp(t)
	var s *relay.Session
	s = r.NewSession(a, &lateWriter{TCPConn: b.(*net.TCPConn), cut: func() { s.Cut(errors.New("cut")) }})
	if _, err := farA.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if p := recover(); p != "write" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = s.Run(context.Background())
	}()
	for _, far := range []net.Conn{farA, farB} {
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a peer sees %v", err)
		}
	}
}
