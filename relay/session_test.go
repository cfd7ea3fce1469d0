package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/relay"
)

var engines = []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy}

// counting is a wrapper that wants to see every byte.
type counting struct {
	*net.TCPConn
	mu   sync.Mutex
	seen int64
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
type transparent struct {
	*net.TCPConn
	buffered []byte
	closed   bool
}

func (c *transparent) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.TCPConn, c.buffered, nil
}
func (c *transparent) RelayWriter() io.Writer    { return c.TCPConn }
func (c *transparent) Read([]byte) (int, error)  { panic("read through the wrapper") }
func (c *transparent) Write([]byte) (int, error) { panic("written through the wrapper") }
func (c *transparent) Close() error              { c.closed = true; return c.TCPConn.Close() }

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
	t.Parallel()
	eachDriver(t, testJoinMetamorphic)
}

func testJoinMetamorphic(t *testing.T, d *driving) {
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

// TestJoinSizes: every size from a byte to 64 MiB arrives whole.
func TestJoinSizes(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinSizes)
}

func testJoinSizes(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for n := 1; n <= 64<<20; n *= 8 {
			g := d.newRig(t, r, tcp, tcp)
			g.exchange(content(3, n), nil, 1<<20)
			g.checkClean(n, 0)
		}
	}
}

// TestJoinHalfClose: either side may end first, and the other direction goes on
// until it ends too: the same order of ends through every engine and kind of
// connection.
func TestJoinHalfClose(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinHalfClose)
}

func testJoinHalfClose(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for name, n := range d.networks() {
			t.Run(e.String()+"/"+name, func(t *testing.T) {
				g := d.newRig(t, r, n, unixStream)
				halfClose(t, g.A, g.B)
				g.checkClean(len("request"), 100)
				g = d.newRig(t, r, n, unixStream)
				halfClose(t, g.B, g.A)
				g.checkClean(100, len("request"))
			})
		}
	}
}

// halfClose ends first's side after a request, then second's after 100 bytes.
func halfClose(t *testing.T, first, second halfConn) {
	t.Helper()
	if err := send(first, []byte("request"), 3); err != nil {
		t.Fatal(err)
	}
	if err := expect(second, []byte("request")); err != nil {
		t.Fatal(err)
	}
	// The end has arrived, so this direction is over; the other is not.
	for i := range 100 {
		if err := ping(second, first, byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := expect(first, nil); err != nil {
		t.Fatal(err)
	}
}

// TestJoinSlowReaders: readers that take a few bytes at a time, through small
// kernel buffers, get every byte.
func TestJoinSlowReaders(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinSlowReaders)
}

func testJoinSlowReaders(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for name, n := range d.networks() {
			t.Run(e.String()+"/"+name, func(t *testing.T) {
				g := d.newRig(t, r, n, smallTCP)
				var wg sync.WaitGroup
				for _, way := range []struct{ from, to halfConn }{{g.A, g.B}, {g.B, g.A}} {
					wg.Go(func() {
						if err := send(way.from, content(3, 300_000), 7_001); err != nil {
							t.Error(err)
						}
					})
					wg.Go(func() {
						if err := expect(trickle{way.to}, content(3, 300_000)); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				g.checkClean(300_000, 300_000)
			})
		}
	}
}

// trickle reads at most 97 bytes at a time, and lets others run in between.
type trickle struct{ io.Reader }

func (r trickle) Read(p []byte) (int, error) {
	runtime.Gosched()
	return r.Reader.Read(p[:min(len(p), 97)])
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

// TestJoinReset: a reset reaches the other side as a reset, after the bytes that
// came before it, in both directions and in every engine.
func TestJoinReset(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinReset)
}

func testJoinReset(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		for _, swap := range []bool{false, true} {
			g := d.newRig(t, r, tcp, tcp)
			from, to := g.A, g.B
			if swap {
				from, to = g.B, g.A
			}
			want := content(4, 100_000)
			if _, err := from.Write(want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(to, got); err != nil {
				t.Fatal(err)
			}
			abort(t, from)
			if n, err := to.Read(got); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("%v: after the reset: %d bytes, error %v, want ECONNRESET", e, n, err)
			}
			res, err := g.wait()
			if res.Reason != relay.ReasonReset || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatalf("%v: ended by %v, error %v", e, res.Reason, err)
			}
		}
	}
}

// abort resets a connection.
func abort(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestJoinResetDeliversFirst: what had arrived before the reset is delivered as
// far as the destination takes it, though the destination was not reading; the
// rest is counted as lost, and nothing is called a clean end.
func TestJoinResetDeliversFirst(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinResetDeliversFirst)
}

func testJoinResetDeliversFirst(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		r.SetLinger(100 * time.Millisecond)
		g := d.newRig(t, r, tcp, tcp)
		sent := fillUp(t, g.A)
		abort(t, g.A)
		// Goroutines see the reset at the latest when B's side fails: a byte from B
		// makes the relay write to the dead A. A loop is told at once.
		if !d.onLoop() {
			if _, err := g.B.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		res, _ := g.wait()
		_, got, err := receive(g.B)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%v: B read %d bytes and then %v, want ECONNRESET", e, got, err)
		}
		// What B's reset threw out of our send queue counts as moved and as lost.
		f := res.AToB
		if res.Reason != relay.ReasonReset || f.Reason == relay.ReasonEOF || f.Lost == 0 || f.Lost > sent-got || f.Bytes() > sent || got > f.Bytes() {
			t.Fatalf("%v: sent %d, B got %d, %v %+v", e, sent, got, res.Reason, f)
		}
	}
}

