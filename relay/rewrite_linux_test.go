package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/relay"
)

// A flipper is a Rewriter that inverts all bits, and holds back at most 4 bytes x at the end of what has come.
type flipper struct {
	held     [4]byte
	n        int
	released int
	fail     byte // with which it fails; 0: it does not
}

var errFlipper = errors.New("the flipper has failed")

func (f *flipper) Room() int { return len(f.held) }
func (f *flipper) Held() int { return f.n }
func (f *flipper) Most() int { return 50_000 }

func (f *flipper) Rewrite(b []byte, at int) (from, to int, err error) {
	from, to = at-f.n, len(b)
	copy(b[from:], f.held[:f.n])
	if f.fail != 0 && bytes.IndexByte(b[at:], f.fail) >= 0 {
		return 0, 0, errFlipper
	}
	for to > from && len(b)-to < len(f.held) && b[to-1] == 'x' {
		to--
	}
	f.n = copy(f.held[:], b[to:])
	flip(b[from:to])
	return from, to, nil
}

func (f *flipper) Release(b []byte) (from, to int, err error) {
	f.released++
	n := copy(b, f.held[:f.n])
	f.n = 0
	flip(b[:n])
	return 0, n, nil
}

func flip(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

func flipped(b []byte) []byte {
	b = bytes.Clone(b)
	flip(b)
	return b
}

// rewritten starts a session on a loop with a flipper of what A sends, and one of what B sends. change may change A's socket.
func rewritten(t *testing.T, d *driving, r *relay.Relay, network network, limits *relay.Limits, change func(a *relay.Socket)) (g *rig, ab *flipper, on *looped) {
	t.Helper()
	g = &rig{t: t, done: make(chan struct{})}
	on = d.looped(t, r)
	var nearA, nearB net.Conn
	g.A, nearA = network(t)
	g.B, nearB = network(t)
	for _, c := range []net.Conn{g.A, g.B} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	s := &loopSession{on: on, limits: limits, ended: func(res relay.Result, err error) { g.result, g.err = res, err; close(g.done) }}
	g.session, g.cancel = s, s.cut
	a, b := on.take(nearA), on.take(nearB)
	ab = new(flipper)
	a.Rewriter, a.Hold = ab, 10*time.Millisecond
	b.Rewriter, b.Hold = new(flipper), 10*time.Millisecond
	if change != nil {
		change(&a)
	}
	on.start(s, a, b)
	t.Cleanup(func() {
		g.cancel(errors.New("test is over"))
		<-g.done
	})
	return g, ab, on
}

// TestRewrite: both sides get what the other's bytes were rewritten to, to the end of file, with the bytes that were read before,
// whatever the engine; they are copied, and the fallback says why. A mirror gets the same.
func TestRewrite(t *testing.T) {
	t.Parallel()

	for _, e := range []relay.Engine{relay.EngineAuto, relay.EngineSplice, relay.EngineCopy} {
		for name, network := range map[string]network{"tcp": tcp, "small": smallTCP, "unix": unixStream} {
			t.Run(fmt.Sprintf("%v/%s", e, name), func(t *testing.T) {
				r := newRelay(t, &relay.Config{Engine: e})
				ahead := []byte("read before xxxxx")
				g, _, _ := rewritten(t, ofLoop(), r, network, nil, func(a *relay.Socket) { a.Ahead = ahead })
				toB, toA := content(1, 3<<20), content(2, 2<<20)
				copy(toB[len(toB)-9:], "abxxxxxxx") // which are held back when the end comes
				atA, atB, random := collect(g.A), collect(g.B), rand.New(rand.NewPCG(1, 2))
				go func() {
					for b := toB; len(b) > 0; {
						n, err := g.A.Write(b[:min(1+random.IntN(100_000), len(b))])
						if err != nil {
							t.Error(err)
							return
						}
						b = b[n:]
					}
					_ = g.A.CloseWrite()
				}()
				if err := send(g.B, toA, 64<<10); err != nil {
					t.Error(err)
				}
				all := append(bytes.Clone(ahead), toB...)
				if got := <-atB; !bytes.Equal(got, flipped(all)) {
					t.Errorf("B has got %d bytes of %d, or others", len(got), len(all))
				}
				if got := <-atA; !bytes.Equal(got, flipped(toA)) {
					t.Errorf("A has got %d bytes of %d, or others", len(got), len(toA))
				}
				res := g.checkClean(len(all), len(toA))
				if res.AToB.Spliced+res.BToA.Spliced != 0 || res.AToB.Fallbacks[relay.FallbackRewrite] != 1 || res.BToA.Fallbacks[relay.FallbackRewrite] != 1 {
					t.Errorf("%+v", res)
				}
			})
		}
	}
}

// TestRewriteIsMirrored: the shadow gets the bytes as they were rewritten.
func TestRewriteIsMirrored(t *testing.T) {
	t.Parallel()

	m := newMirroredBy(t, newRelay(t, nil), ofLoop(), tcp, time.Minute, func(_ *relay.Mirror, a *relay.Socket) {
		a.Rewriter, a.Hold, a.Ahead = new(flipper), 10*time.Millisecond, []byte("before")
	})
	m.connect()
	atB, atS, sent := collect(m.B), collect(m.S), []byte("before")
	for i := range 200 {
		b := content(uint64(i), 1+i*i/4)
		if _, err := m.A.Write(b); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b...)
		m.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed+res.Copied >= int64(len(sent)-4) })
	}
	_ = m.A.CloseWrite()
	for what, at := range map[string]<-chan []byte{"B": atB, "the shadow": atS} {
		if got := <-at; !bytes.Equal(got, flipped(sent)) {
			t.Errorf("%s has got %d bytes of %d, or others", what, len(got), len(sent))
		}
	}
}

