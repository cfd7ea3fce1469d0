package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// A trapped is every callback of a session and its mirror. One of them, at, calls do the first time that it is called.
type trapped struct {
	*flipper
	on     *looped
	driven relay.Driven
	mirror relay.Mirror
	at     string
	do     func()
	fired  bool
	enough bool // the observer wants no more answers

	beneath net.Conn
	ends    int
	result  relay.Result
	err     error
	done    chan struct{}
	over    int // ends of the mirror
	seen    int // of observing
}

func (x *trapped) in(callback string) {
	if x.at == callback && !x.fired {
		x.fired = true
		x.do()
	}
}

func (x *trapped) Rewrite(b []byte, at int) (int, int, error) {
	x.in("Rewrite")
	return x.flipper.Rewrite(b, at)
}

func (x *trapped) Release(b []byte) (int, int, error) {
	x.in("Release")
	return x.flipper.Release(b)
}

func (x *trapped) Held() int {
	if n := x.flipper.Held(); n > 0 {
		x.in("Held")
	}
	return x.flipper.Held()
}

func (x *trapped) Sent([]byte) { x.in("Sent") }
func (x *trapped) Skipped(int) { x.in("Skipped") }
func (x *trapped) SentAll()    { x.in("SentAll") }
func (x *trapped) Answered([]byte) bool {
	x.in("Answered")
	return !x.enough || x.at == "ShadowAnswered"
}

func (x *trapped) ShadowAnswered([]byte) bool {
	x.in("ShadowAnswered")
	return !x.enough || x.at == "Answered"
}

// An observingOf a trapped is its observer, whose Ended is another one than the owner's.
type observingOf struct{ *trapped }

func (x observingOf) Ended(bool) { x.seen++; x.in("observer's Ended") }

func (x *trapped) MirrorEnded(*relay.Mirror, relay.MirrorResult) { x.over++; x.in("MirrorEnded") }

func (x *trapped) Ended(_ *relay.Driven, res relay.Result, err error) {
	x.in("Ended")
	if x.ends++; x.ends == 1 {
		x.result, x.err = res, err
		close(x.done)
	}
}

func (x *trapped) FirstByte(*relay.Driven, relay.Side)  { x.in("FirstByte") }
func (x *trapped) HalfClosed(*relay.Driven, relay.Side) { x.in("HalfClosed") }

// A trapLayer carries bytes as they are.
type trapLayer struct{ *trapped }

func (x trapLayer) Over(beneath net.Conn)       { x.beneath = beneath; x.in("Over") }
func (x trapLayer) Read(p []byte) (int, error)  { x.in("Read"); return x.beneath.Read(p) }
func (x trapLayer) Write(p []byte) (int, error) { x.in("Write"); return x.beneath.Write(p) }
func (x trapLayer) CloseWrite() error           { x.in("CloseWrite"); return nil }

// A trap is a session with the callback at which something is done.
type trap struct {
	at      string
	engine  relay.Engine
	rewrite bool // the bytes of A, which are not mirrored then
	layer   bool // over B
	enough  bool
	ahead   bool          // A's first bytes are read before
	close   func(x *rigs) // after the bytes
}

// rigs are the far ends of a trapped session.
type rigs struct{ A, B, S halfConn }

func closeA(x *rigs) { _ = x.A.CloseWrite() }

func closeAS(x *rigs) { _, _ = x.A.CloseWrite(), x.S.CloseWrite() }

