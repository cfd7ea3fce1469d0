package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

var engines = []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy}

// counting is a wrapper that wants to see every byte.
type counting struct {
	*net.TCPConn
	mu            sync.Mutex
	seen, written int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.mu.Lock()
	c.written += int64(n)
	c.mu.Unlock()
	return n, err
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.mu.Lock()
	c.seen += int64(n)
	c.mu.Unlock()
	return n, err
}

func wrappedTCP(t testing.TB) (halfConn, net.Conn) {
	far, near := tcp(t)
	return far, &counting{TCPConn: near.(*net.TCPConn)}
}

// transparent is a wrapper that lets relay go beneath it.
type transparent struct{ *net.TCPConn }

func (c *transparent) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.TCPConn, nil, nil
}
func (c *transparent) RelayWriter() io.Writer    { return c.TCPConn }
func (c *transparent) Read([]byte) (int, error)  { panic("read through the wrapper") }
func (c *transparent) Write([]byte) (int, error) { panic("written through the wrapper") }

func transparentTCP(t testing.TB) (halfConn, net.Conn) {
	far, near := tcp(t)
	return far, &transparent{TCPConn: near.(*net.TCPConn)}
}

var networks = map[string]network{
	"tcp":         tcp,
	"unix":        unixStream,
	"wrapped":     wrappedTCP,
	"transparent": transparentTCP,
}

// TestJoinMetamorphic: the same bytes and shutdowns give the same streams, ends
// and counts, whatever the engine and the kind of connection.
func TestJoinMetamorphic(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		sizes := []int{0, 1, 100, 16<<10 - 1, 64<<10 + 1, 1<<20 + 7, 5<<20 + 3}
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			for an, a := range d.networks() {
				for bn, b := range d.networks() {
					t.Run(fmt.Sprintf("%v/%s-%s", e, an, bn), func(t *testing.T) {
						for i, n := range sizes {
							m := sizes[len(sizes)-1-i]
							g := d.newRig(t, r, a, b)
							g.exchange(content(1, n), content(2, m), 10_000)
							res := g.checkClean(n, m)
							checkEngine(t, e, an != "wrapped" && bn != "wrapped", res)
						}
					})
				}
			}
		}
	})
}

// checkEngine checks that the bytes went the way that the engine promises.
func checkEngine(t *testing.T, e relay.Engine, plain bool, res relay.Result) {
	t.Helper()
	for _, f := range []relay.Flow{res.AToB, res.BToA} {
		if (f.Fallbacks[relay.FallbackWrapped] != 0) == plain {
			t.Errorf("plain %v, but %+v", plain, f)
		}
		switch {
		case !plain || e == relay.EngineCopy:
			if f.Spliced != 0 {
				t.Errorf("spliced %d bytes, want none", f.Spliced)
			}
		case e == relay.EngineSplice:
			if f.Copied != 0 {
				t.Errorf("copied %d bytes, want none: %+v", f.Copied, f)
			}
		}
	}
}

// TestJoinHalfClose: either side may end first, and the other direction goes on
// until it ends too: the same order of ends through every engine and kind of
// connection.
func TestJoinHalfClose(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			for name, n := range d.networks() {
				t.Run(e.String()+"/"+name, func(t *testing.T) {
					g := d.newRig(t, r, n, unixStream)
					g.halfClose(g.A, g.B, relay.SideA)
					g.checkClean(len("request"), 100)
					g = d.newRig(t, r, n, unixStream)
					g.halfClose(g.B, g.A, relay.SideB)
					g.checkClean(100, len("request"))
				})
			}
		}
	})
}

// halfClose ends first's side after a request, then second's after 100 bytes. The result says which side has ended first.
func (g *rig) halfClose(first, second halfConn, side relay.Side) {
	g.t.Helper()
	must.Do(g.t, send(first, []byte("request"), 3))
	must.Do(g.t, expect(second, []byte("request")))
	g.until("the first end is noted", func(res relay.Result) bool { return res.First == side })
	for i := range 100 { // the other direction is not over
		must.Do(g.t, ping(second, first, byte(i)))
	}
	must.Do(g.t, second.CloseWrite())
	must.Do(g.t, expect(first, nil))
	if res, _ := g.wait(); res.First != side {
		g.t.Errorf("%v has ended first", res.First)
	}
}

