package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A flipper is a Transform that inverts all bits at once, and holds back at most 4 bytes x at the end of what has come.
type flipper struct {
	held, out []byte
	fail      byte // with which it fails; 0: it does not
	err       error
}

var errFlipper = errors.New("the flipper has failed")

func (f *flipper) Begin(func()) {}
func (f *flipper) Most() int    { return 50_000 }

func (f *flipper) Put(b []byte) {
	if f.fail != 0 && bytes.IndexByte(b, f.fail) >= 0 {
		f.err = errFlipper
	}
	f.held = append(f.held, b...)
	n := len(f.held)
	for len(b) > 0 && n > 0 && len(f.held)-n < 4 && f.held[n-1] == 'x' {
		n--
	}
	f.out, f.held = append(f.out, flipped(f.held[:n])...), f.held[n:]
}

func (f *flipper) End() { f.Put(nil) }

func (f *flipper) Take(b []byte) (n int, busy bool, err error) {
	if f.err != nil {
		return 0, false, f.err
	}
	n = copy(b, f.out)
	f.out = f.out[n:]
	return n, false, nil
}

func (f *flipper) Held() int { return len(f.held) + len(f.out) }
func (f *flipper) Close()    {}

func flipped(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] = ^b[i]
	}
	return b
}

// rewritten starts a session on a loop with a flipper of what A sends, and one of what B sends. change may change A's socket.
func rewritten(t *testing.T, d *driving, r *relay.Relay, network network, limits *relay.Limits, change func(a *relay.Socket)) (g *rig, ab *flipper, on *looped) {
	t.Helper()
	ab = new(flipper)
	d.limits, d.change = limits, func(a, b *relay.Socket) {
		a.Transform, a.Hold = ab, 10*time.Millisecond
		b.Transform, b.Hold = new(flipper), 10*time.Millisecond
		if change != nil {
			change(a)
		}
	}
	return d.newRig(t, r, network, network), ab, d.looped(t, r)
}

// changers are a Transform that works at once, another on goroutines, and what they make of bytes.
var changers = map[string]struct {
	set   func(s *relay.Socket)
	made  func(b []byte) []byte
	times int64 // as many bytes
}{
	"flipper": {func(s *relay.Socket) { s.Transform = new(flipper) }, flipped, 1},
	"doubler": {func(s *relay.Socket) { s.Transform = new(doubler) }, doubled, 2},
}

// TestRewriteIsMirrored: the shadow gets the bytes as they became.
func TestRewriteIsMirrored(t *testing.T) {
	t.Parallel()

	for _, c := range changers {
		m := newMirroredBy(t, newRelay(t, nil), ofLoop(), tcp, time.Minute, func(_ *relay.Mirror, a *relay.Socket) {
			c.set(a)
			a.Hold, a.Ahead = 10*time.Millisecond, []byte("before")
		})
		m.connect()
		atB, atS, sent := collect(m.B), collect(m.S), []byte("before")
		for i := range 60 {
			b := content(uint64(i), 1+2*i*i)
			write(t, m.A, b)
			sent = append(sent, b...)
			m.mirrorUntil(func(res driver.MirrorResult) bool { return res.Teed+res.Copied >= c.times*int64(len(sent)-4) })
		}
		_ = m.A.CloseWrite()
		arrives(t, atB, c.made(sent))
		arrives(t, atS, c.made(sent))
	}
}

// TestRewriteOfASlowSink: a sink that does not read stops the source, and nothing is lost.
func TestRewriteOfASlowSink(t *testing.T) {
	t.Parallel()

	for name, c := range changers {
		on := ofLoop().looped(t, newRelay(t, nil))
		j := newPlainOf(t, on, smallTCP, smallTCP)
		c.set(&j.a)
		j.a.Hold = time.Hour
		on.do(j.start)
		sent := content(3, 6<<20)
		_ = j.A.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		written, err := j.A.Write(sent)
		if err == nil {
			t.Fatalf("%s: A has written all", name)
		}
		_ = j.A.SetWriteDeadline(time.Now().Add(condition.Patience))
		atB := collect(j.B)
		must.Do(t, send(j.A, sent[written:], 1<<20))
		arrives(t, atB, c.made(sent))
	}
}

