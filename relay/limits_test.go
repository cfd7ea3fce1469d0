package relay_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestLimitsReplaceConfig: a session with limits of its own keeps to those, and one that was given
// none, in the same relay, to the relay's.
func TestLimitsReplaceConfig(t *testing.T) {
	t.Parallel()
	eachDriver(t, testLimitsReplaceConfig)
}

func testLimitsReplaceConfig(t *testing.T, d *driving) {
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
}

// TestLimitsHalfClose: the half-close timeout of a session's own limits.
func TestLimitsHalfClose(t *testing.T) {
	t.Parallel()
	eachDriver(t, testLimitsHalfClose)
}

func testLimitsHalfClose(t *testing.T, d *driving) {
	r, c := d.clockedRelay(t, relay.Config{HalfCloseTimeout: time.Second})
	d.limits = &relay.Limits{IdleTimeout: time.Hour, HalfCloseTimeout: 10 * time.Second}
	g := d.newRig(t, r, tcp, tcp)
	g.echo(t)
	g.A.CloseWrite()
	if err := expect(g.B, nil); err != nil {
		t.Fatal(err)
	}
	g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
	c.advance(9 * time.Second)
	running(t, g)
	c.advance(time.Second)
	expectTimeout(t, g, relay.ReasonHalfClose)
}

// TestFirstByte: an endpoint that says nothing ends the session, whatever the client
// says, and both are reset.
func TestFirstByte(t *testing.T) {
	t.Parallel()
	eachDriver(t, testFirstByte)
}

func testFirstByte(t *testing.T, d *driving) {
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
}

// TestFirstByteCame: an endpoint that has said something may be silent afterwards, and
// one that has ended has said so.
func TestFirstByteCame(t *testing.T) {
	t.Parallel()
	eachDriver(t, testFirstByteCame)
}

func testFirstByteCame(t *testing.T, d *driving) {
	r, c := d.clockedRelay(t, relay.Config{})
	d.limits = &relay.Limits{FirstByte: 3 * time.Second}
	g, h := d.newRig(t, r, tcp, tcp), d.newRig(t, r, tcp, tcp)
	g.echo(t)
	h.echo(t)
	c.advance(2 * time.Second)
	g.answer()
	if err := h.B.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := expect(h.A, nil); err != nil {
		t.Fatal(err)
	}
	h.until("the end is noted", func(res relay.Result) bool { return res.BToA.Reason == relay.ReasonEOF })
	c.advance(time.Hour)
	running(t, g)
	running(t, h)
	g.echo(t)
	h.echo(t)
}

// answer moves a byte from B to A, and waits until that is counted.
func (g *rig) answer() {
	g.t.Helper()
	before := g.session.Result().BToA.Bytes()
	if err := ping(g.B, g.A, 1); err != nil {
		g.t.Fatal(err)
	}
	g.until("the answer is counted", func(res relay.Result) bool { return res.BToA.Bytes() > before })
}

// TestFirstByteOfMany: the first byte's time does not hide the other timeouts.
func TestFirstByteOfMany(t *testing.T) {
	t.Parallel()
	eachDriver(t, testFirstByteOfMany)
}

func testFirstByteOfMany(t *testing.T, d *driving) {
	r, c := d.clockedRelay(t, relay.Config{})
	d.limits = &relay.Limits{FirstByte: 3 * time.Second, IdleTimeout: 2 * time.Second}
	g := d.newRig(t, r, tcp, tcp)
	d.limits = &relay.Limits{FirstByte: 3 * time.Second, IdleTimeout: 4 * time.Second, MaxLifetime: 10 * time.Second}
	h := d.newRig(t, r, tcp, tcp)
	g.echo(t)
	h.echo(t)
	c.advance(2 * time.Second)
	expectTimeout(t, g, relay.ReasonIdle)
	for range 4 {
		h.answer()
		c.advance(2 * time.Second)
	}
	expectTimeout(t, h, relay.ReasonLifetime)
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
				if _, err := way[0].Write(message); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], message); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n != 0 {
			t.Errorf("%v allocations for a message and its echo", n)
		}
		A.CloseWrite()
		B.CloseWrite()
		if err := <-ended; err != nil {
			t.Error(err)
		}
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