// ping sends one byte from one end and receives it at the other.
func ping(from, to net.Conn, b byte) error {
	if _, err := from.Write([]byte{b}); err != nil {
		return err
	}
	var got [1]byte
	if _, err := io.ReadFull(to, got[:]); err != nil {
		return err
	}
	if got[0] != b {
		return fmt.Errorf("sent %d, got %d", b, got[0])
	}
	return nil
}

// abort resets a connection.
func abort(t testing.TB, c net.Conn) {
	t.Helper()
	must.Do(t, c.(*net.TCPConn).SetLinger(0))
	must.Do(t, c.Close())
}

// TestJoinResetDeliversFirst: what had arrived before the reset is delivered as
// far as the destination takes it, though the destination was not reading; the
// rest is counted as lost, and nothing is called a clean end.
func TestJoinResetDeliversFirst(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			r.SetLinger(100 * time.Millisecond)
			g := d.newRig(t, r, tcp, tcp)
			sent := fillUp(t, g.A)
			g.until("more was moved than B's kernel has room for", func(res relay.Result) bool { return res.AToB.Bytes() > 512<<10 })
			abort(t, g.A)
			// Goroutines see the reset at the latest when B's side fails: a byte from B
			// makes the relay write to the dead A. A loop is told at once.
			if !d.onLoop() {
				awaitReset(t, g.near[0])
				write(t, g.B, []byte("x"))
			}
			res, _ := g.wait()
			_, got, err := receive(g.B)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("%v: B read %d bytes and then %v, want ECONNRESET", e, got, err)
			}
			// What B's reset threw out of our send queue counts as moved and as lost. Between the count and the reset
			// the kernel may still send B some bytes, after a probe of its closed window.
			const late = 64 << 10
			f := res.AToB
			if res.Reason != relay.ReasonReset || f.Reason == relay.ReasonEOF || f.Lost == 0 || f.Lost > sent-got+late || f.Bytes() > sent || got > f.Bytes() {
				t.Fatalf("%v: sent %d, B got %d, %v %+v", e, sent, got, res.Reason, f)
			}
		}
	})
}

// A slowEnd returns from its CloseWrite later than its peer gets the end of file.
type slowEnd struct {
	*net.TCPConn
	returns chan struct{}
}

func (s slowEnd) CloseWrite() error {
	defer func() { <-s.returns }()
	return s.TCPConn.CloseWrite()
}

// TestFirst: the side that has ended first is the first one, however soon the other side answers its end.
func TestFirst(t *testing.T) {
	t.Parallel()

	farA, a := tcp(t)
	farB, b := tcp(t)
	slow := slowEnd{a.(*net.TCPConn), make(chan struct{})}
	s := newRelay(t, nil).NewSession(slow, b)
	ends := start(t, s)
	must.Do(t, farB.CloseWrite())
	must.Do(t, expect(farA, nil))
	must.Do(t, farA.CloseWrite())
	condition.Await(t, "an end", func() bool { return s.Result().First != relay.SideNone })
	close(slow.returns)
	if o := end(t, ends); o.result.First != relay.SideB || o.err != nil {
		t.Errorf("%+v, %v", o.result, o.err)
	}
}

// TestJoinBackpressure: a destination that does not read stops its source, and
// one lease is all that the direction holds; when it reads, everything arrives.
func TestJoinBackpressure(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			g := d.newRig(t, r, tcp, tcp)
			sent := fillUp(t, g.A)
			if pipes, buffers := d.holds(t, r); pipes+buffers > 1 {
				t.Fatalf("%v: a blocked direction holds %d pipes and %d buffers", e, pipes, buffers)
			}
			// The other direction is not in its way.
			must.Do(t, ping(g.B, g.A, 7))
			must.Do(t, g.A.CloseWrite())
			must.Do(t, g.B.CloseWrite())
			if _, n, err := receive(g.B); err != nil || n != sent {
				t.Fatalf("%v: B got %d of %d bytes, error %v", e, n, sent, err)
			}
			g.checkClean(int(sent), 1)
		}
	})
}