var traps = []trap{
	{at: "Rewrite", rewrite: true},
	{at: "Release", rewrite: true},
	{at: "Held", rewrite: true},
	{at: "Sent", engine: relay.EngineCopy},
	{at: "Sent", engine: relay.EngineCopy, ahead: true},
	{at: "Skipped", engine: relay.EngineSplice},
	{at: "SentAll", close: closeA},
	{at: "Answered"},
	{at: "Answered", enough: true},
	{at: "ShadowAnswered"},
	{at: "ShadowAnswered", enough: true},
	{at: "observer's Ended", enough: true},
	{at: "observer's Ended", close: func(x *rigs) { _ = x.S.(*net.TCPConn).SetLinger(0); _ = x.S.Close() }},
	{at: "MirrorEnded", close: closeAS},
	{at: "MirrorEnded", close: func(x *rigs) { _ = x.S.(*net.TCPConn).SetLinger(0); _ = x.S.Close() }},
	{at: "FirstByte"},
	{at: "HalfClosed", close: closeA},
	{at: "FirstByteCame"},
	{at: "Limits.Answered"},
	{at: "Over", layer: true},
	{at: "Read", layer: true},
	{at: "Write", layer: true},
	{at: "CloseWrite", layer: true, close: closeA},
	{at: "Ended", close: func(x *rigs) { _, _ = x.A.CloseWrite(), x.B.CloseWrite() }},
}

// spring starts the session, has bytes go all ways, and returns after the callback.
func (c trap) spring(t *testing.T, on *looped, do func(x *trapped)) *trapped {
	t.Helper()
	x := &trapped{flipper: new(flipper), on: on, at: c.at, enough: c.enough, done: make(chan struct{})}
	x.do = func() { do(x) }
	var far rigs
	var near [3]net.Conn
	for i, p := range []*halfConn{&far.A, &far.B, &far.S} {
		*p, near[i] = tcp(t)
		_ = (*p).SetDeadline(time.Now().Add(patience))
	}
	a, b, s := on.take(near[0]), on.take(near[1]), on.take(near[2])
	if c.ahead {
		a.Ahead = []byte("ahead")
	}
	if c.rewrite {
		a.Rewriter, a.Hold = x, time.Millisecond
	}
	if c.layer {
		b.Layer = trapLayer{x}
	}
	limits := &relay.Limits{FirstByte: 50 * time.Millisecond, Answered: func() { x.in("Limits.Answered") }}
	limits.FirstByteCame = func(time.Duration, bool) { x.in("FirstByteCame") }
	if _, err := far.B.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	on.do(func() {
		var errs [3]error
		a.ID, errs[0] = on.loop.Add(a.FD, 0, &x.driven)
		b.ID, errs[1] = on.loop.Add(b.FD, 1, &x.driven)
		s.ID, errs[2] = on.loop.Add(s.FD, 0, &x.mirror)
		if err := errors.Join(errs[:]...); err != nil {
			t.Error(err)
		}
		on.driver.StartMirror(&x.mirror, time.Minute, x)
		x.mirror.Observe(observingOf{x})
		x.mirror.Connected(s)
		a.Mirror = &x.mirror
		on.driver.StartLimited(&x.driven, a, b, x, limits)
	})
	_, _ = far.A.Write([]byte("message xxx"))
	_, _ = far.S.Write([]byte("other answer"))
	if c.close != nil {
		on.turn()
		c.close(&far)
	}
	t.Cleanup(func() {
		on.do(func() { x.driven.Cut(errors.New("test is over")); x.mirror.Cut() })
		<-x.done
	})
	fired := false
	for deadline := time.Now().Add(patience); !fired; time.Sleep(100 * time.Microsecond) {
		if on.do(func() { fired = x.fired }); time.Now().After(deadline) {
			t.Fatal("the callback was not called")
		}
	}
	return x
}

// TestCutWithin: a session, or its mirror, may be cut within every callback; it ends once, with that cause, and what it
// had is given back.
func TestCutWithin(t *testing.T) {
	t.Parallel()

	for _, c := range traps {
		for _, mirror := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v/%v", c, mirror), func(t *testing.T) {
				cause := errors.New("cut within")
				on := ofLoop().looped(t, newRelay(t, &relay.Config{Engine: c.engine}))
				x := c.spring(t, on, func(x *trapped) {
					if mirror {
						x.mirror.Cut()
						x.mirror.Cut()
						return
					}
					x.driven.Cut(cause)
					x.driven.Cut(errors.New("the second cause"))
				})
				if mirror {
					on.do(func() {
						if x.ends > 0 && c.at != "Over" && c.at != "Ended" {
							t.Errorf("the session has ended with %v", x.err)
						}
					})
					return
				}
				<-x.done
				on.turn()
				on.do(func() {
					if x.ends != 1 || c.at != "Ended" && (x.result.Reason != relay.ReasonCanceled || !errors.Is(x.err, cause)) {
						t.Errorf("%d ends, %v, %v", x.ends, x.result.Reason, x.err)
					}
					x.mirror.Cut()
					if x.over != 1 || x.seen != 1 {
						t.Errorf("%d ends of the mirror, %d of observing", x.over, x.seen)
					}
				})
			})
		}
	}
}

