package relay_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/relay"
)

// tlsOverTCP is a TLS connection whose server side is the near end.
func tlsOverTCP(t testing.TB) (halfConn, net.Conn) {
	client, server := tlsUnshaken(t)
	done := make(chan error, 1)
	go func() { done <- client.(*tls.Conn).Handshake() }()
	must.Do(t, errors.Join(server.(*tls.Conn).Handshake(), <-done))
	return client, server
}

// tlsUnshaken is tlsOverTCP before the handshake, as a listener of package tls accepts it.
func tlsUnshaken(t testing.TB) (halfConn, net.Conn) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der := must.Get(x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key))(t)
	far, near := tcp(t)
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	server := tls.Server(near, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	return client, server
}

// idling is a connection that polls: its Read answers often that nothing has come.
type idling struct {
	net.Conn
	empty int
}

func (c *idling) Read(p []byte) (int, error) {
	if c.empty > 0 {
		c.empty--
		return 0, nil
	}
	return c.Conn.Read(p)
}

// TestReadsOfNothing: any number of Reads of no bytes without an error end neither a session nor a copy.
func TestReadsOfNothing(t *testing.T) {
	t.Parallel()

	const empty = 200
	r := newRelay(t, nil)
	g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		return far, &idling{near, empty}
	}, tcp)
	write(t, g.A, "session")
	must.Do(t, ping(g.B, g.A, 1))
	readFull(t, g.B, make([]byte, len("session")))
	g.cancel(nil)
	g.wait()

	far, near := tcp(t)
	write(t, far, "copy")
	must.Do(t, far.CloseWrite())
	if n, err := r.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{&idling{near, empty}}); n != int64(len("copy")) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// ending is a wrapper that does not show its connection, and passes on an end of file.
type ending struct {
	net.Conn
	end func() error
}

func (e ending) CloseWrite() error { return e.end() }

// TestJoinTLSEndsBeforeHandshake: an end of file for a TLS side that has not shaken hands is passed on after the handshake, and the
// session goes on meanwhile; a limit that ends it does not wait for the handshake.
func TestJoinTLSEndsBeforeHandshake(t *testing.T) {
	t.Parallel()

	for name, network := range map[string]network{
		"tls.Conn": tlsUnshaken,
		"wrapped": func(t testing.TB) (halfConn, net.Conn) {
			far, near := tlsUnshaken(t)
			return far, ending{near, near.(*tls.Conn).CloseWrite}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, endsFirst := range []bool{false, true} {
				r, c := clockedRelay(t, relay.Config{HalfCloseTimeout: time.Hour})
				begin := func() *rig {
					g := newRig(t, r, network, tcp)
					must.Do(t, g.B.CloseWrite())
					g.until("the end of B", func(res relay.Result) bool { return res.First == relay.SideB })
					return g
				}
				g := begin()
				request := content(1, 100_000)
				write(t, g.A, request)
				if endsFirst {
					must.Do(t, g.A.CloseWrite())
					must.Do(t, expect(g.A, nil))
				} else { // the end comes without a byte or an end from A
					must.Do(t, expect(g.A, nil))
					must.Do(t, g.A.CloseWrite())
				}
				must.Do(t, expect(g.B, request))
				g.checkClean(len(request), 0)

				g = begin()
				g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
				c.advance(time.Hour)
				expectTimeout(t, g, relay.ReasonHalfClose)
			}
			g := newRig(t, newRelay(t, &relay.Config{CloseOnEOF: true}), network, tcp)
			must.Do(t, g.B.CloseWrite())
			if res, err := g.wait(); err != nil || res.Reason != relay.ReasonEOF {
				t.Errorf("the first end ends the session: %v, %v", res.Reason, err)
			}
		})
	}
}

// TestJoinTLSReset: a TLS side sees the other side's reset as a broken connection,
// not as the orderly end that close_notify is.
func TestJoinTLSReset(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, tcp, tlsOverTCP)
	must.Do(t, ping(g.A, g.B, 1))
	abort(t, g.A)
	if n, err := g.B.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("TLS side reads %d, %v; want ECONNRESET", n, err)
	}
	g.wait()
}

type failsInWrite struct{ *net.TCPConn }

func (failsInWrite) Write([]byte) (int, error) { return 0, errors.New("no") }