// TestJoinCancel: canceling ends both directions, with the cause. A side whose
// other side has not ended is reset, idle or not: what it got may be the half of
// something. One whose other side has ended gets its clean end.
func TestJoinCancel(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		why := errors.New("maintenance")
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			for name, n := range d.networks() {
				g := d.newRig(t, r, tcp, n)
				sent := fillUp(t, g.A)
				g.cancel(why)
				res, err := g.wait()
				if res.Reason != relay.ReasonCanceled || res.AToB.Reason != relay.ReasonCanceled || !errors.Is(err, why) {
					t.Fatalf("%v/%s: ended by %v (A to B: %v), error %v", e, name, res.Reason, res.AToB.Reason, err)
				}
				if _, n, err := receive(g.B); name != "unix" && !errors.Is(err, syscall.ECONNRESET) || n > sent {
					t.Fatalf("%v/%s: busy B got %d of %d bytes, then %v; want ECONNRESET", e, name, n, sent, err)
				}
				quiet := d.newRig(t, r, n, tcp)
				must.Do(t, quiet.A.CloseWrite())
				must.Do(t, expect(quiet.B, nil))
				quiet.cancel(why)
				if res, err := quiet.wait(); !errors.Is(err, why) || res.BToA.Reason != relay.ReasonCanceled {
					t.Fatalf("%v/%s: error %v, B to A ended by %v", e, name, err, res.BToA.Reason)
				}
				if _, _, err := receive(quiet.A); name != "unix" && !errors.Is(err, syscall.ECONNRESET) {
					t.Fatalf("%v/%s: A, whose other side has not ended, sees %v; want ECONNRESET", e, name, err)
				}
			}
		}
	})
}

// outcome is what a session that was started ended with.
type outcome struct {
	result relay.Result
	err    error
}

// start starts a session, and fails the test if its end is told of twice.
func start(t *testing.T, s *relay.Session) <-chan outcome {
	t.Helper()
	ends := make(chan outcome, 2)
	must.Do(t, s.Start(func(res relay.Result, err error) { ends <- outcome{res, err} }))
	return ends
}

// end waits for the end of a session that was started.
func end(t *testing.T, ends <-chan outcome) outcome {
	t.Helper()
	o := condition.Receive(t, "the end", ends)
	if len(ends) != 0 {
		t.Error("the end was told twice")
	}
	return o
}

// TestCutBesideDeadlines: a session that was cut ends soon, even if another goroutine moves the deadlines of its sockets.
func TestCutBesideDeadlines(t *testing.T) {
	t.Parallel()

	r, clock := new(driving).clockedRelay(t, relay.Config{})
	_, a := tcp(t)
	_, b := tcp(t)
	s := r.NewSession(a, b)
	ends := start(t, s)
	condition.Await(t, "it runs", func() bool {
		clock.advance(time.Millisecond)
		return s.Result().Duration > 0
	})
	stop := make(chan struct{})
	var moves sync.WaitGroup
	for _, c := range []net.Conn{a, b} {
		moves.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = c.SetDeadline(time.Time{})
				}
			}
		})
	}
	s.Cut(nil)
	condition.Await(t, "it ends", func() bool {
		clock.advance(time.Second)
		return len(ends) > 0
	})
	close(stop)
	moves.Wait()
	if o := end(t, ends); o.result.Reason != relay.ReasonCanceled {
		t.Errorf("%+v, %v", o.result, o.err)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	farA, a := tcp(t)
	farB, b := tcp(t)
	s := r.NewSession(a, b)
	ends := start(t, s)
	write(t, farA, []byte("hello"))
	_ = farA.CloseWrite()
	sockets.ExpectAll(t, farB, "hello")
	_ = farB.CloseWrite()
	o := end(t, ends)
	if o.err != nil || o.result.Reason != relay.ReasonEOF || o.result.AToB.Bytes() != 5 || o.result.Duration <= 0 {
		t.Errorf("%+v, %v", o.result, o.err)
	}
	must.Is(t, a.SetDeadline(time.Time{}), net.ErrClosed)
	must.Is(t, s.Start(func(relay.Result, error) { t.Error("ended again") }), relay.ErrRan)
	must.Fail(s.Run(t.Context()))(t, relay.ErrRan)
	s.Cut(errors.New("late"))
	if s.Result().Reason != relay.ReasonEOF {
		t.Errorf("cut after its end: %+v", s.Result())
	}
}

