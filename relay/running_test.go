package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/relay"
)

// TestShutdown: sessions that run end as they would, others are refused, and their connections closed.
func TestShutdown(t *testing.T) {
	t.Parallel()

	r, err := relay.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	farA, a := tcp(t)
	farB, b := tcp(t)
	ends := start(t, r.NewSession(a, b))
	if err := ping(farA, farB, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	over := make(chan error, 1)
	go func() { over <- r.Shutdown(ctx) }()
	for refused := false; !refused; {
		_, d := joinEnded(t, r, func(err error) { refused = errors.Is(err, relay.ErrClosed) })
		if _, err := d.Read(make([]byte, 1)); refused && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	enough := errors.New("enough")
	cancel(enough)
	if err := <-over; err != enough {
		t.Error(err)
	}
	if err := ping(farB, farA, 1); err != nil {
		t.Error(err)
	}
	go func() { over <- r.Shutdown(context.Background()) }()
	_ = farA.CloseWrite()
	_ = farB.CloseWrite()
	if o := end(t, ends); o.err != nil {
		t.Error(o.err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestCopyOnClosed: a copy that begins on a closed relay moves everything, and says that it was not spliced.
func TestCopyOnClosed(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_ = r.Close()
	far, src := tcp(t)
	dst, to := tcp(t)
	const size = 4 << 20
	go func() {
		_, _ = far.Write(make([]byte, size))
		_ = far.CloseWrite()
	}()
	go func() { _, _ = io.Copy(io.Discard, dst) }()
	f, err := r.Move(to, src)
	if err != nil || f.Copied != size || f.Spliced != 0 || f.Fallbacks[relay.FallbackClosed] == 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

// joinEnded joins two connections whose far ends are closed, and returns them.
func joinEnded(t *testing.T, r *relay.Relay, ended func(error)) (c, d net.Conn) {
	t.Helper()
	farC, c := tcp(t)
	farD, d := tcp(t)
	farC.Close()
	farD.Close()
	_, err := r.Join(context.Background(), c, d)
	ended(err)
	return c, d
}

// TestCloseEnds: sessions of a relay that is closed are ended.
func TestCloseEnds(t *testing.T) {
	t.Parallel()

	r, err := relay.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	farA, a := tcp(t)
	_, b := tcp(t)
	ends := start(t, r.NewSession(a, b))
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if o := end(t, ends); !errors.Is(o.err, relay.ErrClosed) || o.result.Reason != relay.ReasonCanceled {
		t.Errorf("%+v, %v", o.result, o.err)
	}
	if _, err := farA.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("%v, want a reset", err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