// TestJoinWrappedReset: the reset of a wrapped TCP connection, whose error a Write
// may have collected, is not taken for an end of file.
func TestJoinWrappedReset(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for range 20 {
		g := newRig(t, r, wrappedTCP, tcp)
		var wg sync.WaitGroup
		wg.Go(func() {
			for block := content(8, 4096); ; {
				if _, err := g.B.Write(block); err != nil {
					return
				}
			}
		})
		readFull(t, g.A, make([]byte, 100_000))
		abort(t, g.A)
		res, _ := g.wait()
		wg.Wait()
		if res.AToB.Reason == relay.ReasonEOF || res.Reason != relay.ReasonReset {
			t.Fatalf("ended by %v, A to B by %v; want a reset", res.Reason, res.AToB.Reason)
		}
	}
}

// A deadInWrite fails in Write, by an error of its own, and its Read returns io.EOF then.
type deadInWrite struct {
	net.Conn
	failed chan struct{}
	err    error
}

func (d *deadInWrite) Write([]byte) (int, error) { close(d.failed); return 0, d.err }

func (d *deadInWrite) Read([]byte) (int, error) { <-d.failed; return 0, io.EOF }

// TestWriteErrorIsTheCause: a wrapper that fails in Write may read as ended. Whichever direction notices first, the
// session ends by the Write's error, no side was reset, and the other side gets no clean end.
func TestWriteErrorIsTheCause(t *testing.T) {
	t.Parallel()

	r, mine := newRelay(t, nil), errors.New("mine")
	early := 0
	for range 100 {
		farA, a := tcp(t)
		_, b := tcp(t)
		write(t, farA, "hello")
		must.Do(t, farA.CloseWrite())
		res, err := r.Join(t.Context(), a, &deadInWrite{b, make(chan struct{}), mine})
		if res.Reason != relay.ReasonError || res.Culprit != relay.SideB || !errors.Is(err, mine) || !strings.Contains(err.Error(), "write tcp") || res.BToA.Reason == relay.ReasonReset {
			t.Fatalf("%+v, %v", res, err)
		}
		if res.BToA.Reason == relay.ReasonEOF { // Read has returned before the session knew of the failure
			early++
			continue
		}
		isReset(t, farA)
	}
	if early == 100 {
		t.Error("the end was never read after the failure")
	}
}

// TestOutlivesNoLiveSide: a wrapper whose Write fails ends its session, whether its peer is silent or sends on and on.
func TestOutlivesNoLiveSide(t *testing.T) {
	t.Parallel()

	for _, sends := range []bool{false, true} {
		r := newRelay(t, nil)
		r.SetLinger(10 * time.Millisecond)
		g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
			far, near := tcp(t)
			return far, failsInWrite{near.(*net.TCPConn)}
		}, tcp)
		var wg sync.WaitGroup
		if sends {
			wg.Go(func() { _, _ = io.Copy(io.Discard, g.B) })
			wg.Go(func() {
				for block := content(1, 64<<10); ; {
					if _, err := g.A.Write(block); err != nil {
						return
					}
				}
			})
		}
		write(t, g.B, "x")
		if res, err := g.wait(); err == nil || res.Reason != relay.ReasonError || res.Culprit != relay.SideA {
			t.Errorf("sends %v: %+v, %v", sends, res, err)
		}
		wg.Wait()
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

// An io.EOF of its own Read would count for the cut.
func (w *watched) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return w.TCPConn, nil, nil
}
func (w *watched) RelayWriter() io.Writer { return w.TCPConn }

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
	must.Do(t, ping(A, B, 1), ping(B, A, 2)) // both directions have begun: the cut is not in their way
	cancel()
	<-a.(*watched).entered // the cut is at work
	_ = A.CloseWrite()
	_ = B.CloseWrite()
	condition.Await(t, "both directions have ended", func() bool {
		res := s.Result()
		return res.AToB.Reason != relay.ReasonNone && res.BToA.Reason != relay.ReasonNone
	})
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

// TestJoinRelayClosed: sessions of a driver survive the end of their relay.
func TestJoinRelayClosed(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	pipequota.Share(t)
	r := must.Get(relay.New(&relay.Config{Engine: relay.EngineSplice}))(t)
	g := d.newRig(t, r, tcp, tcp)
	must.Do(t, ping(g.A, g.B, 1))
	g.until("the lease to be back", func(relay.Result) bool { return r.Stats().Pipes.Leased == 0 })
	must.Do(t, r.Close())
	g.exchange(content(1, 100_000), content(2, 100_000), 10_000)
	res := g.checkClean(100_001, 100_000)
	if f := res.AToB.Fallbacks; f[relay.FallbackClosed] != 1 || f[relay.FallbackBudget] != 0 {
		t.Errorf("fallbacks %v", f)
	}
	if s := r.Stats().Buffers; s.Live != 0 || s.Made != s.Closed {
		t.Errorf("buffers %+v", s)
	}
}