// other passes a secret through another session, so that it has been in the loop's memory.
func other(t *testing.T, on *looped) {
	t.Helper()
	j, secret := newPlain(t, on), bytes.Repeat([]byte("secret"), 8000)
	on.do(j.start)
	pass(t, j.A, j.B, secret)
}

// TestTransformSeesNoOthers: the memory that a Transform is passed has nothing of other sessions. Bytes that it claims and has not
// written are zero.
func TestTransformSeesNoOthers(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	other(t, on)
	w := &wrongTransform{claim: 10_000}
	j := transformed(t, on, w, nil, time.Hour, "")
	write(t, j.A, "four")
	_ = j.A.CloseWrite()
	sockets.ExpectAll(t, j.B, make([]byte, 40_000))
	on.do(func() {
		if w.saw {
			t.Error("the memory of Take is not zero")
		}
	})
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
				toB, toA := content(1, 1<<20), content(2, 1<<20)
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
				must.Do(t, send(g.B, toA, 64<<10))
				all := append(bytes.Clone(ahead), toB...)
				arrives(t, atB, flipped(all))
				arrives(t, atA, flipped(toA))
				res := g.checkClean(len(all), len(toA))
				if res.AToB.Spliced+res.BToA.Spliced != 0 || res.AToB.Fallbacks[relay.FallbackRewrite] != 1 || res.BToA.Fallbacks[relay.FallbackRewrite] != 1 {
					t.Errorf("%+v", res)
				}
			})
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
		condition.Await(t, fmt.Sprintf("%d bytes are held back", want), func() (held bool) { on.do(func() { held = len(ab.held) == want }); return held })
	}
	write := func(s string) {
		t.Helper()
		write(t, g.A, s)
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
	for n := 1; n < 3; n++ { // it would go on with the next one, except for the time
		clock.advance(6 * time.Millisecond)
		if n == 1 {
			write("x")
			held(2)
		}
	}
	came(6)
	must.Do(t, g.A.CloseWrite())
	arrives(t, collect(g.B), flipped([]byte("abxxxx")))
}

// TestRewriteOfAReset: after a reset of the source what is held back is dropped, and counted as lost; B is reset.
func TestRewriteOfAReset(t *testing.T) {
	t.Parallel()

	g, _, _ := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, func(a *relay.Socket) { a.Hold = time.Hour })
	write(t, g.A, []byte("abcxxx"))
	g.until("all but what is held back has come", func(res relay.Result) bool { return res.AToB.Bytes() == 3 })
	abort(t, g.A)
	res, err := g.wait()
	if !errors.Is(err, syscall.ECONNRESET) || res.Reason != relay.ReasonReset || res.AToB.Lost != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	must.Fail(io.Copy(io.Discard, struct{ io.Reader }{g.B}))(t, syscall.ECONNRESET)
}

// TestRewriteFails: an error of the Transform ends the session by resets. Nothing from the failed read on is passed on.
func TestRewriteFails(t *testing.T) {
	t.Parallel()

	g, ab, on := rewritten(t, ofLoop(), newRelay(t, nil), tcp, nil, nil)
	on.do(func() { ab.fail = '!' })
	pass := make([]byte, 2)
	write(t, g.A, []byte("ok"))
	readFull(t, g.B, pass)
	write(t, g.A, []byte("no!"))
	res, err := g.wait()
	if !errors.Is(err, errFlipper) || res.Reason != relay.ReasonError || res.AToB.Bytes() != 2 || res.AToB.Lost != 3 {
		t.Errorf("%+v, %v", res, err)
	}
	for _, c := range []net.Conn{g.A, g.B} {
		isReset(t, c)
	}
}

