package relay_test

import (
	"errors"
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
	"github.com/penstock/penstock/relay"
)

// A fakeClock stands still until advanced; its timers then fire in order.
type fakeClock struct {
	mu     sync.Mutex
	t      time.Duration
	timers []*fakeTimer

	advanced []func() // wait until loops have seen the time
}

type fakeTimer struct {
	c    *fakeClock
	at   time.Duration
	f    func()
	dead bool
}

func (c *fakeClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) afterFunc(d time.Duration, f func()) interface {
	Reset(time.Duration) bool
	Stop() bool
} {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c: c, at: c.t + d, f: f}
	c.timers = append(c.timers, t)
	return t
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := !t.dead
	t.at, t.dead = t.c.t+d, false
	return was
}

func (t *fakeTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := !t.dead
	t.dead = true
	return was
}

// advance moves the time by d and fires what is due at that time, on loops too.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.t += d
	var due []*fakeTimer
	for _, t := range c.timers {
		if !t.dead && t.at <= c.t {
			t.dead = true
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
	for _, f := range c.advanced {
		f()
	}
}

// nudge fires all timers now. A timer that is set after the time was read, and has moved on since, is late by as much as the
// time has moved: here for good.
func (c *fakeClock) nudge() {
	c.mu.Lock()
	timers := slices.DeleteFunc(slices.Clone(c.timers), func(t *fakeTimer) bool { return t.dead })
	c.mu.Unlock()
	for _, t := range timers {
		t.f()
	}
}

// walk moves the time by d, or until done says so, in steps that end at multiples of
// grid and wherever a timer is due.
func (c *fakeClock) walk(d, grid time.Duration, done func() bool) {
	for now, end := c.now(), c.now()+d; now < end && !done(); now = c.now() {
		c.advance(c.due(min(end, now.Truncate(grid)+grid)) - now)
	}
}

// due is when the next timer is, if that is before most.
func (c *fakeClock) due(most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.timers {
		if !t.dead {
			most = min(most, t.at)
		}
	}
	return most
}

func clockedRelay(t *testing.T, cfg relay.Config) (*relay.Relay, *fakeClock) {
	t.Helper()
	return new(driving).clockedRelay(t, cfg)
}

// echo moves a byte from A to B.
func (g *rig) echo(t *testing.T) {
	t.Helper()
	must.Do(t, ping(g.A, g.B, 1))
}

func expectTimeout(t *testing.T, g *rig, want relay.Reason) {
	t.Helper()
	res, err := g.wait()
	if res.Reason != want || !errors.Is(err, os.ErrDeadlineExceeded) || !os.IsTimeout(err) {
		t.Fatalf("ended by %v, error %v, want %v", res.Reason, err, want)
	}
}

func running(t *testing.T, g *rig) {
	t.Helper()
	if res := g.session.Result(); res.Reason != relay.ReasonNone {
		t.Fatalf("ended by %v, but the timeout is not over", res.Reason)
	}
}

// TestIdleTimeout: exactly the idle time after the last byte, in either direction
// and on every kind of connection.
func TestIdleTimeout(t *testing.T) { both(t, testIdleTimeout) }

// TestIdleTimeoutLosesNothing: an idle session with bytes that its side has not taken, or with one side that has ended, is reset.
// A side that takes nothing may have taken something until the first look, so that the session lives on for as long.
func TestIdleTimeoutLosesNothing(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for name, leave := range map[string]func(g *rig, r *relay.Relay){
			"unread": func(g *rig, r *relay.Relay) {
				condition.Await(t, "bytes are held", func() bool { // the queues may take many
					fillUp(t, g.A)
					pipes, buffers := d.holds(t, r)
					return pipes+buffers > 0
				})
			},
			"half": func(g *rig, _ *relay.Relay) {
				must.Do(t, g.A.CloseWrite())
				g.until("the end of file is passed on", func(r relay.Result) bool { return r.AToB.Reason == relay.ReasonEOF })
			},
		} {
			r, c := d.clockedRelay(t, relay.Config{IdleTimeout: 10 * time.Second})
			g := d.newRig(t, r, tcp, tcp)
			g.echo(t)
			leave(g, r)
			c.advance(10 * time.Second)
			if name == "unread" {
				running(t, g)
				g.until("it ends", func(r relay.Result) bool { // each look may find that some more was taken before
					c.advance(10 * time.Second)
					return r.Reason != relay.ReasonNone
				})
			}
			expectTimeout(t, g, relay.ReasonIdle)
			if _, _, err := receive(g.A); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: A sees %v, want ECONNRESET", name, err)
			}
		}
	})
}

