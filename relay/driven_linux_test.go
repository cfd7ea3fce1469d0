package relay_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// TestUnheardReset: a side from which nobody reads is reset: its end has been seen, or
// what it has sent is stuck before a peer that does not read, or both its end has been
// seen and it does not read what is sent to it. The session ends all the same, though no
// timeout is set and nobody writes.
func TestUnheardReset(t *testing.T) {
	t.Parallel()

	passEnd := func(t *testing.T, g *rig) {
		_ = g.A.CloseWrite()
		if err := expect(g.B, nil); err != nil {
			t.Fatal(err)
		}
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
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b := content(5, n)
	_ = raw.Control(func(fd uintptr) {
		for len(b) > 0 {
			m, err := sys.Send(int(fd), b, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
			if err != nil {
				return
			}
			b, sent = b[m:], sent+int64(m)
		}
	})
	return sent
}

// again is an owner that starts the same session anew, and cuts it where that must do
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
		if err := ping(pair[0], pair[1], byte(i)); err != nil {
			t.Fatal(err)
		}
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
		if err := send(c, []byte("all"), 3); err != nil {
			t.Fatal(err)
		}
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
		if err := expect(c, []byte("all")); err != nil {
			t.Error(err)
		}
	}
}

// TestUnixDescriptors: a peer of a unix socket sends descriptors along. They are
// dropped, and where they were a read stops short of what follows.
func TestUnixDescriptors(t *testing.T) {
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
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
			if err := expect(g.B, want); err != nil {
				t.Fatal(err)
			}
			_ = g.B.CloseWrite()
			g.checkClean(500, 0)
		}
	})
}
