package relay_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/relay"
)

// tlsOverTCP is a TLS connection whose server side is the near end.
func tlsOverTCP(t testing.TB) (halfConn, net.Conn) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	far, near := tcp(t)
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	if err := errors.Join(server.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestJoinTLS: a TLS side is moved by its own Read and Write, both ways, and its
// half-closes are passed on.
func TestJoinTLS(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, tlsOverTCP, tcp)
	g.exchange(content(1, 300_000), content(2, 200_000), 50_000)
	g.checkClean(300_000, 200_000)
}

// TestJoinTLSReset: a TLS side sees the other side's reset as a broken connection,
// not as the orderly end that close_notify is.
func TestJoinTLSReset(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, tcp, tlsOverTCP)
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	abort(t, g.A)
	if n, err := g.B.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("TLS side reads %d, %v; want ECONNRESET", n, err)
	}
	g.wait()
}

// TestJoinWrappedReset: the reset of a wrapped TCP connection, whose error a Write
// may have collected, is not taken for an end of file.
func TestJoinWrappedReset(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for range 50 {
		g := newRig(t, r, wrappedTCP, tcp)
		var wg sync.WaitGroup
		wg.Go(func() {
			for block := content(8, 4096); ; {
				if _, err := g.B.Write(block); err != nil {
					return
				}
			}
		})
		if _, err := io.ReadFull(g.A, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		abort(t, g.A)
		res, _ := g.wait()
		wg.Wait()
		if res.AToB.Reason == relay.ReasonEOF || res.Reason != relay.ReasonReset {
			t.Fatalf("ended by %v, A to B by %v; want a reset", res.Reason, res.AToB.Reason)
		}
	}
}

// valueConn cannot be compared.
type valueConn struct {
	net.Conn
	_ []byte
}

// TestJoinOddConns: values that cannot be compared, and typed nils, do no harm.
func TestJoinOddConns(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, tcp, func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		return far, valueConn{Conn: near}
	})
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	g.cancel(errors.New("over"))
	g.wait()
	_, near := tcp(t)
	if _, err := r.Join(context.Background(), near, (*net.TCPConn)(nil)); err == nil {
		t.Fatal("joined a nil connection")
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("the other connection is not closed: %v", err)
	}
}

// bufferedReader reads beneath through a reader that knows no deadlines.
type bufferedReader struct {
	*net.TCPConn
	r *bufio.Reader
}

func (b *bufferedReader) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return b.r, nil, nil
}
func (b *bufferedReader) RelayWriter() io.Writer { return b.TCPConn }

// TestJoinReaderWithoutDeadlines: canceling works by the wrapper's deadline, and a
// side that misses bytes is still reset.
func TestJoinReaderWithoutDeadlines(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		c := near.(*net.TCPConn)
		return far, &bufferedReader{c, bufio.NewReader(c)}
	}, tcp)
	fillUp(t, g.B)
	g.cancel(errors.New("stop"))
	res, _ := g.wait()
	if _, _, err := receive(g.A); !errors.Is(err, syscall.ECONNRESET) || res.BToA.Lost == 0 {
		t.Fatalf("A sees %v, %d bytes lost; want ECONNRESET", err, res.BToA.Lost)
	}
}

// A watched connection reports calls made after its session has returned.
type watched struct {
	*net.TCPConn
	entered  chan struct{} // closed when SetDeadline is entered for the first time
	gate     chan struct{}
	once     sync.Once
	returned *atomic.Bool
	late     atomic.Int32
	closes   atomic.Int32
}

func (w *watched) note() {
	if w.returned.Load() {
		w.late.Add(1)
	}
}

func (w *watched) SetDeadline(d time.Time) error {
	w.once.Do(func() { close(w.entered); <-w.gate })
	w.note()
	return w.TCPConn.SetDeadline(d)
}

func (w *watched) Close() error {
	w.note()
	w.closes.Add(1)
	return w.TCPConn.Close()
}

// TestJoinLeavesNothingBehind: a cut that comes just as both sides end is over
// when Run returns, each connection is closed once, and an end is an end.
func TestJoinLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	var returned atomic.Bool
	gate := make(chan struct{})
	watch := func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		return far, &watched{TCPConn: near.(*net.TCPConn), entered: make(chan struct{}), gate: gate, returned: &returned}
	}
	A, a := watch(t)
	B, b := watch(t)
	ctx, cancel := context.WithCancel(context.Background())
	type ending struct {
		res relay.Result
		err error
	}
	done := make(chan ending, 1)
	s := r.NewSession(a, b)
	go func() {
		res, err := s.Run(ctx)
		returned.Store(true)
		done <- ending{res, err}
	}()
	if err := ping(A, B, 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-a.(*watched).entered // the cut is at work
	_ = A.CloseWrite()
	_ = B.CloseWrite()
	for deadline := time.Now().Add(patience); s.Result().AToB.Reason == relay.ReasonNone || s.Result().BToA.Reason == relay.ReasonNone; {
		if time.Now().After(deadline) {
			t.Fatalf("not ended: %+v", s.Result())
		}
		time.Sleep(time.Millisecond)
	}
	close(gate)
	e := <-done
	if e.err != nil || e.res.Reason != relay.ReasonEOF {
		t.Errorf("ended by %v, %v, though both sides had ended", e.res.Reason, e.err)
	}
	for _, c := range []*watched{a.(*watched), b.(*watched)} {
		if c.late.Load() != 0 || c.closes.Load() != 1 {
			t.Errorf("%d calls after Run had returned, closed %d times", c.late.Load(), c.closes.Load())
		}
	}
}

type panicking struct{ *net.TCPConn }

func (panicking) Read([]byte) (int, error) { panic("boom") }

// TestJoinPanic: a wrapper that panics, on either side, costs its session only,
// and the panic reaches the caller of Run.
func TestJoinPanic(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, swap := range []bool{false, true} {
		_, bad := tcp(t)
		far, near := tcp(t)
		var a, b net.Conn = panicking{bad.(*net.TCPConn)}, near
		if swap {
			a, b = b, a
		}
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _ = r.Join(context.Background(), a, b)
		}()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other side sees %v", err)
		}
	}
	dst, _ := tcp(t)
	func() {
		defer func() { _ = recover() }()
		_, src := tcp(t)
		_, _ = r.Copy(dst, panicking{src.(*net.TCPConn)})
	}()
}

// TestJoinSameConn: both sides being one connection is senseless, but it can be
// canceled.
func TestJoinSameConn(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
	far, near := tcp(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _, _ = r.Join(ctx, near, near); close(done) }()
	fillUp(t, far)
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("not ended by cancel")
	}
}

// TestJoinRelayClosed: sessions of a driver survive the end of their relay.
func TestJoinRelayClosed(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	pipequota.Share(t)
	r, err := relay.New(&relay.Config{Engine: relay.EngineSplice})
	if err != nil {
		t.Fatal(err)
	}
	g := d.newRig(t, r, tcp, tcp)
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	g.until("the lease to be back", func(relay.Result) bool { return r.Stats().Pipes.Leased == 0 })
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	g.exchange(content(1, 100_000), content(2, 100_000), 10_000)
	res := g.checkClean(100_001, 100_000)
	if f := res.AToB.Fallbacks; f[relay.FallbackClosed] != 1 || f[relay.FallbackBudget] != 0 {
		t.Errorf("fallbacks %v", f)
	}
	if s := r.Stats().Buffers; s.Live != 0 || s.Made != s.Closed {
		t.Errorf("buffers %+v", s)
	}
}
