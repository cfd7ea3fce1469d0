package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// A headed connection has a header of four bytes, which its RelayReader waits for.
type headed struct {
	net.Conn
	ctxOnly bool // it is ended by the context alone
	asked   chan struct{}
	head    [4]byte
	err     error // in place of a wait
}

func newHeaded(c net.Conn) *headed { return &headed{Conn: c, asked: make(chan struct{})} }

func (h *headed) RelayReader(ctx context.Context, _ int) (io.Reader, []byte, error) {
	close(h.asked)
	if h.err != nil {
		return nil, []byte("read before"), h.err
	}
	if h.ctxOnly {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	if _, err := io.ReadFull(h.Conn, h.head[:]); err != nil {
		return nil, nil, err
	}
	return h.Conn, nil, nil
}

func (h *headed) RelayWriter() io.Writer { return h.Conn }

// TestRelayReaderWaits: a session whose wrapper waits has begun. What ends others ends it, and Start does not wait.
func TestRelayReaderWaits(t *testing.T) {
	t.Parallel()

	errCut := errors.New("cut")
	for name, c := range map[string]struct {
		cfg    relay.Config
		end    func(s *relay.Session, cancel context.CancelCauseFunc, clock *fakeClock)
		reason relay.Reason
		err    error
	}{
		"Cut":      {relay.Config{}, func(s *relay.Session, _ context.CancelCauseFunc, _ *fakeClock) { s.Cut(errCut) }, relay.ReasonCanceled, errCut},
		"context":  {relay.Config{}, func(_ *relay.Session, cancel context.CancelCauseFunc, _ *fakeClock) { cancel(errCut) }, relay.ReasonCanceled, errCut},
		"idle":     {relay.Config{IdleTimeout: time.Minute}, func(_ *relay.Session, _ context.CancelCauseFunc, c *fakeClock) { c.advance(time.Minute) }, relay.ReasonIdle, nil},
		"lifetime": {relay.Config{MaxLifetime: time.Minute}, func(_ *relay.Session, _ context.CancelCauseFunc, c *fakeClock) { c.advance(time.Minute) }, relay.ReasonLifetime, nil},
	} {
		for _, ctxOnly := range []bool{false, true} {
			for _, side := range []string{"a", "b"} {
				r, clock := clockedRelay(t, c.cfg)
				_, a := tcp(t)
				_, b := tcp(t)
				h := newHeaded(a)
				if side == "b" {
					h = newHeaded(b)
					b = h
				} else {
					a = h
				}
				h.ctxOnly = ctxOnly
				s := r.NewSession(a, b)
				ctx, cancel := context.WithCancelCause(context.Background())
				ended := make(chan outcome, 1)
				go func() {
					res, err := s.Run(ctx)
					ended <- outcome{res, err}
				}()
				<-h.asked
				c.end(s, cancel, clock)
				o := end(t, ended)
				if o.result.Reason != c.reason || c.err != nil && !errors.Is(o.err, c.err) || o.err == nil {
					t.Errorf("%s, %v, %s: %+v, %v", name, ctxOnly, side, o.result, o.err)
				}
				cancel(nil)
			}
		}
	}
}

// TestRelayReaderWaitsForOne: the other direction goes on, and so does an accept loop.
func TestRelayReaderWaitsForOne(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	farA, a := tcp(t)
	farB, b := tcp(t)
	s := r.NewSession(newHeaded(a), b)
	ends := start(t, s) // returns
	if err := ping(farB, farA, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := farA.Write([]byte("HEADbody")); err != nil {
		t.Fatal(err)
	}
	_ = farA.CloseWrite()
	if err := expect(farB, []byte("body")); err != nil {
		t.Error(err)
	}
	_ = farB.CloseWrite()
	if o := end(t, ends); o.err != nil || o.result.AToB.Bytes() != 4 {
		t.Errorf("%+v, %v", o.result, o.err)
	}
}

// TestRelayReaderFails: its error is a Read's, after the bytes that were read before. The end of file is no error.
func TestRelayReaderFails(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	errHead := errors.New("no header")
	for _, want := range []error{errHead, io.EOF} {
		farA, a := tcp(t)
		farB, b := tcp(t)
		h := newHeaded(a)
		h.err = want
		ends := start(t, r.NewSession(h, b))
		got := make([]byte, 11)
		if _, err := io.ReadFull(farB, got); err != nil || string(got) != "read before" {
			t.Errorf("%q, %v", got, err)
		}
		if want == io.EOF {
			_ = farB.CloseWrite()
			if o := end(t, ends); o.err != nil {
				t.Error(o.err)
			}
			continue
		}
		if o := end(t, ends); !errors.Is(o.err, errHead) || o.result.Reason != relay.ReasonError || o.result.Culprit != relay.SideA {
			t.Errorf("%+v, %v", o.result, o.err)
		}
		_ = farA.Close()
		_, c := tcp(t)
		h = newHeaded(c)
		h.err = want
		dst, _ := tcp(t)
		if n, err := r.Copy(dst, h); err != errHead || n != int64(len(got)) {
			t.Error(n, err)
		}
	}
}

// TestCopyContextUnwraps: a wrapper that waits is ended by the context of a copy.
func TestCopyContextUnwraps(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, ctxOnly := range []bool{false, true} {
		_, a := tcp(t)
		far, _ := tcp(t)
		h := newHeaded(a)
		h.ctxOnly = ctxOnly
		errStop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := r.CopyContext(ctx, far, h)
			done <- err
		}()
		<-h.asked
		cancel(errStop)
		if err := <-done; !errors.Is(err, errStop) {
			t.Errorf("%v: %v", ctxOnly, err)
		}
	}
}

// bomb is a wrapper that panics when it is asked.
type bomb struct{ net.Conn }

func (bomb) RelayReader(context.Context, int) (io.Reader, []byte, error) { panic("boom") }
func (b bomb) RelayWriter() io.Writer                                    { return b.Conn }

// TestRelayReaderPanics: the session ends, and the panic goes on in Run's caller.
func TestRelayReaderPanics(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	farA, a := tcp(t)
	_, b := tcp(t)
	var panicked atomic.Value
	func() {
		defer func() { panicked.Store(recover()) }()
		_, _ = r.Join(context.Background(), bomb{a}, b)
	}()
	if panicked.Load() != "boom" {
		t.Errorf("recovered %v", panicked.Load())
	}
	if _, err := farA.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}