// TestFileSeesWrappers: package os splices from what has a SyscallConn of package net. It must not go beneath a meter, or past
// bytes that were read ahead.
func TestFileSeesWrappers(t *testing.T) {
	t.Parallel()

	for name, wrap := range map[string]func(net.Conn, *relay.Meter) net.Conn{
		"metered":  relay.Metered,
		"prefixed": func(c net.Conn, m *relay.Meter) net.Conn { return relay.Metered(relay.Prefixed(c, []byte("head")), m) },
	} {
		far, near := tcp(t)
		m := new(relay.Meter)
		c := wrap(near, m)
		f := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
		defer f.Close()
		_, _ = far.Write([]byte("body"))
		_ = far.CloseWrite()
		n := must.Get(io.Copy(f, struct{ io.Reader }{c}))(t)
		far, near = tcp(t)
		c = wrap(near, m)
		_, _ = far.Write([]byte("body"))
		_ = far.CloseWrite()
		more, err := f.ReadFrom(c)
		got, _ := os.ReadFile(f.Name())
		if read, _ := m.Bytes(); err != nil || n != more || read != n+more || !bytes.Equal(got[n:], got[:n]) || len(got) != int(n+more) {
			t.Errorf("%s: %d and %d bytes, %v; the meter has %d; %q", name, n, more, err, read, got)
		}
	}
}

// between returns a network whose near ends are metered.
func between(n network, m *relay.Meter) network {
	return func(t testing.TB) (halfConn, net.Conn) {
		far, near := n(t)
		return far, relay.Metered(near, m)
	}
}

// check waits until a meter has counted so much: bytes may arrive before they are counted.
func check(t testing.TB, name string, m *relay.Meter, read, written int64) {
	t.Helper()
	condition.Await(t, fmt.Sprintf("%s: %d read, %d written", name, read, written), func() bool {
		r, w := m.Bytes()
		return r == read && w == written
	})
}

// TestMetered: meters count what a session moves beneath their wrappers, while it runs, and do not
// keep it from splicing.
func TestMetered(t *testing.T) {
	t.Parallel()

	const up, down = 1 << 20, 300 << 10
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	for name, n := range networks {
		t.Run(name, func(t *testing.T) {
			var a, b, both relay.Meter
			g := newRig(t, r, between(between(n, &a), &both), between(n, &b))
			pass(t, g.A, g.B, make([]byte, up))
			check(t, "a", &a, up, 0)
			pass(t, g.B, g.A, make([]byte, down))
			check(t, "a", &a, up, down)
			check(t, "both", &both, up, down)
			check(t, "b", &b, down, up)
			_ = g.A.CloseWrite()
			_ = g.B.CloseWrite()
			res, err := g.wait()
			if err != nil || res.AToB.Bytes() != up || res.BToA.Bytes() != down {
				t.Fatalf("%+v, %v", res, err)
			}
			if strings.Contains(name, "tcp") && res.AToB.Fallbacks[relay.FallbackWrapped] != 0 {
				t.Errorf("%+v", res.AToB)
			}
		})
	}
}

// TestMeteredCopies counts those of a copy: spliced, sent from a file, buffered, read ahead, and with a
// limit.
func TestMeteredCopies(t *testing.T) {
	t.Parallel()

	const size = 200 << 10
	content := bytes.Repeat([]byte("meter me"), size/8)
	path := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(path, content, 0o600))
	var in *relay.Meter
	conn := func() net.Conn { // that delivers the content
		far, near := tcp(t)
		go func() {
			_, _ = far.Write(content)
			_ = far.CloseWrite()
		}()
		return near
	}
	for name, x := range map[string]struct {
		source func() io.Reader
		read   int64 // by in
		moved  int64
	}{
		"conn":    {func() io.Reader { return relay.Metered(conn(), in) }, size, size},
		"limited": {func() io.Reader { return io.LimitReader(relay.Metered(conn(), in), 1000) }, 1000, 1000},
		"file": {func() io.Reader {
			f := must.Get(os.Open(path))(t)
			t.Cleanup(func() { f.Close() })
			return relay.Metered(relay.Stream(f), in)
		}, size, size},
		"prefixed inside":  {func() io.Reader { return relay.Metered(relay.Prefixed(conn(), []byte("head")), in) }, size + 4, size + 4},
		"prefixed outside": {func() io.Reader { return relay.Prefixed(relay.Metered(conn(), in), []byte("head")) }, size, size + 4},
		"a buffer above":   {func() io.Reader { return bufio.NewReaderSize(relay.Metered(conn(), in), 64) }, size, size},
		"a plain reader":   {func() io.Reader { return bytes.NewReader(content) }, 0, size},
	} {
		t.Run(name, func(t *testing.T) {
			var out relay.Meter
			in = new(relay.Meter)
			far, near := tcp(t)
			var received sync.WaitGroup
			received.Go(func() {
				if n, err := io.Copy(io.Discard, far); err != nil || n != x.moved {
					t.Errorf("%d bytes arrive, %v", n, err)
				}
			})
			n, err := relay.Copy(relay.Metered(near, &out), x.source())
			near.Close()
			received.Wait()
			if err != nil || n != x.moved {
				t.Errorf("%d bytes, %v", n, err)
			}
			check(t, "source", in, x.read, 0)
			check(t, "destination", &out, 0, x.moved)
		})
	}
}