// TestOthersWithin: within every callback another session may be cut and a third one started. Neither gets bytes of the
// one that is being moved, and no bytes of its own are lost.
func TestOthersWithin(t *testing.T) {
	t.Parallel()

	for _, c := range traps {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			on := ofLoop().looped(t, newRelay(t, &relay.Config{Engine: c.engine}))
			second, third := newPlain(t, on), newPlain(t, on)
			on.do(second.start)
			own := []byte("the third one's own")
			if _, err := third.A.Write(own); err != nil {
				t.Fatal(err)
			}
			c.spring(t, on, func(*trapped) {
				second.s.driven.Cut(errors.New("cut by another"))
				third.start()
			})
			<-second.done
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{second.B}); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes have come to the session that was cut, %v", n, err)
			}
			_ = third.A.CloseWrite()
			got, err := io.ReadAll(third.B)
			if err != nil || !bytes.Equal(got, own) {
				t.Errorf("the third session has moved %q, %v", got, err)
			}
		})
	}
}

// TestStartWithinMoves: a session that is started while another one's bytes are being rewritten leaves those alone.
func TestStartWithinMoves(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	x := &trapped{flipper: new(flipper), on: on, at: "Rewrite"}
	third := newPlain(t, on)
	if _, err := third.A.Write(bytes.Repeat([]byte("?"), 1000)); err != nil {
		t.Fatal(err)
	}
	x.do = third.start
	first := newPlain(t, on)
	first.a.Rewriter, first.a.Hold = x, time.Millisecond
	on.do(first.start)
	sent := content(5, 1000)
	if _, err := first.A.Write(sent); err != nil {
		t.Fatal(err)
	}
	_ = first.A.CloseWrite()
	if got, err := io.ReadAll(first.B); err != nil || !bytes.Equal(got, flipped(sent)) {
		t.Errorf("%d bytes of %d have come, or others; %v", len(got), len(sent), err)
	}
}

// A plainSession is a session that the test starts on the loop.
type plainSession struct {
	t    testing.TB
	on   *looped
	A, B halfConn
	a, b relay.Socket
	s    *loopSession
	done chan struct{}
	res  relay.Result
	err  error
}

func newPlain(t *testing.T, on *looped) *plainSession {
	t.Helper()
	j := &plainSession{t: t, on: on, done: make(chan struct{})}
	var nearA, nearB net.Conn
	j.A, nearA = tcp(t)
	j.B, nearB = tcp(t)
	for _, c := range []net.Conn{j.A, j.B} {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	j.a, j.b = on.take(nearA), on.take(nearB)
	j.s = &loopSession{on: on, ended: func(res relay.Result, err error) { j.res, j.err = res, err; close(j.done) }}
	return j
}

// start is called on the loop.
func (j *plainSession) start() {
	var errA, errB error
	j.a.ID, errA = j.on.loop.Add(j.a.FD, 0, &j.s.driven)
	j.b.ID, errB = j.on.loop.Add(j.b.FD, 1, &j.s.driven)
	if err := errors.Join(errA, errB); err != nil {
		j.t.Error(err)
		return
	}
	j.on.driver.Start(&j.s.driven, j.a, j.b, j.s)
	j.t.Cleanup(func() {
		j.s.cut(errors.New("test is over"))
		<-j.done
	})
}