func testIdleTimeout(t *testing.T, d *driving) {
	for name, n := range d.networks() {
		t.Run(name, func(t *testing.T) {
			r, c := d.clockedRelay(t, relay.Config{IdleTimeout: 10 * time.Second})
			g := d.newRig(t, r, n, tcp)
			g.echo(t)
			for range 5 {
				c.advance(6 * time.Second)
				must.Do(t, ping(g.B, g.A, 1))
			}
			c.advance(10*time.Second - 1)
			running(t, g)
			c.advance(1)
			if g.session.Result().Reason == relay.ReasonNone {
				c.advance(10 * time.Second) // the kernel has acknowledged the last byte since the look before
			}
			expectTimeout(t, g, relay.ReasonIdle)
			if res := g.session.Result(); res.AToB.Reason != relay.ReasonIdle || res.BToA.Reason != relay.ReasonIdle {
				t.Fatalf("directions ended by %v and %v", res.AToB.Reason, res.BToA.Reason)
			}
			_, _, err := receive(g.B)
			if plain := name == "tcp" || name == "unix" || name == "transparent"; plain && err != nil || !plain && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("B sees %v; want an end of file where it is known that nothing is lost, and else a reset", err)
			}
		})
	}
}

// TestHalfCloseTimeout counts from the first end, and from the last byte after it: in place of the idle timeout, alone, and as a
// session's own.
func TestHalfCloseTimeout(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		const timeout = 10 * time.Second
		for name, x := range map[string]struct {
			cfg    relay.Config
			limits *relay.Limits
		}{
			"in place of the idle timeout": {relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: timeout}, nil},
			"alone":                        {relay.Config{HalfCloseTimeout: timeout}, nil},
			"of the session's own limits":  {relay.Config{HalfCloseTimeout: time.Second}, &relay.Limits{IdleTimeout: time.Hour, HalfCloseTimeout: timeout}},
		} {
			t.Run(name, func(t *testing.T) {
				r, c := d.clockedRelay(t, x.cfg)
				d.limits = x.limits
				g := d.newRig(t, r, tcp, tcp)
				g.echo(t)
				c.advance(59 * time.Minute)
				g.A.CloseWrite()
				must.Do(t, expect(g.B, nil))
				g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
				c.advance(9 * time.Second)
				running(t, g)
				must.Do(t, ping(g.B, g.A, 1))
				c.advance(timeout - 1)
				running(t, g)
				c.advance(1)
				expectTimeout(t, g, relay.ReasonHalfClose)
			})
		}
	})
}

// TestDeadlinesOfABusySession: a deadline of either end ends a session that is never idle, as it ends io.Copy: of the source also
// while only the sink is waited for, and of the sink also while only the source is.
func TestDeadlinesOfABusySession(t *testing.T) {
	t.Parallel()

	past := time.Unix(1, 0)
	for _, e := range engines {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			r, c := clockedRelay(t, relay.Config{Engine: e, MaxPipeSize: 64 << 10})
			var a, b net.Conn
			from := func(t testing.TB) (far halfConn, near net.Conn) { far, a = tcp(t); return far, a }
			small := func(t testing.TB) (far halfConn, near net.Conn) {
				far, b = unixStream(t)
				must.Do(t, b.(*net.UnixConn).SetWriteBuffer(1)) // the least there is
				return far, b
			}
			g := newRig(t, r, from, small)
			// All but what is queued still when the session holds all it can. One turn moves up to 1 MiB.
			most := fillUp(t, g.A) - 256<<10
			if most < 5<<18 {
				t.Skipf("a connection holds only %d bytes", most)
			}
			must.Do(t, a.SetReadDeadline(past))
			c.advance(time.Second)
			part := make(chan struct{})
			go func() { _, _ = io.CopyN(io.Discard, g.B, most); close(part) }()
			g.until("the source's deadline", func(res relay.Result) bool { return res.Culprit == relay.SideA })
			go func() { <-part; _, _ = io.Copy(io.Discard, g.B) }()
			ends := func(g *rig) {
				condition.Await(t, "the end", func() bool {
					c.advance(time.Second)
					select {
					case <-g.done:
						return true
					default:
						return false
					}
				})
				if !errors.Is(g.err, os.ErrDeadlineExceeded) {
					t.Errorf("culprit %v: %v", g.result.Culprit, g.err)
				}
			}
			ends(g)

			other := newRig(t, r, from, small)
			must.Do(t, b.SetWriteDeadline(past))
			other.until("the sink's deadline", func(res relay.Result) bool {
				_, _ = other.A.Write([]byte{1})
				c.advance(time.Second)
				return res.Culprit == relay.SideB
			})
			ends(other)
		})
	}
}