// TestCut cuts sessions before they are started and at any moment after that.
func TestCut(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{IdleTimeout: time.Hour})
	cause := errors.New("cut by the test")
	for round := range 60 {
		farA, a := tcp(t)
		farB, b := tcp(t)
		s := r.NewSession(a, b)
		var cuts atomic.Int32
		cut := func() { s.Cut(cause); cuts.Add(1) }
		switch round % 3 {
		case 0:
			cut()
		case 1:
			go cut()
		}
		ends := start(t, s)
		if round%3 == 2 {
			write(t, farA, []byte("x"))
			readFull(t, farB, make([]byte, 1))
			cut()
		}
		o := end(t, ends)
		if !errors.Is(o.err, cause) || o.result.Reason != relay.ReasonCanceled {
			t.Fatalf("round %d: %+v, %v", round, o.result, o.err)
		}
		for _, far := range []net.Conn{farA, farB} {
			if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("round %d: a peer sees %v", round, err)
			}
		}
	}
	_, a := tcp(t)
	_, b := tcp(t)
	s := r.NewSession(a, b)
	s.Cut(nil)
	if o := end(t, start(t, s)); o.err != context.Canceled || o.result.Reason != relay.ReasonCanceled {
		t.Errorf("cut without a cause: %+v, %v", o.result, o.err)
	}
}

// TestLooksWhileItBegins: everything that may be called at any time by any goroutine may be while the session
// begins. The race detector is the judge.
func TestLooksWhileItBegins(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{LegsAfter: time.Hour})
	for range 20 {
		farA, a := tcp(t)
		farB, b := tcp(t)
		s := r.NewSession(a, b)
		s.Limit(&relay.Limits{BandwidthAToB: relay.NewBucket(1<<20, 0)})
		var looks sync.WaitGroup
		for range 2 {
			looks.Go(func() {
				for known := false; !known; { // Idle takes no lock, which would order it behind the beginning
					_, known = s.Idle()
				}
				s.Legs()
				s.Result()
			})
		}
		ends := start(t, s)
		looks.Wait()
		_, _ = farA.CloseWrite(), farB.CloseWrite()
		end(t, ends)
	}
}

// TestShutdown: sessions that run end as they would, others are refused, and their connections closed.
func TestShutdown(t *testing.T) {
	t.Parallel()

	r := must.Get(relay.New(nil))(t)
	farA, a := tcp(t)
	farB, b := tcp(t)
	ends := start(t, r.NewSession(a, b))
	must.Do(t, ping(farA, farB, 1))
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
	if err := <-over; !errors.Is(err, enough) {
		t.Error(err)
	}
	must.Do(t, ping(farB, farA, 1))
	go func() { over <- r.Shutdown(context.Background()) }()
	_ = farA.CloseWrite()
	_ = farB.CloseWrite()
	if o := end(t, ends); o.err != nil {
		t.Error(o.err)
	}
	must.Do(t, <-over)
	must.Do(t, r.Shutdown(context.Background()))
}

// TestShutdownIdle: an idle relay shuts down, even if there is no time for it.
func TestShutdownIdle(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		must.Do(t, must.Get(relay.New(nil))(t).Shutdown(ctx))
	}
}

// TestShutdownWaitsForHook: a session is over when the hook Ended has returned.
func TestShutdownWaitsForHook(t *testing.T) {
	t.Parallel()

	entered, leave := make(chan bool, 1), make(chan bool)
	r := must.Get(relay.New(&relay.Config{Hooks: relay.Hooks{Ended: func(*relay.Session, relay.Result, error) { entered <- true; <-leave }}}))(t)
	go joinEnded(t, r, func(error) {})
	condition.Receive(t, "Ended", entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := r.Shutdown(ctx)
	must.Is(t, err, context.Canceled)
	if want := "penstock: relay: shutdown: sessions still run (1); Close ends them: context canceled"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	close(leave)
	must.Do(t, r.Shutdown(context.Background()))
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

// TestFileClosedMeanwhile: the error of a copy names a file that was closed meanwhile as the file's own methods do.
func TestFileClosedMeanwhile(t *testing.T) {
	t.Parallel()

	for name, copying := range map[string]func(c net.Conn, from, to *os.File) error{
		"source":      func(c net.Conn, from, _ *os.File) error { _, err := relay.Copy(c, from); return err },
		"destination": func(c net.Conn, _, to *os.File) error { _, err := relay.Copy(to, c); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far, near := tcp(t)
			from, to, err := os.Pipe()
			must.Do(t, err)
			t.Cleanup(func() { from.Close(); to.Close() })
			done := make(chan error)
			go func() { done <- copying(near, from, to) }()
			if name == "source" {
				_, _ = to.WriteString("moved")
				sockets.Expect(t, far, "moved")
				from.Close()
			} else {
				write(t, far, make([]byte, 1<<20)) // more than the pipe takes
				readFull(t, from, make([]byte, 1))
				to.Close()
			}
			if err := <-done; !errors.Is(err, os.ErrClosed) {
				t.Errorf("%v is not os.ErrClosed", err)
			}
		})
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

	r := must.Get(relay.New(nil))(t)
	farA, a := tcp(t)
	_, b := tcp(t)
	ends := start(t, r.NewSession(a, b))
	must.Do(t, r.Close())
	o := end(t, ends)
	if !errors.Is(o.err, relay.ErrClosed) || o.result.Reason != relay.ReasonCanceled {
		t.Errorf("%+v, %v", o.result, o.err)
	}
	if text := "penstock: relay: ended by Relay.Close"; o.err == nil || o.err.Error() != text {
		t.Errorf("%v, want %s", o.err, text)
	}
	if _, err := farA.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("%v, want a reset", err)
	}
	must.Do(t, r.Shutdown(context.Background()))
}

// A busyListener has no descriptor for its first connection.
type busyListener struct {
	net.Listener
	refused atomic.Bool
}

func (l *busyListener) Accept() (net.Conn, error) {
	if !l.refused.Swap(true) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestForwarderAcceptsAgain: the forwarder of docs/adopting.md goes on when it could not accept.
func TestForwarderAcceptsAgain(t *testing.T) {
	t.Parallel()

	origin := echoServer()
	defer origin.Close()
	l := &busyListener{Listener: must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)}
	stop, signal := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- forwardAll(stop, l, origin.Addr().String()) }()
	if got := ask(l.Addr(), "water"); got != "WATER" || !l.refused.Load() {
		t.Errorf("%q", got)
	}
	signal()
	must.Do(t, condition.Receive(t, "the end", served))
}