// TestMeteredReadsAndWrites are those of the wrapper itself.
func TestMeteredReadsAndWrites(t *testing.T) {
	t.Parallel()

	var m relay.Meter
	far, near := tcp(t)
	c := relay.Metered(near, &m)
	write(t, c, []byte("hello"))
	write(t, far, []byte("hi"))
	readFull(t, c, make([]byte, 2))
	check(t, "wrapper", &m, 2, 5)
	if relay.Metered(nil, &m) != nil {
		t.Error("nothing is wrapped")
	}
	if relay.Metered(near, nil) != near {
		t.Error("a connection is wrapped that nobody counts")
	}
}

// readAhead are ways to hold bytes that were read from a connection before.
var readAhead = map[string]func(conn net.Conn, head []byte) net.Conn{
	"prefixed": relay.Prefixed,
	"buffered": func(conn net.Conn, head []byte) net.Conn {
		br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(head), conn), 8<<10)
		_, _ = br.Peek(len(head)) // as a server has that has looked at the beginning
		return relay.Buffered(conn, br)
	},
	"both": func(conn net.Conn, head []byte) net.Conn {
		n := len(head) / 2
		return relay.Prefixed(relay.Prefixed(conn, head[n:]), head[:n])
	},
	"prefixed, copying": func(conn net.Conn, head []byte) net.Conn {
		return relay.Prefixed(struct{ net.Conn }{conn}, head)
	},
}

// TestCopyNReadAhead: copies of any lengths, one after the other, and reads between them, get each byte
// once, whether it was read ahead or not.
func TestCopyNReadAhead(t *testing.T) {
	t.Parallel()

	const text = "0123456789abcdef"
	for name, wrap := range readAhead {
		for _, lengths := range [][]int64{{4, 6, 6}, {8, 8}, {1, 7, 1, 7}, {16}, {9, 7}, {0, 4, 0, 12}} {
			r := newRelay(t, nil)
			in, near := tcp(t)
			dst, out := tcp(t)
			src := wrap(near, []byte(text[:8]))
			_, _ = in.Write([]byte(text[8:]))
			var want int64
			for i, n := range lengths {
				var moved int64
				var err error
				if i%2 == 0 {
					moved, err = r.CopyN(dst, src, n)
				} else { // by the wrapper's own Read
					moved, err = io.CopyN(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, n)
				}
				if moved != n || err != nil {
					t.Fatalf("%s, %v: copy %d of %d bytes: %d, %v", name, lengths, i, n, moved, err)
				}
				want += n
			}
			_ = dst.(*net.TCPConn).CloseWrite()
			if got, _ := io.ReadAll(out); string(got) != text[:want] {
				t.Errorf("%s, %v: got %q", name, lengths, got)
			}
		}
	}
}

// TestJoinReadAhead: the head arrives first, and what follows is moved beneath the wrapper.
func TestJoinReadAhead(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"prefixed", "buffered", "both"} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
		in, near := tcp(t)
		far, out := tcp(t)
		head := strings.Repeat("head", 1000)
		src := readAhead[name](near, []byte(head))
		done := make(chan relay.Result, 1)
		go func() {
			res, err := r.Join(context.Background(), src, far)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		tail := filler()
		go func() { _, _ = in.Write(tail); _ = in.(*net.TCPConn).CloseWrite() }()
		got, err := io.ReadAll(out)
		if err != nil || string(got) != head+string(tail) {
			t.Fatalf("%s: %d bytes, %v, want %d", name, len(got), err, len(head)+len(tail))
		}
		_ = out.(*net.TCPConn).CloseWrite()
		if res := <-done; res.AToB.Spliced != int64(len(tail)) || res.AToB.Copied != int64(len(head)) || res.AToB.Fallbacks[relay.FallbackWrapped] != 0 {
			t.Errorf("%s: %+v", name, res.AToB)
		}
	}
}