// withoutHalfClose is a connection that cannot pass on an end of file.
func withoutHalfClose(t testing.TB) (halfConn, net.Conn) {
	far, near := tcp(t)
	return far, struct{ net.Conn }{near}
}

// unsupported is a connection with a CloseWrite that its connection beneath does not have.
type unsupported struct{ net.Conn }

func (unsupported) CloseWrite() error { return errors.ErrUnsupported }

func unsupportedHalfClose(t testing.TB) (halfConn, net.Conn) {
	far, near := tcp(t)
	return far, unsupported{near}
}

// TestNoHalfClose: an end that cannot be passed on does not end the other direction. An answer after it arrives
// in whole, and both sides get a clean end.
func TestNoHalfClose(t *testing.T) {
	t.Parallel()

	for i, e := range append(engines, relay.EngineAuto) {
		b := withoutHalfClose
		if i == len(engines) {
			b = unsupportedHalfClose
		}
		r, _ := clockedRelay(t, relay.Config{Engine: e, IdleTimeout: time.Hour, HalfCloseTimeout: time.Hour})
		g := newRig(t, r, tcp, b)
		sent := fillUp(t, g.A)
		g.A.CloseWrite()
		if n, err := io.CopyN(io.Discard, g.B, sent); err != nil {
			t.Fatalf("%v: B gets %d bytes of %d, %v", e, n, sent, err)
		}
		g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
		answer := content(1, 5_200_000)
		go func() {
			_, _ = g.B.Write(answer)
			_ = g.B.CloseWrite()
		}()
		if err := expect(g.A, answer); err != nil {
			t.Fatalf("%v: A: %v", e, err)
		}
		res, err := g.wait()
		if err != nil || res.Reason != relay.ReasonEOF || res.AToB.Lost+res.BToA.Lost != 0 || res.First != relay.SideA {
			t.Fatalf("%v: %+v, %v", e, res, err)
		}
		if f := res.AToB; f.Fallbacks[relay.FallbackHalfClose] != 1 {
			t.Fatalf("%v: %+v", e, f)
		}
		if err := expect(g.B, nil); err != nil {
			t.Fatalf("%v: B: %v, want a clean end", e, err)
		}
	}
}

// TestTruncated: a session that ends at the first end of file while bytes of the other side are on their way to a
// destination that does not take them is no success. They are counted, and the side that lacks them is reset.
func TestTruncated(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, &relay.Config{CloseOnEOF: true})
		for _, ends := range []string{"A", "B"} {
			g := d.newRig(t, r, tcp, tcp)
			first, behind := g.A, g.B
			if ends == "B" {
				first, behind = behind, first
			}
			sent := fillUp(t, behind) // nothing more can be written to first
			lacks := func(res relay.Result) relay.Flow {
				if ends == "B" {
					return res.AToB
				}
				return res.BToA
			}
			_ = first.CloseWrite()
			g.until("bytes are lost", func(res relay.Result) bool { return lacks(res).Reason == relay.ReasonTruncated })
			_, n, seen := receive(first)
			res, err := g.wait()
			if lost := lacks(res); !errors.Is(err, relay.ErrTruncated) || res.Reason != relay.ReasonTruncated || lost.Lost == 0 || n != lost.Bytes() || n >= sent {
				t.Fatalf("%s: of %d bytes sent %d come: %+v, %v", ends, sent, n, res, err)
			}
			if !errors.Is(seen, syscall.ECONNRESET) {
				t.Fatalf("%s, which lacks bytes, sees %v; want ECONNRESET", ends, seen)
			}
		}
	})
}

