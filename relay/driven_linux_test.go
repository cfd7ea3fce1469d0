package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// TestUnheardReset: a side from which nobody reads is reset: its end has been seen, or
// what it has sent is stuck before a peer that does not read, or both its end has been
// seen and it does not read what is sent to it. The session ends anyway, though no
// timeout is set and nobody writes.
func TestUnheardReset(t *testing.T) {
	t.Parallel()

	passEnd := func(t *testing.T, g *rig) {
		_ = g.A.CloseWrite()
		must.Do(t, expect(g.B, nil))
	}
	for name, before := range map[string]func(t *testing.T, g *rig){
		"ended":                passEnd,
		"blocked":              func(t *testing.T, g *rig) { fillUp(t, g.A) },
		"ended, other blocked": func(t *testing.T, g *rig) { passEnd(t, g); fillUp(t, g.B) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range engines {
				r := newRelay(t, &relay.Config{Engine: e})
				r.SetLinger(100 * time.Millisecond)
				g := ofLoop().newRig(t, r, smallTCP, smallTCP)
				before(t, g)
				abort(t, g.A)
				res, err := g.wait()
				if res.Reason != relay.ReasonReset || err == nil || name == "blocked" && res.AToB.Reason == relay.ReasonEOF {
					t.Fatalf("%v: %+v, %v", e, res, err)
				}
				if _, err = g.B.Write([]byte("x")); err == nil { // the write or what follows
					_, _, err = receive(g.B)
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Fatalf("%v: B is not reset: %v", e, err)
				}
			}
		})
	}
}

// A recorder is a handler that keeps what it is told.
type recorder struct {
	seen loop.Events
	want loop.Events
	done chan struct{}
}

func (r *recorder) Ready(_ uint8, events loop.Events) {
	had := r.seen&r.want == r.want
	if r.seen |= events; !had && r.seen&r.want == r.want {
		close(r.done)
	}
}

// TestResetBeforeStart: a side has been reset before the session begins, and the loop
// has told so already. What it had sent is delivered as far as it goes, and is not
// called a whole.
func TestResetBeforeStart(t *testing.T) {
	t.Parallel()

	for _, n := range []int{0, 5, 8 << 20} {
		r := newRelay(t, nil)
		on := ofLoop().looped(t, r)
		A, nearA := tcp(t)
		nearB, B := tcp(t)
		if n > 1000 { // more than B's side takes, so that nobody reads A's to the end
			_ = nearA.(*net.TCPConn).SetReadBuffer(n)
			_ = nearB.(*net.TCPConn).SetWriteBuffer(4096)
		}
		sent := 0
		if n > 0 {
			sent = int(writeNow(t, A, n))
		}
		rec := &recorder{want: loop.Failed, done: make(chan struct{})}
		a, b := on.take(nearA), on.take(nearB)
		on.do(func() { a.ID, _ = on.loop.Add(a.FD, 0, rec) })
		abort(t, A)
		<-rec.done
		ended := make(chan outcome, 1)
		s := &loopSession{on: on, ended: func(res relay.Result, err error) { ended <- outcome{res, err} }}
		on.do(func() {
			a.Events = rec.seen
			b.ID, _ = on.loop.Add(b.FD, 1, &s.driven)
			on.driver.Start(&s.driven, a, b, s)
		})
		o := end(t, ended)
		if o.result.Reason != relay.ReasonReset || o.err == nil || o.result.AToB.Reason == relay.ReasonEOF {
			t.Fatalf("%d bytes: %+v, %v", n, o.result, o.err)
		}
		f := o.result.AToB
		if n <= 5 && f.Bytes() != int64(sent) || f.Bytes()+f.Lost > 2*int64(sent) {
			t.Fatalf("sent %d: %+v", sent, f)
		}
		if _, _, err := receive(B.(io.Reader)); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%d bytes: B sees %v", n, err)
		}
	}
}