// closed is a wrapper that lets relay go beneath it, and notes that it was closed.
type closed struct {
	transparent
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return c.TCPConn.Close()
}

// TestJoinClosesWrapper: relay goes beneath a wrapper, and closes the wrapper.
func TestJoinClosesWrapper(t *testing.T) {
	t.Parallel()

	_, near := tcp(t)
	far, other := tcp(t)
	w := &closed{transparent: transparent{near.(*net.TCPConn)}}
	must.Do(t, far.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newRelay(t, nil).Join(ctx, w, other); err == nil || !w.closed {
		t.Errorf("%v, closed %v", err, w.closed)
	}
}

// TestCopyBufio: a copy from a bufio.Reader over a connection or a file is spliced after its buffered
// bytes.
func TestCopyBufio(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	tail := filler()
	sources := map[string]func() io.Reader{
		"tcp": func() io.Reader {
			in, near := tcp(t)
			go func() { _, _ = in.Write(tail); _ = in.(*net.TCPConn).CloseWrite() }()
			return near
		},
		"unix": func() io.Reader {
			in, near := unixStream(t)
			go func() { _, _ = in.Write(tail); _ = in.(*net.UnixConn).CloseWrite() }()
			return near
		},
		"file": func() io.Reader {
			f := tempFile(t, os.O_RDWR|os.O_CREATE)
			must.Get(f.WriteAt(tail, 0))(t)
			return f
		},
		"plain": func() io.Reader { return bytes.NewReader(tail) },
	}
	for name, source := range sources {
		dst, out := tcp(t)
		src := bufio.NewReaderSize(source(), 4<<10)
		must.Get(src.Peek(1))(t)
		ahead := int64(src.Buffered())
		got := collect(out)
		f, err := r.Move(dst, src)
		_ = dst.(*net.TCPConn).CloseWrite()
		if b := <-got; err != nil || !bytes.Equal(b, tail) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		want := int64(len(tail)) - ahead
		if name == "plain" {
			want = 0
		}
		if f.Spliced != want || f.Bytes() != int64(len(tail)) || f.Reason != relay.ReasonEOF {
			t.Errorf("%s: %+v, want %d spliced", name, f, want)
		}
	}
}

// greedy hands out more than it is asked for.
type greedy struct{ net.Conn }

func (greedy) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return nil, []byte("too much"), nil
}
func (greedy) RelayWriter() io.Writer { return nil }