// A lastListener calls last after each connection that it has accepted.
type lastListener struct {
	net.Listener
	last func()
}

func (l lastListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.last()
	return c, err
}

// TestForwarderServesTheLast: the forwarder of docs/adopting.md serves a client that it had accepted, but not yet connected, at the signal.
func TestForwarderServesTheLast(t *testing.T) {
	t.Parallel()

	origin := echoServer()
	defer origin.Close()
	stop, signal := context.WithCancel(t.Context())
	l := lastListener{must.Get(net.Listen("tcp", "127.0.0.1:0"))(t), signal}
	served := make(chan error, 1)
	go func() { served <- forwardAll(stop, l, origin.Addr().String()) }()
	if got := ask(l.Addr(), "water"); got != "WATER" {
		t.Errorf("%q", got)
	}
	must.Do(t, condition.Receive(t, "the end", served))
}

// TestHooks: each event of a session calls its hook, in order.
func TestHooks(t *testing.T) {
	t.Parallel()

	var mu sync.Mutex
	var got []string
	var sessions []*relay.Session
	note := func(s *relay.Session, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		got, sessions = append(got, fmt.Sprintf(format, args...)), append(sessions, s)
	}
	r := newRelay(t, &relay.Config{Hooks: relay.Hooks{
		Started:       func(s *relay.Session) { note(s, "started") },
		EngineChanged: func(s *relay.Session, from relay.Side, now relay.Engine) { note(s, "%v %v", from, now) },
		Ended:         func(s *relay.Session, res relay.Result, err error) { note(s, "ended %v %v", res.Reason, err) },
	}})
	r.SetThresholds(1000)
	g := newRig(t, r, tcp, tcp)
	large, small := make([]byte, 1000), make([]byte, 10)
	pass(t, g.A, g.B, large)
	pass(t, g.B, g.A, small)
	pass(t, g.B, g.A, large)
	pass(t, g.A, g.B, small)
	cause := errors.New("enough")
	g.cancel(cause)
	_, _ = g.wait()
	mu.Lock()
	defer mu.Unlock()
	want := []string{"started", fmt.Sprint(relay.SideA, " splice"), fmt.Sprint(relay.SideB, " splice"), fmt.Sprint(relay.SideA, " copy"), "ended canceled enough"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, s := range sessions {
		if a, b := s.Conns(); s != sessions[0] || a.RemoteAddr().String() != g.A.LocalAddr().String() || b.RemoteAddr().String() != g.B.LocalAddr().String() {
			t.Errorf("session %p of %v and %v", s, a, b)
		}
	}
}

// TestAnsweredMayCut: Limits.Answered may look at its session, and end it.
func TestAnsweredMayCut(t *testing.T) {
	t.Parallel()

	r, c := new(driving).clockedRelay(t, relay.Config{})
	_, nearA := sockets.TCPPair(t)
	farB, nearB := sockets.TCPPair(t)
	s, enough, ended := r.NewSession(nearA, nearB), errors.New("enough"), make(chan error, 1)
	s.Limit(&relay.Limits{FirstByte: time.Second, Answered: func() {
		if s.Result().BToA.Bytes() == 1 {
			s.Cut(enough)
		}
	}})
	must.Do(t, s.Start(func(_ relay.Result, err error) { ended <- err }))
	write(t, farB, "!")
	condition.Await(t, "a byte has moved", func() bool { return s.Result().BToA.Bytes() == 1 })
	go c.advance(time.Second)
	must.Is(t, condition.Receive(t, "the session ends", ended), enough)
}

// TestAnswered: that the second side has sent a byte is told once the time for it is over, an
// end of file without one is not.
func TestAnswered(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, bytes := range []bool{true, false} {
			r, c := d.clockedRelay(t, relay.Config{})
			var told atomic.Int64
			d.limits = &relay.Limits{FirstByte: 3 * time.Second, IdleTimeout: 10 * time.Second, Answered: func() { told.Add(1) }}
			g := d.newRig(t, r, tcp, tcp)
			g.echo(t)
			if bytes {
				g.answer()
			} else if err := g.B.CloseWrite(); err != nil {
				t.Fatal(err)
			} else {
				g.until("it has ended", func(res relay.Result) bool { return res.First == relay.SideB })
			}
			c.advance(3 * time.Second)
			if bytes {
				g.until("it is told", func(relay.Result) bool { return told.Load() > 0 })
			}
			c.advance(10 * time.Second)
			expectTimeout(t, g, relay.ReasonIdle)
			if (told.Load() > 0) != bytes {
				t.Errorf("with bytes %v it was told %d times", bytes, told.Load())
			}
		}
	})
}