// writeNow writes at most n bytes, as far as they go without anybody reading.
func writeNow(t *testing.T, c halfConn, n int) (sent int64) {
	t.Helper()
	fd := sockets.FD(t, c.(*net.TCPConn))
	for b := content(5, n); len(b) > 0; {
		m, err := sys.Send(fd, b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		if err != nil {
			break
		}
		b, sent = b[m:], sent+int64(m)
	}
	return sent
}

// again is an owner that starts the same session again, and cuts it where that must do
// nothing.
type again struct {
	on    *looped
	s     relay.Driven
	pairs [][2]relay.Socket
	ends  chan outcome
}

func (o *again) next() {
	pair := o.pairs[0]
	o.pairs = o.pairs[1:]
	pair[0].ID, _ = o.on.loop.Add(pair[0].FD, 0, &o.s)
	pair[1].ID, _ = o.on.loop.Add(pair[1].FD, 1, &o.s)
	o.on.driver.Start(&o.s, pair[0], pair[1], o)
}

func (o *again) Ended(s *relay.Driven, res relay.Result, err error) {
	s.Cut(errors.New("after the end"))
	o.ends <- outcome{res, err}
	if len(o.pairs) > 0 {
		o.next()
	}
}

// TestDrivenAgain: the owner starts the same Driven again, from within the end of the
// last session, with whatever ended that.
func TestDrivenAgain(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	o := &again{on: on, ends: make(chan outcome, 100)}
	var far [][2]halfConn
	for range 9 {
		A, nearA := tcp(t)
		nearB, B := tcp(t)
		far = append(far, [2]halfConn{A, B.(halfConn)})
		o.pairs = append(o.pairs, [2]relay.Socket{on.take(nearA), on.take(nearB)})
	}
	why := errors.New("cut by the test")
	on.do(func() { o.s.Cut(why); o.next() }) // before Start a cut does nothing
	for i, pair := range far {
		must.Do(t, ping(pair[0], pair[1], byte(i)))
		want := relay.ReasonEOF
		switch i % 3 {
		case 0:
			_, _ = pair[0].CloseWrite(), pair[1].CloseWrite()
		case 1:
			want = relay.ReasonReset
			abort(t, pair[1])
		case 2:
			want = relay.ReasonCanceled
			on.do(func() { o.s.Cut(why) })
		}
		if e := end(t, o.ends); e.result.Reason != want || e.result.AToB.Bytes() != 1 || e.result.BToA.Bytes() != 0 {
			t.Fatalf("round %d: %+v, %v; want %v", i, e.result, e.err, want)
		}
	}
	on.do(func() { o.s.Cut(why) })
	if len(o.ends) != 0 {
		t.Error("a session ended twice")
	}
}

// TestEndsWithinStart: all has been sent and told already; Ended is called before
// Start returns.
func TestEndsWithinStart(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	A, nearA := tcp(t)
	nearB, B := tcp(t)
	for _, c := range []halfConn{A, B.(halfConn)} {
		must.Do(t, send(c, []byte("all"), 3))
	}
	var recs [2]*recorder
	socks := [2]relay.Socket{on.take(nearA), on.take(nearB)}
	for i := range socks {
		recs[i] = &recorder{want: loop.Readable | loop.PeerClosed | loop.Writable, done: make(chan struct{})}
		on.do(func() { socks[i].ID, _ = on.loop.Add(socks[i].FD, uint8(i), recs[i]) })
		<-recs[i].done
	}
	ended := false
	s := &loopSession{on: on, ended: func(res relay.Result, err error) {
		ended = err == nil && res.AToB.Bytes() == 3 && res.BToA.Bytes() == 3
	}}
	on.do(func() {
		socks[0].Events, socks[1].Events = recs[0].seen, recs[1].seen
		on.driver.Start(&s.driven, socks[0], socks[1], s)
		if !ended {
			t.Errorf("not ended well within Start: %+v", s.driven.Result())
		}
	})
	for _, c := range []net.Conn{A, B} {
		must.Do(t, expect(c, []byte("all")))
	}
}

// TestUnixDescriptors: a peer of a unix socket sends descriptors along. They are
// dropped, and where they were a read stops short of what follows.
func TestUnixDescriptors(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
		for _, wait := range []bool{false, true} {
			far, near := sockets.UnixPair(t)
			rights := syscall.UnixRights(0)
			var want []byte
			for i := range 5 {
				piece := content(uint64(i), 100)
				want = append(want, piece...)
				if _, _, err := far.WriteMsgUnix(piece, rights, nil); err != nil {
					t.Fatal(err)
				}
			}
			if !wait {
				_ = far.CloseWrite()
			}
			g := d.newRig(t, r, func(testing.TB) (halfConn, net.Conn) { return far, near }, tcp)
			if wait {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(g.B, got); err != nil || string(got) != string(want) {
					t.Fatalf("got other bytes, or %v", err)
				}
				_ = far.CloseWrite()
				want = nil
			}
			must.Do(t, expect(g.B, want))
			_ = g.B.CloseWrite()
			g.checkClean(500, 0)
		}
	})
}