// TestReadAheadTooMuch: a wrapper that breaks its contract ends the copy before a byte is moved.
func TestReadAheadTooMuch(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	_, near := tcp(t)
	var b bytes.Buffer
	if n, err := r.CopyN(&b, greedy{near}, 4); n != 0 || err != relay.ErrReadAhead || b.Len() != 0 {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

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
	must.Do(t, ping(farB, farA, 1))
	write(t, farA, []byte("HEADbody"))
	_ = farA.CloseWrite()
	must.Do(t, expect(farB, []byte("body")))
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

// Wrapped connections that do other things than fail.

type leaving struct{ *net.TCPConn }

func (leaving) Read([]byte) (int, error) { runtime.Goexit(); return 0, nil }

type leavesInWrite struct{ *net.TCPConn }

func (leavesInWrite) Write([]byte) (int, error) { runtime.Goexit(); return 0, nil }

type leavesInClose struct{ *net.TCPConn }

func (leavesInClose) Close() error { runtime.Goexit(); return nil }

// TestGoexit: a wrapper that ends its goroutine ends its session, by a reset.
func TestGoexit(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for name, c := range map[string]struct {
		wrap   func(*net.TCPConn) net.Conn
		reason relay.Reason
		seen   error
	}{
		"Read":  {func(c *net.TCPConn) net.Conn { return leaving{c} }, relay.ReasonError, syscall.ECONNRESET},
		"Write": {func(c *net.TCPConn) net.Conn { return leavesInWrite{c} }, relay.ReasonError, syscall.ECONNRESET},
		"Close": {func(c *net.TCPConn) net.Conn { return leavesInClose{c} }, relay.ReasonEOF, io.EOF},
	} {
		for _, swap := range []bool{false, true} {
			farBad, bad := tcp(t)
			far, near := tcp(t)
			a, b := c.wrap(bad.(*net.TCPConn)), near
			if swap {
				a, b = b, a
			}
			if name == "Close" {
				must.Do(t, farBad.CloseWrite())
				must.Do(t, far.CloseWrite())
			} else { // before the session: it may be reset as soon as it begins
				write(t, far, "x")
			}
			ends := start(t, r.NewSession(a, b))
			o := end(t, ends)
			if (o.err == nil) != (c.reason == relay.ReasonEOF) || o.result.Reason != c.reason || o.result.AToB.Reason == relay.ReasonNone || o.result.BToA.Reason == relay.ReasonNone {
				t.Errorf("%s: %+v, %v", name, o.result, o.err)
			}
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, c.seen) {
				t.Errorf("%s: the other side sees %v", name, err)
			}
			bad.Close()
		}
	}
	must.Do(t, r.Shutdown(t.Context()))
}

type panicsInClose struct{ *net.TCPConn }

func (panicsInClose) Close() error { panic("close") }

type panicsInDeadline struct{ *net.TCPConn }

func (panicsInDeadline) SetDeadline(time.Time) error { panic("deadline") }
func (panicsInDeadline) Read([]byte) (int, error)    { panic("read") }

type panicsInNetConn struct{ *net.TCPConn }

func (panicsInNetConn) NetConn() net.Conn { panic("boom") }

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

// TestPanics: whatever method of a wrapper panics, at either side, Run panics in turn, both connections are closed, and nobody sees a clean
// end that was none.
func TestPanics(t *testing.T) {
	t.Parallel()

	ended := 0
	r := newRelay(t, &relay.Config{Hooks: relay.Hooks{Ended: func(*relay.Session, relay.Result, error) { ended++ }}})
	for name, c := range map[string]struct {
		wrap  func(*net.TCPConn) net.Conn
		first string // of the panics
		clean bool
	}{
		"NetConn":     {func(c *net.TCPConn) net.Conn { return panicsInNetConn{c} }, "boom", false},
		"Read":        {func(c *net.TCPConn) net.Conn { return panicking{c} }, "boom", false},
		"RelayReader": {func(c *net.TCPConn) net.Conn { return bomb{c} }, "boom", false},
		"Close":       {func(c *net.TCPConn) net.Conn { return panicsInClose{c} }, "close", true},
		"SetDeadline": {func(c *net.TCPConn) net.Conn { return panicsInDeadline{c} }, "read", false},
	} {
		for _, swap := range []bool{false, true} {
			farA, a := tcp(t)
			farB, b := tcp(t)
			if c.clean {
				_, _ = farA.CloseWrite(), farB.CloseWrite()
			}
			x, y := c.wrap(a.(*net.TCPConn)), b
			if swap {
				x, y = y, x
			}
			s := r.NewSession(x, y)
			func() {
				defer func() {
					if p := recover(); p != c.first {
						t.Errorf("%s: recovered %v", name, p)
					}
				}()
				_, _ = s.Run(context.Background())
			}()
			want := relay.ReasonError
			if c.clean {
				want = relay.ReasonEOF
			}
			if res := s.Result(); res.Reason != want || res.AToB.Reason != want || res.BToA.Reason != want {
				t.Errorf("%s: %+v", name, res)
			}
			if err := a.SetDeadline(time.Time{}); !c.clean && !errors.Is(err, net.ErrClosed) || ended != 1 {
				t.Errorf("%s: the wrapped connection is left open: %v; Ended was called %d times", name, err, ended)
			}
			ended = 0
			if err := b.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: the other connection is left open: %v", name, err)
			}
			if _, err := farB.Read(make([]byte, 1)); !c.clean && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: the other side sees %v", name, err)
			}
			a.Close()
		}
	}
	dst, _ := tcp(t)
	func() { // a copy keeps no lease either
		defer func() { _ = recover() }()
		_, src := tcp(t)
		_, _ = r.Copy(dst, panicking{src.(*net.TCPConn)})
	}()
}

type panicsInReadDeadline struct{ *net.TCPConn }

func (panicsInReadDeadline) SetReadDeadline(time.Time) error { panic("boom") }

type panicsInWriteDeadline struct{ *net.TCPConn }

func (panicsInWriteDeadline) SetWriteDeadline(time.Time) error { panic("boom") }