// TestRewriteIsLimited: a rate holds for the bytes that are read, with those read before.
func TestRewriteIsLimited(t *testing.T) {
	t.Parallel()

	limits := &relay.Limits{PerConnection: relay.Rates{AToB: 8 << 20, Burst: 64 << 10}}
	g, _, _ := rewritten(t, ofLoop(), newRelay(t, nil), tcp, limits, func(a *relay.Socket) { a.Ahead = []byte("before xx") })
	atB, sent, began := collect(g.B), content(4, 2<<20), time.Now()
	must.Do(t, send(g.A, sent, 1<<20))
	arrives(t, atB, flipped(append([]byte("before xx"), sent...)))
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("2 MiB at 8 MiB/s have taken %v", took)
	}
}

// TestRewriteOfALayer: decrypted bytes are rewritten.
func TestRewriteOfALayer(t *testing.T) {
	t.Parallel()

	eachLayered(t, func(t *testing.T, spoken [2]bool) {
		g := newLayeredRigOf(t, spoken, nil, [2]string{}, func(s *relay.Socket) { s.Transform, s.Hold = new(flipper), 10*time.Millisecond })
		for i, far := range g.far {
			sent := append(content(uint64(i), 200_000), "xxx"...)
			got := collect(g.far[1-i])
			write(t, far, sent)
			must.Do(t, far.CloseWrite())
			if b := <-got; !bytes.Equal(b, flipped(sent)) {
				t.Errorf("%d bytes came of %d, or others", len(b), len(sent))
			}
		}
		<-g.done
		if r := g.res; r.Reason != relay.ReasonEOF || r.AToB.Fallbacks[relay.FallbackRewrite] != 1 || r.AToB.Lost+r.BToA.Lost != 0 {
			t.Errorf("%+v, %v", r, g.err)
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
			func(b *relay.Socket) { b.Transform, b.Hold = new(flipper), 10*time.Millisecond })
		m.connect()
		atA := collect(m.A)
		answers := content(1, 200_000)
		write(t, m.B, answers)
		_ = m.B.CloseWrite()
		arrives(t, atA, flipped(answers))
		m.on.do(func() {
			if n := len(w.answered); n < most || most == 0 && n != len(answers) || !bytes.HasPrefix(flipped(answers), w.answered) {
				t.Errorf("the observer has seen %d bytes of %d, or others", n, len(answers))
			}
		})
	}
}

// A doubler is a Transform that has each byte twice, on goroutines. It holds back bytes x at the end of those that have come, until more
// comes or nothing does.
type doubler struct {
	most int           // of Put; 0: 10,000
	gate chan struct{} // that work waits for; nil: it does not
	fail byte          // with which it fails; 0: it does not
	more int           // bytes that Take claims beyond those that there are

	wake   func()
	mu     sync.Mutex
	data   []byte // that is held
	out    []byte
	busy   bool
	err    error
	quiet  atomic.Int32 // calls of Put without bytes
	ended  atomic.Int32
	closed atomic.Int32
}

func (d *doubler) Begin(wake func()) { d.wake = wake }

func (d *doubler) Most() int {
	if d.most == 0 {
		return 10_000
	}
	return d.most
}

func (d *doubler) Put(b []byte) {
	if len(b) == 0 {
		d.quiet.Add(1)
	}
	d.work(bytes.Clone(b), len(b) == 0)
}

func (d *doubler) End() {
	d.ended.Add(1)
	d.work(nil, true)
}

func (d *doubler) work(b []byte, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy, d.data = true, append(d.data, b...)
	go func() {
		if d.gate != nil {
			<-d.gate
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		n := len(d.data)
		for !all && n > 0 && d.data[n-1] == 'x' {
			n--
		}
		if d.fail != 0 && bytes.IndexByte(d.data, d.fail) >= 0 {
			d.err = errFlipper
		}
		d.out, d.data, d.busy = append(d.out, doubled(d.data[:n])...), d.data[n:], false
		d.wake()
	}()
}

func (d *doubler) Take(b []byte) (n int, busy bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, false, d.err
	}
	n = copy(b, d.out)
	d.out = d.out[n:]
	return n + d.more, d.busy, nil
}

func (d *doubler) Held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.data) + len(d.out)
}

func (d *doubler) Close() { d.closed.Add(1) }