// TestMoved: what the owner has moved counts, and the next write is not held back for the
// acknowledgement of the owner's.
func TestMoved(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j := newPlain(t, on)
	must.Do(t, sys.SetsockoptInt(j.b.FD, sys.IPPROTO_TCP, sys.TCP_NODELAY, 0))
	j.a.NoDelay, j.b.NoDelay, j.a.Moved = true, false, 7
	on.do(j.start)
	must.Do(t, ping64(j.A, j.B, 1))
	on.do(func() {
		if on, err := sys.GetsockoptInt(j.b.FD, sys.IPPROTO_TCP, sys.TCP_NODELAY); err != nil || on == 0 {
			t.Errorf("TCP_NODELAY of the endpoint's socket is %d, %v, after its second write", on, err)
		}
	})
	_, _ = j.A.CloseWrite(), j.B.CloseWrite()
	if <-j.done; j.res.AToB.Copied != 64+7 || j.res.BToA.Bytes() != 0 {
		t.Errorf("%+v", j.res)
	}
}

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

func (x *trapped) Put(b []byte) {
	x.in("Put")
	x.flipper.Put(b)
}

func (x *trapped) Take(b []byte) (int, bool, error) {
	x.in("Take")
	return x.flipper.Take(b)
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

func (x *trapped) MirrorEnded(*relay.Mirror, driver.MirrorResult) { x.over++; x.in("MirrorEnded") }

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
	{at: "Put", rewrite: true},
	{at: "Take", rewrite: true},
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
		_ = (*p).SetDeadline(time.Now().Add(condition.Patience))
	}
	a, b, s := on.take(near[0]), on.take(near[1]), on.take(near[2])
	if c.ahead {
		a.Ahead = []byte("ahead")
	}
	if c.rewrite {
		a.Transform, a.Hold = x, time.Millisecond
	}
	if c.layer {
		b.Layer = trapLayer{x}
	}
	limits := &relay.Limits{FirstByte: 50 * time.Millisecond, Answered: func() { x.in("Limits.Answered") }}
	limits.FirstByteCame = func(time.Duration, bool) { x.in("FirstByteCame") }
	write(t, far.B, []byte("answer"))
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
	condition.Await(t, "the callback is called", func() (fired bool) { on.do(func() { fired = x.fired }); return fired })
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
			write(t, third.A, own)
			c.spring(t, on, func(*trapped) {
				second.s.driven.Cut(errors.New("cut by another"))
				third.start()
			})
			<-second.done
			isReset(t, second.B)
			_ = third.A.CloseWrite()
			got, err := io.ReadAll(third.B)
			if err != nil || !bytes.Equal(got, own) {
				t.Errorf("the third session has moved %q, %v", got, err)
			}
		})
	}
}

// A plainSession is a session on a loop that the test starts, once it has changed the sockets.
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
	return newPlainOf(t, on, tcp, tcp)
}