// TestRewriteHoldsBack: bytes that are held back go on when the time is over, by the loop's clock, and not before; more that come
// meanwhile do not keep them for more than twice the time.
func TestRewriteHoldsBack(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	r, clock := d.clockedRelay(t, relay.Config{})
	g, ab, on := rewritten(t, d, r, tcp, nil, nil)
	came := func(n int64) {
		t.Helper()
		g.until(fmt.Sprintf("%d bytes have come", n), func(res relay.Result) bool { return res.AToB.Bytes() == n })
	}
	held := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Microsecond) {
			n := 0
			on.do(func() { n = ab.n })
			if n == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are held back, want %d", n, want)
			}
		}
	}
	write := func(s string) {
		t.Helper()
		if _, err := io.WriteString(g.A, s); err != nil {
			t.Fatal(err)
		}
	}
	write("abxx")
	came(2)
	held(2)
	clock.advance(8 * time.Millisecond)
	came(2)
	clock.advance(4 * time.Millisecond)
	came(4)
	held(0)
	write("x")
	held(1)
	for n := 1; n < 3; n++ { // it would go on with the next one, but for the time
		clock.advance(6 * time.Millisecond)
		if n == 1 {
			write("x")
			held(2)
		}
	}
	came(6)
	if err := g.A.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-collect(g.B); !bytes.Equal(got, flipped([]byte("abxxxx"))) {
		t.Errorf("B has got %q", flipped(got))
	}
}

// TestRewriteOfASlowSink: a sink that does not read stops the source, and nothing is lost.
func TestRewriteOfASlowSink(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	g, _, on := rewritten(t, ofLoop(), r, smallTCP, nil, nil)
	sent := content(3, 8<<20)
	var written int
	_ = g.A.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	written, err := g.A.Write(sent)
	if err == nil {
		t.Fatal("A has written all")
	}
	on.turn()
	_ = g.A.SetWriteDeadline(time.Now().Add(patience))
	atB := collect(g.B)
	if err := send(g.A, sent[written:], 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := <-atB; !bytes.Equal(got, flipped(sent)) {
		t.Errorf("B has got %d bytes of %d", len(got), len(sent))
	}
}

// TestRewriteOfAReset: after a reset of the source what is held back is dropped, and counted as lost; B is reset.
func TestRewriteOfAReset(t *testing.T) {
	t.Parallel()

	g, _, _ := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, func(a *relay.Socket) { a.Hold = time.Hour })
	if _, err := g.A.Write([]byte("abcxxx")); err != nil {
		t.Fatal(err)
	}
	g.until("all but what is held back has come", func(res relay.Result) bool { return res.AToB.Bytes() == 3 })
	abort(t, g.A)
	res, err := g.wait()
	if !errors.Is(err, syscall.ECONNRESET) || res.Reason != relay.ReasonReset || res.AToB.Lost != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{g.B}); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("B has ended with %v", err)
	}
}

// TestRewriteFails: an error of the Rewriter ends the session by resets. Nothing from the failed read on is passed on.
func TestRewriteFails(t *testing.T) {
	t.Parallel()

	g, ab, on := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, nil)
	on.do(func() { ab.fail = '!' })
	pass := make([]byte, 2)
	if _, err := g.A.Write([]byte("ok")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(g.B, pass); err != nil {
		t.Fatal(err)
	}
	if _, err := g.A.Write([]byte("no!")); err != nil {
		t.Fatal(err)
	}
	res, err := g.wait()
	if !errors.Is(err, errFlipper) || res.Reason != relay.ReasonError || res.AToB.Bytes() != 2 || res.AToB.Lost != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	for _, c := range []net.Conn{g.A, g.B} {
		if n, err := io.Copy(io.Discard, struct{ io.Reader }{c}); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("it has got %d bytes, and ended with %v", n, err)
		}
	}
}