func doubled(b []byte) (out []byte) {
	out = make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, c, c)
	}
	return out
}

// transformed starts a session on a loop with Transforms of the bytes of each side; those of before are A's.
func transformed(t *testing.T, on *looped, ab, ba driver.Transform, hold time.Duration, before string) *plainSession {
	t.Helper()
	j := newPlain(t, on)
	j.a.Transform, j.a.Hold = ab, hold
	if ba != nil {
		j.b.Transform, j.b.Hold = ba, hold
	}
	if before != "" {
		j.a.Ahead = []byte(before)
	}
	on.do(j.start)
	return j
}

// TestTransform: both sides get the other's bytes as they became, which are more, to the end of file, with the bytes that were read
// before; they are copied, and the fallback says why.
func TestTransform(t *testing.T) {
	t.Parallel()

	for _, e := range []relay.Engine{relay.EngineAuto, relay.EngineCopy} {
		ab, ba := new(doubler), &doubler{most: 100}
		j := transformed(t, ofLoop().looped(t, newRelay(t, &relay.Config{Engine: e})), ab, ba, time.Hour, "before xx")
		toB, toA := content(1, 300_000), content(2, 20_000)
		copy(toB[len(toB)-9:], "abxxxxxxx") // which are held back when the end comes
		atA, atB := collect(j.A), collect(j.B)
		go func() { _ = send(j.A, toB, 70_001) }()
		must.Do(t, send(j.B, toA, 3000))
		if got, want := <-atB, doubled(append([]byte("before xx"), toB...)); !bytes.Equal(got, want) {
			t.Errorf("B has got %d bytes of %d, or others", len(got), len(want))
		}
		arrives(t, atA, doubled(toA))
		<-j.done
		if r := j.res; r.Reason != relay.ReasonEOF || r.AToB.Spliced != 0 || r.AToB.Fallbacks[relay.FallbackRewrite] != 1 || r.AToB.Lost+r.BToA.Lost != 0 || r.BToA.Copied != int64(2*len(toA)) {
			t.Errorf("%+v, %v", r, j.err)
		}
		if ab.ended.Load() != 1 || ab.closed.Load() != 1 || ba.closed.Load() != 1 {
			t.Errorf("ended %d times, closed %d and %d", ab.ended.Load(), ab.closed.Load(), ba.closed.Load())
		}
	}
}

// TestTransformStallsNoOther: while one works, its side is not read, and other sessions of the loop go on, as does its own
// other direction. It is closed when the session is cut, and bytes in work are counted as lost.
func TestTransformStallsNoOther(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	works := &doubler{gate: make(chan struct{})}
	j := transformed(t, on, works, nil, time.Millisecond, "")
	write(t, j.A, []byte("question"))
	j.on.turn()
	write(t, j.A, content(1, 1000))
	other, answer := newPlain(t, on), make([]byte, 5)
	on.do(other.start)
	for range 100 {
		for _, s := range []*plainSession{j, other} {
			write(t, s.B, []byte("bytes"))
			readFull(t, s.A, answer)
		}
	}
	on.do(func() {
		if n := j.s.driven.Buffers(); n != 0 {
			t.Errorf("it holds %d buffers", n)
		}
	})
	j.s.cut(errors.New("cut"))
	<-j.done
	if j.res.AToB.Lost != 1008 || j.res.AToB.Bytes() != 0 || works.closed.Load() != 1 {
		t.Errorf("%+v, closed %d times", j.res, works.closed.Load())
	}
	close(works.gate) // a wake after the end is none
	on.turn()
}

// TestTransformIsAsked: when nothing comes for a while, bytes that are held back are asked about, once.
func TestTransformIsAsked(t *testing.T) {
	t.Parallel()

	ab := new(doubler)
	j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), ab, nil, time.Millisecond, "")
	for _, s := range []string{"abxx", "x", "cd"} {
		write(t, j.A, []byte(s))
		got := make([]byte, 2*len(s))
		if _, err := io.ReadFull(j.B, got); err != nil || !bytes.Equal(got, doubled([]byte(s))) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := ab.quiet.Load(); n == 0 || n > 3 {
		t.Errorf("asked %d times", n)
	}
}