func newPlainOf(t *testing.T, on *looped, networkA, networkB network) *plainSession {
	t.Helper()
	j := &plainSession{t: t, on: on, done: make(chan struct{})}
	var nearA, nearB net.Conn
	j.A, nearA = networkA(t)
	j.B, nearB = networkB(t)
	for _, c := range []net.Conn{j.A, j.B} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
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
	j.t.Cleanup(func() {
		j.s.cut(errors.New("test is over"))
		<-j.done
	})
	j.on.driver.StartLimited(&j.s.driven, j.a, j.b, j.s, j.s.limits)
}

// TestEventsBeforeStart: what a socket's events say before its session is started is not forgotten, also for a Driven that had a
// session before.
func TestEventsBeforeStart(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	s := &loopSession{on: on}
	for range 3 {
		A, nearA := tcp(t)
		B, nearB := tcp(t)
		a, b := on.take(nearA), on.take(nearB)
		ended := make(chan relay.Result, 1)
		on.do(func() {
			s.ended = func(res relay.Result, _ error) { ended <- res }
			var err error
			if a.ID, err = on.loop.Add(a.FD, 0, &s.driven); err != nil {
				t.Error(err)
			}
		})
		write(t, A, "early")
		must.Do(t, A.CloseWrite())
		condition.Await(t, "all has arrived", func() bool { n, err := sys.SIOCOUTQ(sockets.FD(t, A.(*net.TCPConn))); return n == 0 && err == nil })
		on.turn()
		on.turn() // the events have come
		on.do(func() {
			var err error
			if b.ID, err = on.loop.Add(b.FD, 1, &s.driven); err != nil {
				t.Error(err)
			}
			on.driver.Start(&s.driven, a, b, s)
		})
		must.Do(t, expect(B, []byte("early")), B.CloseWrite(), expect(A, nil))
		if res := <-ended; res.Reason != relay.ReasonEOF || res.AToB.Bytes() != 5 {
			t.Errorf("%+v", res)
		}
	}
}

// TestLateTurn: in a turn that is late a direction reads once, so that many busy
// ones do not keep everybody else waiting. By the test's clock every turn is late, or
// none.
func TestLateTurn(t *testing.T) {
	t.Parallel()

	const size = 128 << 10 // what is queued before the loop looks: two reads
	for _, late := range []bool{false, true} {
		r := newRelay(t, &relay.Config{Engine: relay.EngineCopy})
		var now atomic.Int64
		now.Store(1)
		cfg := &loop.Config{Now: func() int64 {
			if late {
				return now.Add(int64(3 * time.Millisecond))
			}
			return now.Load()
		}}
		on := newLooped(t, r, cfg, &arena.Config{Locals: 1})
		large := func(t testing.TB) (halfConn, net.Conn) {
			far, near := sockets.UnixPair(t)
			must.Do(t, errors.Join(far.SetWriteBuffer(4*size), near.SetWriteBuffer(4*size)))
			return far, near
		}
		j := newPlainOf(t, on, large, large)
		write(t, j.A, content(1, size))
		j.a.Events, j.b.Events = loop.Readable|loop.Writable, loop.Writable
		var first int64
		on.do(func() {
			j.start()
			first = j.s.driven.Result().AToB.Bytes()
		})
		want := int64(size)
		if late {
			want /= 2
		}
		if first != want {
			t.Errorf("late %v: %d bytes moved at once, want %d", late, first, want)
		}
		must.Do(t, errors.Join(j.A.CloseWrite(), j.B.CloseWrite(), expect(j.B, content(1, size))))
		if <-j.done; j.res.Reason != relay.ReasonEOF {
			t.Errorf("late %v: %+v", late, j.res)
		}
	}
}

// A refusedOwner notes an end.
type refusedOwner struct {
	ends int
	res  relay.Result
	err  error
}

func (o *refusedOwner) Ended(_ *relay.Driven, res relay.Result, err error) {
	o.ends, o.res, o.err = o.ends+1, res, err
}