// closesOnEOF starts a session that A ends after its bytes. B has read none of them.
func closesOnEOF(t *testing.T, d *driving, linger time.Duration, fill bool) (g *rig, sent []byte) {
	r := newRelay(t, &relay.Config{CloseOnEOF: true})
	r.SetLinger(linger)
	g = d.newRig(t, r, smallTCP, tcp)
	if fill {
		write(t, g.B, content(2, 1<<20)) // more than there is room for on the way to A, and less than B's kernel takes
	}
	sent = content(1, 256<<10) // more than B's kernel takes, and less than there is room for before it
	write(t, g.A, sent)
	_ = g.A.CloseWrite()
	g.until("the end is passed on", func(res relay.Result) bool {
		return res.AToB.Reason != relay.ReasonNone && res.BToA.Reason != relay.ReasonNone
	})
	return g, sent
}

// TestCloseOnEOFDelivers: bytes that were sent before the end arrive, though their reader is slow and sends something meanwhile that
// nobody reads. The side that has ended waits for none of that. The result says that the other side had not ended.
func TestCloseOnEOFDelivers(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		g, sent := closesOnEOF(t, d, time.Hour, false)
		must.Do(t, expect(g.A, nil))
		write(t, g.B, "still here")
		must.Do(t, expect(g.B, sent))
		if res, err := g.wait(); err != nil || res.Reason != relay.ReasonEOF || res.AToB.Lost+res.BToA.Lost != 0 ||
			res.AToB.Reason != relay.ReasonEOF || res.BToA.Reason != relay.ReasonCanceled {
			t.Fatalf("%+v, %v", res, err)
		}
	})
}

// TestCloseOnEOFGivesUp: a side that takes nothing for long, or a cut, ends the wait, and what it costs is counted.
func TestCloseOnEOFGivesUp(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for name, linger := range map[string]time.Duration{"stuck": 10 * time.Millisecond, "cut": time.Hour} {
			g, sent := closesOnEOF(t, d, linger, true)
			if name == "cut" {
				g.cancel(errors.New("cut"))
			}
			res, err := g.wait()
			_, n, _ := receive(g.B)
			if !errors.Is(err, relay.ErrTruncated) || res.Reason != relay.ReasonTruncated || res.AToB.Reason != relay.ReasonTruncated ||
				res.AToB.Lost == 0 || n+res.AToB.Lost < int64(len(sent)) || res.BToA.Lost == 0 {
				t.Fatalf("%s: of %d bytes %d come: %+v, %v", name, len(sent), n, res, err)
			}
		}
	})
}

// A counted connection counts its Reads as they begin.
type counted struct {
	net.Conn
	reads atomic.Int32
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(p)
}

// TestNoHalfCloseQuiet: an end that cannot be passed on ends the session five quiet seconds
// after the last byte, even without any timeout; the other side gets its end then.
func TestNoHalfCloseQuiet(t *testing.T) {
	t.Parallel()

	r, c := clockedRelay(t, relay.Config{})
	var b counted
	g := newRig(t, r, tcp, func(t testing.TB) (far halfConn, near net.Conn) {
		far, b.Conn = tcp(t)
		return far, &b
	})
	g.echo(t)
	g.A.CloseWrite()
	g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
	c.advance(3 * time.Second)
	reads := b.reads.Load()
	must.Do(t, ping(g.B, g.A, 1))
	condition.Await(t, "the next Read", func() bool { return b.reads.Load() > reads })
	c.advance(2 * time.Second) // the timer finds that a byte has moved
	c.advance(3*time.Second - 1)
	running(t, g)
	c.advance(1)
	expectTimeout(t, g, relay.ReasonHalfClose)
	if text := "penstock: relay: half-close-timeout: b has no CloseWrite: i/o timeout"; g.err.Error() != text {
		t.Errorf("%v, want %s", g.err, text)
	}
	must.Do(t, expect(g.B, nil))
	if f := g.result.AToB; f.Fallbacks[relay.FallbackHalfClose] != 1 {
		t.Fatalf("%+v", f)
	}
}