// TestJoinBackpressure: a destination that does not read stops its source, and
// one lease is all that the direction holds; when it reads, everything arrives.
func TestJoinBackpressure(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinBackpressure)
}

func testJoinBackpressure(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		g := d.newRig(t, r, tcp, tcp)
		sent := fillUp(t, g.A)
		if pipes, buffers := d.holds(t, r); pipes+buffers > 1 {
			t.Fatalf("%v: a blocked direction holds %d pipes and %d buffers", e, pipes, buffers)
		}
		// The other direction is not in its way.
		if err := ping(g.B, g.A, 7); err != nil {
			t.Fatal(err)
		}
		if err := g.A.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := g.B.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, n, err := receive(g.B); err != nil || n != sent {
			t.Fatalf("%v: B got %d of %d bytes, error %v", e, n, sent, err)
		}
		g.checkClean(int(sent), 1)
	}
}

// TestJoinManyPairs: many sessions at once, both ways, share one relay.
func TestJoinManyPairs(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinManyPairs)
}

func testJoinManyPairs(t *testing.T, d *driving) {
	for _, e := range engines {
		r := newRelay(t, &relay.Config{Engine: e})
		var wg sync.WaitGroup
		for i := range full.Times(60, 200) {
			g := d.newRig(t, r, tcp, tcp)
			wg.Go(func() { g.exchange(content(uint64(i), 200_000+i), content(uint64(i+1), 50_000+i), 30_000) })
		}
		wg.Wait()
	}
}

// TestJoinWrapperSeesEveryByte: a wrapper that did not ask is not bypassed, even
// though it has all methods of the *net.TCPConn inside.
func TestJoinWrapperSeesEveryByte(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	var w *counting
	g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := wrappedTCP(t)
		w = near.(*counting)
		return far, near
	}, tcp)
	g.exchange(content(6, 300_000), nil, 300_000)
	res := g.checkClean(300_000, 0)
	if w.seen != 300_000 || res.AToB.Fallbacks[relay.FallbackWrapped] != 1 || res.AToB.Copied != 300_000 {
		t.Fatalf("wrapper saw %d bytes, flow %+v", w.seen, res.AToB)
	}
}

// TestJoinUnwrapper: a wrapper that asks is bypassed, what it had read ahead goes
// first, and it is what gets closed.
func TestJoinUnwrapper(t *testing.T) {
	t.Parallel()

	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	w := &transparent{buffered: []byte("HEAD")}
	g := newRig(t, r, func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		w.TCPConn = near.(*net.TCPConn)
		return far, w
	}, tcp)
	go send(g.A, []byte("BODY"), 4)
	if err := expect(g.B, []byte("HEADBODY")); err != nil {
		t.Fatal(err)
	}
	g.B.CloseWrite()
	res := g.checkClean(8, 0)
	if res.AToB.Copied != 4 || res.AToB.Spliced != 4 || !w.closed {
		t.Fatalf("flow %+v, closed %v: want 4 bytes copied, 4 spliced, closed", res.AToB, w.closed)
	}
}

// TestJoinCancel: canceling ends both directions, with the cause. A side whose
// other side has not ended is reset, idle or not: what it got may be the half of
// something. One whose other side has ended gets its clean end.
func TestJoinCancel(t *testing.T) {
	t.Parallel()
	eachDriver(t, testJoinCancel)
}

func testJoinCancel(t *testing.T, d *driving) {
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
			if err := quiet.A.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := expect(quiet.B, nil); err != nil {
				t.Fatal(err)
			}
			quiet.cancel(why)
			if res, err := quiet.wait(); !errors.Is(err, why) || res.BToA.Reason != relay.ReasonCanceled {
				t.Fatalf("%v/%s: error %v, B to A ended by %v", e, name, err, res.BToA.Reason)
			}
			if _, _, err := receive(quiet.A); name != "unix" && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("%v/%s: A, whose other side has not ended, sees %v; want ECONNRESET", e, name, err)
			}
		}
	}
}

// TestJoinRunTwice: the second Run does nothing but say so.
func TestJoinRunTwice(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g := newRig(t, r, tcp, tcp)
	g.exchange(nil, nil, 1)
	g.checkClean(0, 0)
	if _, err := g.session.(*relay.Session).Run(context.Background()); !errors.Is(err, relay.ErrRan) {
		t.Fatalf("second Run: %v", err)
	}
}

// TestJoinLive: the counters can be read while bytes move.
func TestJoinLive(t *testing.T) { eachDriver(t, testJoinLive) }

func testJoinLive(t *testing.T, d *driving) {
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice})
	g := d.newRig(t, r, tcp, tcp)
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
	res := g.until("one byte counted", func(res relay.Result) bool { return res.AToB.Spliced == 1 })
	if res.Reason != relay.ReasonNone || res.Duration <= 0 {
		t.Fatalf("live result %+v", res)
	}
	if n := testing.AllocsPerRun(100, func() { res = g.session.Result() }); n != 0 && !d.onLoop() {
		t.Fatalf("Result allocates %v times", n) // on a loop, asking for it does
	}
}