// TestStartWhileItRuns: a second start of a session that has not ended is refused: its sockets are reset, its owner is notified, and the
// session goes on.
func TestStartWhileItRuns(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j, second := newPlain(t, on), newPlain(t, on)
	on.do(j.start)
	var owner refusedOwner
	on.do(func() {
		for which, p := range []*relay.Socket{&second.a, &second.b} {
			var err error
			if p.ID, err = on.loop.Add(p.FD, uint8(which), &j.s.driven); err != nil {
				t.Error(err)
			}
		}
		on.driver.Start(&j.s.driven, second.a, second.b, &owner)
		if owner.ends != 1 || owner.res.Reason != relay.ReasonError || owner.err == nil || on.driver.Sessions() != 1 {
			t.Errorf("%+v, %d sessions", owner, on.driver.Sessions())
		}
		on.driver.Start(&j.s.driven, j.a, j.b, &owner) // with its own sockets
		if owner.ends != 2 || on.driver.Sessions() != 1 {
			t.Errorf("%+v, %d sessions", owner, on.driver.Sessions())
		}
	})
	for _, c := range []io.Reader{second.A, second.B} {
		must.Fail(io.Copy(io.Discard, struct{ io.Reader }{c}))(t, syscall.ECONNRESET)
	}
	write(t, j.A, []byte("bytes"))
	_ = j.A.CloseWrite()
	_ = j.B.CloseWrite()
	sockets.ExpectAll(t, j.B, "bytes")
	<-j.done
	if j.res.Reason != relay.ReasonEOF || j.err != nil {
		t.Errorf("%+v, %v", j.res, j.err)
	}
}

// TestMirrorThatWasNotStarted: it panics in none of its methods, and a session that has it goes on, while it has ended with an error.
func TestMirrorThatWasNotStarted(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	j, far := newPlain(t, on), newPlain(t, on)
	var m, lost relay.Mirror
	on.do(func() {
		m.Write([]byte("bytes"))
		m.Refused(errors.New("refused"))
		m.Cut()
		m.Ready(0, loop.Readable)
		for _, p := range []relay.Socket{far.a, far.b} {
			lost.Connected(p)
		}
		if res := m.Result(); res != (driver.MirrorResult{}) {
			t.Errorf("before the start: %+v", res)
		}
	})
	for _, c := range []io.Reader{far.A, far.B} {
		must.Get(io.Copy(io.Discard, struct{ io.Reader }{c}))(t)
	}
	j.a.Mirror = &m
	on.do(j.start)
	write(t, j.A, []byte("bytes"))
	must.Get(io.ReadFull(j.B, make([]byte, 5)))(t)
	on.do(func() {
		if res := m.Result(); res.Reason != driver.MirrorError || res.Err == nil {
			t.Errorf("after the start: %+v", res)
		}
	})
}

// TestLimitsAreForgotten at the end of a session, with what they are of, as are Transforms: who makes sessions in
// the place of others may not come back to that one for long.
func TestLimitsAreForgotten(t *testing.T) {
	t.Parallel()

	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	A, nearA := tcp(t)
	B, nearB := tcp(t)
	ended := make(chan *relay.Limits, 1)
	s := &loopSession{on: on, limits: &relay.Limits{IdleTimeout: time.Hour}}
	given := weak.Make(s.limits)
	s.ended = func(relay.Result, error) { ended <- s.driven.Limits() }
	a, own := on.take(nearA), new(flipper)
	a.Transform = own
	transform := weak.Make(own)
	on.start(s, a, on.take(nearB))
	A.CloseWrite()
	B.CloseWrite()
	if told := <-ended; told != given.Value() {
		t.Error("the owner is told of other limits")
	}
	a.Transform, own = nil, nil
	on.do(func() { s.limits = nil })
	for range 3 {
		runtime.GC()
	}
	if given.Value() != nil || transform.Value() != nil {
		t.Error("they are kept")
	}
	if l := s.Limits(); l == nil {
		t.Error("there are none")
	}
}