// TestMaxLifetime: counts from the start, however busy the session is.
func TestMaxLifetime(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Minute, MaxLifetime: 100 * time.Second})
		g := d.newRig(t, r, tcp, tcp)
		for range 9 {
			g.echo(t)
			c.advance(11 * time.Second)
			running(t, g)
		}
		g.echo(t)
		c.advance(time.Second)
		expectTimeout(t, g, relay.ReasonLifetime)
	})
}

// deaf is a connection whose deadlines do nothing.
type deaf struct{ net.Conn }

func (deaf) SetDeadline(time.Time) error      { return nil }
func (deaf) SetReadDeadline(time.Time) error  { return nil }
func (deaf) SetWriteDeadline(time.Time) error { return nil }
func (d deaf) NetConn() net.Conn              { return d.Conn }

// TestDeadlinesThatDoNothing: a session that is cut, or whose other side is reset, ends anyway: a
// connection whose Read does not return is closed after a grace.
func TestDeadlinesThatDoNothing(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		end  func(t *testing.T, g *rig)
		want relay.Reason
	}{
		"cancel": {func(_ *testing.T, g *rig) { g.cancel(errors.New("enough")) }, relay.ReasonCanceled},
		"reset":  {func(t *testing.T, g *rig) { abort(t, g.A) }, relay.ReasonReset},
	} {
		t.Run(name, func(t *testing.T) {
			r, clock := clockedRelay(t, relay.Config{})
			g := newRig(t, r, tcp, func(t testing.TB) (halfConn, net.Conn) {
				far, near := tcp(t)
				return far, deaf{near}
			})
			g.echo(t)
			c.end(t, g)
			g.until("the session is cut", func(res relay.Result) bool { return res.Reason == c.want })
			clock.advance(time.Second - 1)
			select {
			case <-g.done:
				t.Fatal("ended before the grace was over")
			case <-time.After(20 * time.Millisecond):
			}
			for over, end := false, time.Now().Add(condition.Patience); !over; { // the grace may have begun late
				if clock.advance(time.Second); time.Now().After(end) {
					t.Fatal("the session does not end")
				}
				select {
				case <-g.done:
					over = true
				case <-time.After(time.Millisecond):
				}
			}
			if res, err := g.wait(); res.Reason != c.want || err == nil {
				t.Errorf("%+v, %v", res, err)
			}
			if _, _, err := receive(g.B); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("B sees %v, want ECONNRESET", err)
			}
		})
	}
}

// closedChannel is a stream that its peer has closed, like a channel of SSH.
type closedChannel struct{ io.Writer }

func (closedChannel) Read([]byte) (int, error) { return 0, io.EOF }
func (closedChannel) CloseWrite() error        { return io.EOF }
func (closedChannel) Close() error             { return nil }

// TestClosedChannel: the end of the second side is clean, although a side that was closed first cannot get it.
func TestClosedChannel(t *testing.T) {
	t.Parallel()

	far, a := tcp(t)
	ends := start(t, newRelay(t, nil).NewSession(a, relay.Stream(closedChannel{io.Discard})))
	must.Do(t, expect(far, nil))
	must.Do(t, far.CloseWrite())
	if o := end(t, ends); o.err != nil || o.result.Reason != relay.ReasonEOF || o.result.First != relay.SideB {
		t.Errorf("%+v, %v", o.result, o.err)
	}
}

// A channel is a stream without deadlines, whose Read returns io.EOF once it is closed, like a channel of SSH.
type channel chan struct{}

func (c channel) Read([]byte) (int, error)    { <-c; return 0, io.EOF }
func (c channel) Write(p []byte) (int, error) { return len(p), nil }
func (c channel) CloseWrite() error           { return nil }
func (c channel) Close() error                { close(c); return nil }