// TestPanicAfterAReset: when one side has failed, the session ends although a method panics that stops waiting for the other side's
// bytes, or for room at the failed side. The clock stands still, so no time limit ends it.
func TestPanicAfterAReset(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	clock := &fakeClock{t: time.Hour}
	r.SetClock(clock.now, clock.afterFunc)
	for name, failed := range map[string]bool{"SetReadDeadline": false, "SetWriteDeadline": true} {
		far, near := tcp(t)
		other, alive := tcp(t)
		x, y := net.Conn(near), net.Conn(panicsInReadDeadline{alive.(*net.TCPConn)})
		if failed {
			x, y = panicsInWriteDeadline{near.(*net.TCPConn)}, alive
		}
		s := r.NewSession(x, y)
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			_, _ = s.Run(context.Background())
		}()
		must.Do(t, errors.Join(far.(*net.TCPConn).SetLinger(0), far.Close()))
		if p := condition.Receive(t, "the end of a session", ended); p != "boom" {
			t.Errorf("%s: recovered %v", name, p)
		}
		if _, err := other.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the other side sees %v", name, err)
		}
	}
}

// TestPanicsInHooks: a hook that panics, or ends the goroutine, ends the session, and both connections are closed.
func TestPanicsInHooks(t *testing.T) {
	t.Parallel()

	for name, h := range map[string]relay.Hooks{
		"started": {Started: func(*relay.Session) { panic("boom") }},
		"left":    {Started: func(*relay.Session) { runtime.Goexit() }},
		"changed": {EngineChanged: func(*relay.Session, relay.Side, relay.Engine) { panic("boom") }},
		"ended":   {Ended: func(*relay.Session, relay.Result, error) { panic("boom") }},
	} {
		for _, started := range []bool{false, true} {
			if started && (name == "changed" || name == "ended") {
				continue // on a goroutine of the session, which ends the program
			}
			r := newRelay(t, &relay.Config{Hooks: h})
			r.SetThresholds(1)
			farA, a := tcp(t)
			farB, b := tcp(t)
			write(t, farA, "hello")
			must.Do(t, farA.CloseWrite())
			must.Do(t, farB.CloseWrite())
			s, ends, caught := r.NewSession(a, b), make(chan outcome, 2), make(chan any, 1)
			go func() {
				defer func() { caught <- recover() }()
				if started {
					_ = s.Start(func(res relay.Result, err error) { ends <- outcome{res, err} })
				} else {
					_, _ = s.Run(context.Background())
				}
			}()
			if p := <-caught; (p == nil) != (name == "left") {
				t.Errorf("%s: recovered %v", name, p)
			}
			want := relay.ReasonError
			if name == "ended" {
				want = relay.ReasonEOF
			}
			if res := s.Result(); res.Reason != want {
				t.Errorf("%s: %+v", name, res)
			}
			if started {
				if o := end(t, ends); o.err == nil || o.result.Reason != want {
					t.Errorf("%s: told of %+v, %v", name, o.result, o.err)
				}
			}
			for _, near := range []net.Conn{a, b} {
				if err := near.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("%s: a connection is left open: %v", name, err)
				}
			}
			must.Do(t, r.Shutdown(t.Context()))
		}
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
	write(t, farA, []byte("hello"))
	func() {
		defer func() {
			if p := recover(); p != "write" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = s.Run(context.Background())
	}()
	if res := s.Result(); res.Reason != relay.ReasonCanceled || res.AToB.Reason == relay.ReasonNone || res.BToA.Reason == relay.ReasonNone {
		t.Errorf("%+v", res)
	}
	for _, far := range []net.Conn{farA, farB} {
		must.Fail(far.Read(make([]byte, 1)))(t, syscall.ECONNRESET)
	}
}

// A sizedReader returns reads of the given sizes, and notes the sizes of the buffers.
type sizedReader struct {
	reads, buffers []int
}

func (s *sizedReader) Read(p []byte) (int, error) {
	s.buffers = append(s.buffers, len(p))
	if len(s.reads) == 0 {
		return 0, io.EOF
	}
	n := min(s.reads[0], len(p))
	if s.reads[0] -= n; s.reads[0] == 0 {
		s.reads = s.reads[1:]
	}
	return n, nil
}

// TestWrappedBuffers is the sizes of the buffers in which a wrapper's Read waits.
func TestWrappedBuffers(t *testing.T) {
	t.Parallel()

	for _, x := range []struct{ reads, buffers []int }{
		{[]int{100, 1000, 5000, 100}, []int{8 << 10, 1 << 10, 1 << 10, 64 << 10, 8 << 10, 1 << 10}},
		{[]int{8 << 10, 64 << 10, 9 << 10, 64 << 10}, []int{8 << 10, 64 << 10, 64 << 10, 64 << 10, 64 << 10}},
	} {
		r := newRelay(t, nil)
		src, dst, want := &sizedReader{reads: slices.Clone(x.reads)}, new(bytes.Buffer), 0
		for _, n := range x.reads {
			want += n
		}
		n, err := r.Copy(streamOf(dst), streamOf(src))
		if err != nil || n != int64(want) || dst.Len() != want || !slices.Equal(src.buffers, x.buffers) {
			t.Errorf("%v: %d bytes, %v, buffers %v, want %v", x.reads, n, err, src.buffers, x.buffers)
		}
		if live := r.Stats().Buffers.Live; live != 0 {
			t.Errorf("%d buffers are still leased", live)
		}
	}
}

// streamOf returns a reader or a writer, which may be nothing else, as a stream.
func streamOf(end any) io.ReadWriteCloser {
	r, _ := end.(io.Reader)
	w, _ := end.(io.Writer)
	return relay.Stream(struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, w, nil})
}