// TestJoinClosedUnderneath: a connection that somebody else closes ends the
// session with net.ErrClosed, and its peer gets no clean end.
func TestJoinClosedUnderneath(t *testing.T) {
	t.Parallel()

	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		var near net.Conn
		g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
			far, n := tcp(t)
			near = n
			return far, n
		}, tcp)
		must.Do(t, ping(g.A, g.B, 1))
		near.Close()
		res, err := g.wait()
		if res.Reason != relay.ReasonError || !errors.Is(err, net.ErrClosed) {
			t.Fatalf("%v: ended by %v, error %v", e, res.Reason, err)
		}
		if _, _, err := receive(g.B); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%v: B sees %v, want ECONNRESET", e, err)
		}
	}
}

// TestJoinResetAccount: bytes that the reset threw away from the destination's send
// queue are lost, not delivered.
func TestJoinResetAccount(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			r.SetLinger(100 * time.Millisecond)
			want, over := content(1, 2<<20), int64(1<<20)
			for attempt := 0; over > 64<<10 && attempt < 5; attempt++ {
				g := d.newRig(t, r, tcp, tcp)
				write(t, g.A, want)
				g.until("all moved", func(res relay.Result) bool { return res.AToB.Bytes() == int64(len(want)) })
				abort(t, g.A)
				res, _ := g.wait()
				_, n, _ := receive(g.B)
				// What B has and has not acknowledged yet is in both: a segment of loopback, but on a busy machine acknowledgements are late.
				if over = n + res.AToB.Lost - int64(len(want)); over < 0 {
					t.Fatalf("%v: sent %d, B got %d, lost %d", e, len(want), n, res.AToB.Lost)
				}
			}
			if over > 64<<10 {
				t.Errorf("%v: each of five sessions counts more than a segment twice, the last %d bytes", e, over)
			}
		}
	})
}

// TestJoinBrokenPipe: a unix socket whose peer is gone answers EPIPE, which ends
// the session as a reset of the other side.
func TestJoinBrokenPipe(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for _, e := range engines {
			r := newRelay(t, &relay.Config{Engine: e})
			g := d.newRig(t, r, tcp, unixStream)
			must.Do(t, g.B.CloseWrite())
			must.Do(t, expect(g.A, nil))
			g.B.Close()
			write(t, g.A, []byte("nobody reads this"))
			res, err := g.wait()
			if res.Reason != relay.ReasonReset || !errors.Is(err, syscall.EPIPE) || res.AToB.Lost == 0 {
				t.Fatalf("%v: %+v, error %v, want EPIPE and lost bytes", e, res, err)
			}
			if _, err := g.A.Read(make([]byte, 1)); err == nil {
				t.Fatal("A reads on")
			}
		}
	})
}