// brief is a connection that a deadline closes.
type brief struct{ net.Conn }

func (b brief) SetDeadline(time.Time) error     { return b.Close() }
func (b brief) SetReadDeadline(time.Time) error { return b.Close() }
func (b brief) Close() error                    { defer func() { _ = recover() }(); return b.Conn.Close() }

// TestCutIsNoEnd: an io.EOF that a Read returns because the session has ended it is no end of file. The session has not
// succeeded, and a TCP peer is reset.
func TestCutIsNoEnd(t *testing.T) {
	t.Parallel()

	stop := errors.New("stop")
	for kind, wrap := range map[string]func(net.Conn) net.Conn{
		"without deadlines":         func(c net.Conn) net.Conn { return c },
		"deadlines that do nothing": func(c net.Conn) net.Conn { return deaf{c} },
		"deadlines that close":      func(c net.Conn) net.Conn { return brief{c} },
	} {
		for other, makes := range map[string]network{
			"channel":     func(testing.TB) (halfConn, net.Conn) { return nil, wrap(relay.Stream(make(channel))) },
			"tcp":         tcp,
			"half-closed": func(t testing.TB) (halfConn, net.Conn) { far, near := tcp(t); _ = far.CloseWrite(); return far, near },
		} {
			for how, cut := range map[string]struct {
				by   func(s *relay.Session, b net.Conn)
				want relay.Reason
				err  error
			}{
				"Cut":      {func(s *relay.Session, _ net.Conn) { s.Cut(stop) }, relay.ReasonCanceled, stop},
				"lifetime": {func(*relay.Session, net.Conn) {}, relay.ReasonLifetime, os.ErrDeadlineExceeded},
				"deadline": {func(_ *relay.Session, b net.Conn) { _ = b.SetReadDeadline(longPast) }, relay.ReasonError, os.ErrDeadlineExceeded},
			} {
				if how == "deadline" && other != "tcp" {
					continue
				}
				r, clock := clockedRelay(t, relay.Config{MaxLifetime: time.Second})
				far, b := makes(t)
				s := r.NewSession(wrap(relay.Stream(make(channel))), b)
				ends := start(t, s)
				if other == "half-closed" {
					condition.Await(t, "the half-close", func() bool { return s.Result().BToA.Reason == relay.ReasonEOF })
				}
				cut.by(s, b)
				if how != "lifetime" {
					condition.Await(t, "the cut", func() bool { return s.Result().Reason != relay.ReasonNone })
				}
				condition.Await(t, "the end", func() bool { clock.advance(time.Second); return len(ends) > 0 })
				if o := end(t, ends); o.result.Reason != cut.want || !errors.Is(o.err, cut.err) || o.result.AToB.Reason == relay.ReasonEOF {
					t.Errorf("%s, %s, %s: %+v, %v", kind, other, how, o.result, o.err)
				}
				if far != nil {
					isReset(t, far)
				}
			}
		}
	}
}

// TestLimitsReplaceConfig: a session with limits of its own keeps to those, and one that was given
// none, in the same relay, to the relay's.
func TestLimitsReplaceConfig(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r, c := d.clockedRelay(t, relay.Config{IdleTimeout: 10 * time.Second, MaxLifetime: time.Minute})
		plain := d.newRig(t, r, tcp, tcp)
		d.limits = &relay.Limits{IdleTimeout: 20 * time.Second}
		longer := d.newRig(t, r, tcp, tcp)
		d.limits = &relay.Limits{Of: t}
		never := d.newRig(t, r, tcp, tcp)
		d.limits = &relay.Limits{MaxLifetime: 5 * time.Second}
		short := d.newRig(t, r, tcp, tcp)
		for _, g := range []*rig{plain, longer, never, short} {
			g.echo(t)
		}
		c.advance(5 * time.Second)
		expectTimeout(t, short, relay.ReasonLifetime)
		c.advance(5 * time.Second)
		expectTimeout(t, plain, relay.ReasonIdle)
		running(t, longer)
		c.advance(10 * time.Second)
		expectTimeout(t, longer, relay.ReasonIdle)
		c.advance(time.Hour)
		running(t, never)
		never.echo(t)
		if of := never.session.Limits().Of; of != t {
			t.Errorf("the limits are of %v", of)
		}
	})
}