// TestRewriteIsLimited: a rate holds for the bytes that are read, with those read before.
func TestRewriteIsLimited(t *testing.T) {
	t.Parallel()

	limits := &relay.Limits{PerConnection: relay.Rates{AToB: 8 << 20, Burst: 64 << 10}}
	g, _, _ := rewritten(t, ofLoop(), newRelay(t, nil), tcp, limits, func(a *relay.Socket) { a.Ahead = []byte("before xx") })
	atB, sent, began := collect(g.B), content(4, 2<<20), time.Now()
	if err := send(g.A, sent, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := <-atB; !bytes.Equal(got, flipped(append([]byte("before xx"), sent...))) {
		t.Errorf("B has got %d bytes of %d", len(got), len(sent))
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("2 MiB at 8 MiB/s have taken %v", took)
	}
}

// TestRewriteIsCut: what is held back is delivered before a session is cut, as other bytes are.
func TestRewriteIsCut(t *testing.T) {
	t.Parallel()

	g, ab, on := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, func(a *relay.Socket) { a.Hold = time.Hour })
	if _, err := g.A.Write([]byte("abxx")); err != nil {
		t.Fatal(err)
	}
	g.until("the first have come", func(res relay.Result) bool { return res.AToB.Bytes() == 2 })
	g.cancel(errors.New("cut"))
	res, _ := g.wait()
	on.do(func() {
		if ab.released != 1 || res.AToB.Bytes() != 4 {
			t.Errorf("%+v, released %d times", res, ab.released)
		}
	})
}

// TestRewriteOfALayer: decrypted bytes are rewritten.
func TestRewriteOfALayer(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		g := newLayeredRigOf(t, spoken, nil, [2]string{}, func(of *[2]relay.Socket) {
			for i := range of {
				of[i].Rewriter, of[i].Hold = new(flipper), 10*time.Millisecond
			}
		})
		for i, far := range g.far {
			sent := append(content(uint64(i), 1<<20), "xxx"...)
			got := collect(g.far[1-i])
			if _, err := far.Write(sent); err != nil {
				t.Fatal(err)
			}
			if err := far.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b := <-got; !bytes.Equal(b, flipped(sent)) {
				t.Errorf("%d bytes came of %d, or others", len(b), len(sent))
			}
		}
		<-g.done
		if r := g.result; r.Reason != relay.ReasonEOF || r.AToB.Fallbacks[relay.FallbackRewrite] != 1 || r.AToB.Lost+r.BToA.Lost != 0 {
			t.Errorf("%+v, %v", r, g.err)
		}
	})
}

// TestRewriteIdles: a session with nothing in flight has no buffer, and moves allocate nothing.
func TestRewriteIdles(t *testing.T) {
	t.Parallel()

	g, _, on := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, func(a *relay.Socket) { a.Hold = time.Hour })
	message, answer := []byte("message xxx"), make([]byte, 8)
	if _, err := g.A.Write(message); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(g.B, answer); err != nil {
		t.Fatal(err)
	}
	on.turn()
	on.do(func() {
		if n := on.sessions[0].driven.Buffers(); n != 0 {
			t.Errorf("it holds %d buffers", n)
		}
	})
}

// TestRewrittenAnswersAreObserved: answers that are rewritten stay so while an observer sees them, and after that. It sees
// them as the client gets them.
func TestRewrittenAnswersAreObserved(t *testing.T) {
	t.Parallel()

	for _, most := range []int{0, 1000} { // answers that the observer wants; 0: all
		w := &witness{most: most}
		m := newMirroredBy(t, newRelay(t, nil), ofLoop(), tcp, time.Minute, func(m *relay.Mirror, _ *relay.Socket) { m.Observe(w) },
			func(b *relay.Socket) { b.Rewriter, b.Hold = new(flipper), 10*time.Millisecond })
		m.connect()
		atA := collect(m.A)
		answers := content(1, 1<<20)
		if _, err := m.B.Write(answers); err != nil {
			t.Fatal(err)
		}
		_ = m.B.CloseWrite()
		if got := <-atA; !bytes.Equal(got, flipped(answers)) {
			t.Errorf("A has got %d bytes of %d, or others", len(got), len(answers))
		}
		m.on.do(func() {
			if n := len(w.answered); n < most || most == 0 && n != len(answers) || !bytes.HasPrefix(flipped(answers), w.answered) {
				t.Errorf("the observer has seen %d bytes of %d, or others", n, len(answers))
			}
		})
	}
}

// TestRewriteIsForgotten: a session that has ended, whose memory is kept for another one, keeps no Rewriter.
func TestRewriteIsForgotten(t *testing.T) {
	t.Parallel()

	var collected atomic.Int64
	g, _, on := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, func(a *relay.Socket) {
		own := new(flipper)
		runtime.AddCleanup(own, func(int) { collected.Add(1) }, 0)
		a.Rewriter = own
	})
	g.cancel(errors.New("cut"))
	_, _ = g.wait()
	condition.Await(t, "the Rewriter is collected", func() bool {
		runtime.GC()
		return collected.Load() == 1
	})
	runtime.KeepAlive(on.sessions[0])
}