// TestTransformFails: an error, and a result that it may not return, end the session by resets of both sides.
func TestTransformFails(t *testing.T) {
	t.Parallel()

	for says, d := range map[string]*doubler{
		errFlipper.Error():      {fail: '!'},
		"Most returned -1":      {most: -1},
		"Take returned 1234567": {more: 123456700}, // and what became of the bytes, if they came before it began
	} {
		j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), d, nil, time.Hour, "")
		write(t, j.A, []byte("no!"))
		<-j.done
		if j.res.Reason != relay.ReasonError || j.err == nil || !strings.Contains(j.err.Error(), says) || j.res.AToB.Bytes() != 0 || d.closed.Load() != 1 {
			t.Errorf("%s: %+v, %v, closed %d times", says, j.res, j.err, d.closed.Load())
		}
		for _, c := range []net.Conn{j.A, j.B} {
			isReset(t, c)
		}
	}
}

// A wrongTransform is a Transform of which a test has each byte that came take the place of claim bytes, of which it writes none.
type wrongTransform struct {
	claim, held, came int
	last              int   // as many as that come at the end
	fail              error // of Take after End
	saw, ended        bool  // bytes in the memory of Take; the end
}

func (*wrongTransform) Begin(func())   {}
func (*wrongTransform) Most() int      { return 1000 }
func (w *wrongTransform) Put(b []byte) { w.came += len(b) }
func (w *wrongTransform) End()         { w.ended, w.came = true, w.last }

func (w *wrongTransform) Take(b []byte) (n int, busy bool, err error) {
	w.saw = w.saw || bytes.ContainsFunc(b[:cap(b)], func(r rune) bool { return r != 0 })
	if w.ended {
		err = w.fail
	}
	n = w.came * w.claim
	w.came = 0
	return n, false, err
}

func (w *wrongTransform) Held() int { return w.held }
func (*wrongTransform) Close()      {}

// An endless Transform makes bytes without end of the first that comes.
type endless struct{ wrongTransform }

func (w *endless) Take(b []byte) (int, bool, error) { return min(w.came, 1) * len(b), false, nil }

// TestTransformLosesNoMoreThanCame: bytes that a Transform has added are not lost when B is reset.
func TestTransformLosesNoMoreThanCame(t *testing.T) {
	t.Parallel()

	j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), new(endless), nil, time.Hour, "")
	write(t, j.A, "hello")
	readFull(t, j.B, make([]byte, 5))
	abort(t, j.B)
	<-j.done
	if f := j.res.AToB; j.res.Reason != relay.ReasonReset || f.Bytes() < 5 || f.Lost != 5 {
		t.Errorf("%+v", j.res)
	}
}

// TestTransformHoldsBackAtTheEnd: bytes that a Transform still holds at the end, though it does not work, are no clean end, and neither is
// an error of Take after End.
func TestTransformHoldsBackAtTheEnd(t *testing.T) {
	t.Parallel()

	for says, w := range map[string]*wrongTransform{
		"Held returned 7":       {held: 7},
		"Held returned -1":      {held: -1},
		errFlipper.Error():      {fail: errFlipper},
		"Take returned 1000000": {last: 1, claim: 1_000_000},
	} {
		j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), w, nil, time.Hour, "")
		if w.held > 0 {
			write(t, j.A, []byte("hello"))
		}
		_ = j.A.CloseWrite()
		<-j.done
		if j.res.Reason != relay.ReasonError || j.err == nil || !strings.Contains(j.err.Error(), says) || j.res.AToB.Lost != int64(max(0, min(w.held, 5))) {
			t.Errorf("%s: %+v, %v", says, j.res, j.err)
		}
		if w.fail == nil && !errors.Is(j.err, driver.ErrTransform) {
			t.Error(j.err)
		}
		for _, c := range []net.Conn{j.A, j.B} {
			if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: it has ended with %v", says, err)
			}
		}
	}
}