// TestFirstByte: an endpoint that says nothing ends the session, whatever the client
// says, and both are reset.
func TestFirstByte(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		for name, n := range d.networks() {
			t.Run(name, func(t *testing.T) {
				r, c := d.clockedRelay(t, relay.Config{})
				d.limits = &relay.Limits{FirstByte: 3 * time.Second}
				g := d.newRig(t, r, n, tcp)
				g.echo(t) // from the client, which is not what it waits for
				c.advance(2 * time.Second)
				g.echo(t)
				c.advance(time.Second - 1)
				running(t, g)
				c.advance(1)
				expectTimeout(t, g, relay.ReasonFirstByte)
				if _, _, err := receive(g.B); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the endpoint sees %v, want ECONNRESET", err)
				}
				if _, _, err := receive(g.A); name == "tcp" && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the client sees %v, want ECONNRESET", err)
				}
			})
		}
	})
}

// answer moves a byte from B to A, and waits until that is counted.
func (g *rig) answer() {
	g.t.Helper()
	before := g.session.Result().BToA.Bytes()
	must.Do(g.t, ping(g.B, g.A, 1))
	g.until("the answer is counted", func(res relay.Result) bool { return res.BToA.Bytes() > before })
}

// TestNothingAllocatedForLimits: a session that starts in the place of another one uses what that had
// to keep to its limits.
func TestNothingAllocatedForLimits(t *testing.T) {
	r := newRelay(t, nil)
	on := ofLoop().looped(t, r)
	limits := &relay.Limits{
		FirstByte: time.Hour, IdleTimeout: time.Hour, MaxLifetime: time.Hour, LifetimeJitter: 0.1,
		Bandwidth: relay.NewBucket(1<<30, 0), PerConnection: relay.Rates{Both: 1 << 30},
	}
	ended := make(chan error, 1)
	s := &loopSession{on: on, limits: limits, ended: func(_ relay.Result, err error) { ended <- err }}
	message := make([]byte, 64)
	round := func(t *testing.T) {
		A, nearA := tcp(t)
		B, nearB := tcp(t)
		on.start(s, on.take(nearA), on.take(nearB))
		n := testing.AllocsPerRun(100, func() {
			for _, way := range [][2]net.Conn{{A, B}, {B, A}} {
				write(t, way[0], message)
				readFull(t, way[1], message)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations for a message and its echo", n)
		}
		A.CloseWrite()
		B.CloseWrite()
		must.Do(t, <-ended)
	}
	var before, after any
	t.Run("first", round)
	on.do(func() { before = s.driven.Throttle() })
	t.Run("second", round)
	on.do(func() { after = s.driven.Throttle() })
	if before != after {
		t.Error("the second session has made its own")
	}
}

// TestIdleTimeoutSlowWrite: bytes that a wrapper's Write moved only after a while
// count as activity.
func TestIdleTimeoutSlowWrite(t *testing.T) {
	t.Parallel()

	r, c := clockedRelay(t, relay.Config{IdleTimeout: 10 * time.Second})
	var w *gatedWriter
	g := newRig(t, r, tcp, func(t testing.TB) (halfConn, net.Conn) {
		far, near := tcp(t)
		w = &gatedWriter{TCPConn: near.(*net.TCPConn), entered: make(chan struct{}, 10), gate: make(chan struct{}, 10)}
		return far, w
	})
	write(t, g.A, []byte("x"))
	<-w.entered
	c.advance(9 * time.Second)
	w.gate <- struct{}{}
	readFull(t, g.B, make([]byte, 1))
	// The next write is entered only after the last one was noted.
	write(t, g.A, []byte("y"))
	<-w.entered
	c.advance(2 * time.Second)
	running(t, g)
	close(w.gate)
	g.cancel(errors.New("over"))
}

// A gatedWriter says when Write is entered, and waits to be let through.
type gatedWriter struct {
	*net.TCPConn
	entered, gate chan struct{}
}

func (w *gatedWriter) Write(p []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.gate
	return w.TCPConn.Write(p)
}
