package relay_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

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
	for _, c := range b {
		out = append(out, c, c)
	}
	return out
}

// transformed starts a session on a loop with Transforms of the bytes of each side; those of before are A's.
func transformed(t *testing.T, on *looped, ab, ba relay.Transform, hold time.Duration, before string) *plainSession {
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
		toB, toA := content(1, 1<<20), content(2, 50_000)
		copy(toB[len(toB)-9:], "abxxxxxxx") // which are held back when the end comes
		atA, atB := collect(j.A), collect(j.B)
		go func() { _ = send(j.A, toB, 70_001) }()
		if err := send(j.B, toA, 3000); err != nil {
			t.Error(err)
		}
		if got, want := <-atB, doubled(append([]byte("before xx"), toB...)); !bytes.Equal(got, want) {
			t.Errorf("B has got %d bytes of %d, or others", len(got), len(want))
		}
		if got := <-atA; !bytes.Equal(got, doubled(toA)) {
			t.Errorf("A has got %d bytes of %d, or others", len(got), 2*len(toA))
		}
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
	if _, err := j.A.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	j.on.turn()
	if _, err := j.A.Write(content(1, 1000)); err != nil {
		t.Fatal(err)
	}
	other, answer := newPlain(t, on), make([]byte, 5)
	on.do(other.start)
	for range 100 {
		for _, s := range []*plainSession{j, other} {
			if _, err := s.B.Write([]byte("bytes")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s.A, answer); err != nil {
				t.Fatal(err)
			}
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
		if _, err := j.A.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2*len(s))
		if _, err := io.ReadFull(j.B, got); err != nil || !bytes.Equal(got, doubled([]byte(s))) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if n := ab.quiet.Load(); n == 0 || n > 3 {
		t.Errorf("asked %d times", n)
	}
}

// TestTransformIsMirrored: the shadow gets the bytes as they became.
func TestTransformIsMirrored(t *testing.T) {
	t.Parallel()

	m := newMirroredBy(t, newRelay(t, nil), ofLoop(), tcp, time.Minute, func(_ *relay.Mirror, a *relay.Socket) {
		a.Transform, a.Hold, a.Ahead = new(doubler), 10*time.Millisecond, []byte("before")
	})
	m.connect()
	atB, atS, sent := collect(m.B), collect(m.S), []byte("before")
	for i := range 50 {
		b := content(uint64(i), 1+i*i)
		if _, err := m.A.Write(b); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, b...)
		m.mirrorUntil(func(res relay.MirrorResult) bool { return res.Teed+res.Copied >= int64(2*len(sent)-8) })
	}
	_ = m.A.CloseWrite()
	for what, at := range map[string]<-chan []byte{"B": atB, "the shadow": atS} {
		if got := <-at; !bytes.Equal(got, doubled(sent)) {
			t.Errorf("%s has got %d bytes of %d, or others", what, len(got), 2*len(sent))
		}
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
		if _, err := j.A.Write([]byte("no!")); err != nil {
			t.Fatal(err)
		}
		<-j.done
		if j.res.Reason != relay.ReasonError || j.err == nil || !strings.Contains(j.err.Error(), says) || j.res.AToB.Bytes() != 0 || d.closed.Load() != 1 {
			t.Errorf("%s: %+v, %v, closed %d times", says, j.res, j.err, d.closed.Load())
		}
		for _, c := range []net.Conn{j.A, j.B} {
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{c}); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: it has got %d bytes, and ended with %v", says, n, err)
			}
		}
	}
}

// TestTransformOfASlowSink: a sink that does not read stops the source, and nothing is lost; rates hold.
func TestTransformOfASlowSink(t *testing.T) {
	t.Parallel()

	j := transformed(t, ofLoop().looped(t, newRelay(t, nil)), new(doubler), nil, time.Hour, "")
	sent := content(3, 12<<20)
	_ = j.A.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	written, err := j.A.Write(sent)
	if err == nil {
		t.Fatal("A has written all")
	}
	_ = j.A.SetWriteDeadline(time.Now().Add(patience))
	atB := collect(j.B)
	if err := send(j.A, sent[written:], 1<<20); err != nil {
		t.Fatal(err)
	}
	if got := <-atB; !bytes.Equal(got, doubled(sent)) {
		t.Errorf("B has got %d bytes of %d", len(got), 2*len(sent))
	}
}