// TestCopyBufioOverWriterTo: a bufio.Reader reads a connection with a WriteTo of its own. That sees its
// bytes moved before it goes on.
func TestCopyBufioOverWriterTo(t *testing.T) {
	t.Parallel()

	in, near := tcp(t)
	text := filler()
	go func() { _, _ = in.Write(text); _ = in.(*net.TCPConn).CloseWrite() }()
	dst, out := tcp(t)
	got := collect(out)
	over := &trailed{TCPConn: near.(*net.TCPConn)}
	n, err := newRelay(t, nil).Copy(dst, bufio.NewReader(over))
	_ = dst.(*net.TCPConn).CloseWrite()
	want := append(slices.Clone(text), "the end"...)
	if b := <-got; err != nil || n != int64(len(want)) || over.n != int64(len(text)) || !bytes.Equal(b, want) {
		t.Errorf("%d bytes, %v; %d by WriteTo; %d arrived, want %d", n, err, over.n, len(b), len(want))
	}
}

// trailed is a connection whose own WriteTo adds something to the end.
type trailed struct {
	*net.TCPConn
	n int64
}

func (c *trailed) WriteTo(w io.Writer) (int64, error) {
	n, err := io.Copy(w, c.TCPConn)
	c.n = n
	m, werr := io.WriteString(w, "the end")
	return n + int64(m), cmp.Or(err, werr)
}

// A hollow is a wrapper that has nothing beneath it, of a type.
type hollow struct {
	net.Conn
	none net.Conn
}

func (c *hollow) NetConn() net.Conn { return c.none }

// A hollowUnwrapper says the same to a relay.
type hollowUnwrapper struct{ hollow }

func (c *hollowUnwrapper) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.none, nil, nil
}
func (c *hollowUnwrapper) RelayWriter() io.Writer { return c.none }

// TestNothingBeneath: a nil pointer beneath a wrapper is nothing, so the wrapper's own methods move the bytes.
func TestNothingBeneath(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	for _, none := range []net.Conn{nil, (*net.TCPConn)(nil), (*tls.Conn)(nil), (*hollow)(nil)} {
		for name, wrap := range map[string]func(net.Conn) net.Conn{
			"NetConn":                 func(c net.Conn) net.Conn { return &hollow{c, none} },
			"Unwrapper":               func(c net.Conn) net.Conn { return &hollowUnwrapper{hollow{c, none}} },
			"NetConn in a meter":      func(c net.Conn) net.Conn { return relay.Metered(&hollow{c, none}, new(relay.Meter)) },
			"an Unwrapper in a meter": func(c net.Conn) net.Conn { return relay.Metered(&hollowUnwrapper{hollow{c, none}}, new(relay.Meter)) },
		} {
			farA, a := tcp(t)
			farB, b := tcp(t)
			ends := start(t, r.NewSession(wrap(a), b))
			must.Do(t, ping(farA, farB, 1))
			must.Do(t, ping(farB, farA, 1))
			abort(t, farB)
			if o := end(t, ends); o.result.Reason != relay.ReasonReset {
				t.Errorf("%s, %T: %+v, %v", name, none, o.result, o.err)
			}
			far, near := tcp(t)
			write(t, far, "text")
			must.Do(t, far.CloseWrite())
			if n, err := r.Copy(wrap(near), wrap(near)); n != 4 || err != nil {
				t.Errorf("%s, %T: Copy: %d, %v", name, none, n, err)
			}
		}
	}
}
