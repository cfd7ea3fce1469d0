package relay_test

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestWaits: every moment counts for what the session waited for then, once.
func TestWaits(t *testing.T) {
	t.Parallel()
	eachDriver(t, testWaits)
}

func testWaits(t *testing.T, d *driving) {
	r, c := d.clockedRelay(t, relay.Config{LegsAfter: time.Nanosecond})
	g := d.newRig(t, r, smallTCP, smallTCP)
	message := make([]byte, 1000)
	want := relay.Waits{}
	check := func(after string) {
		t.Helper()
		if got := g.session.Result().Waits; !near4(got, want) {
			t.Fatalf("after %s: %+v, want %+v", after, got, want)
		}
	}
	pass(t, g.A, g.B, message) // it runs
	c.advance(300 * time.Millisecond)
	pass(t, g.A, g.B, message)
	want.ForA = 300 * time.Millisecond
	check("a pause of the first side")
	c.advance(3 * time.Second)
	pass(t, g.B, g.A, message)
	want.ForB = 3 * time.Second
	check("an answer")
	c.advance(5 * time.Second)
	pass(t, g.A, g.B, message)
	check("a quiet time")
	c.advance(400 * time.Millisecond)
	pass(t, g.A, g.B, message)
	want.ForA += 400 * time.Millisecond
	check("more of the question")

	sent := g.fill(d, r)
	c.advance(3 * time.Second)
	if d.onLoop() { // there a wait counts while it goes on
		want.ToB = 3 * time.Second
		check("a sink that is full")
	}
	g.drained(sent)
	want.ToB = 3 * time.Second
	c.advance(7 * time.Second)
	_ = g.A.CloseWrite()
	_ = g.B.CloseWrite()
	res, err := g.wait()
	if err != nil {
		t.Fatal(err)
	}
	want.ForB += 7 * time.Second // which has never answered
	if !near4(res.Waits, want) {
		t.Errorf("at the end: %+v, want %+v", res.Waits, want)
	}
	if l := res.Legs; l == nil || !l.A.Known || !l.B.Known || l.A.Received < res.AToB.Bytes() || l.A.Sent != 1000 || l.B.Sent < res.AToB.Bytes() {
		t.Errorf("legs %+v", l)
	}
}

// near4 compares waits to some ticks.
func near4(got, want relay.Waits) bool {
	const slack = 2 * time.Millisecond
	near := func(a, b time.Duration) bool { return (a - b).Abs() < slack }
	return near(got.ForA, want.ForA) && near(got.ForB, want.ForB) && near(got.ToA, want.ToA) && near(got.ToB, want.ToB) &&
		near(got.Bandwidth, want.Bandwidth) && near(got.Loop, want.Loop)
}

// fill sends from A until the session holds bytes for B, and returns how much in the end.
func (g *rig) fill(d *driving, r *relay.Relay) (sent <-chan int64) {
	n := make(chan int64, 1)
	go func() {
		wrote, _ := g.A.Write(make([]byte, 4<<20))
		n <- int64(wrote)
	}()
	before, stands := int64(-1), 0
	g.until("bytes are held", func(res relay.Result) bool {
		pipes, buffers := d.holds(g.t, r)
		if stands++; res.AToB.Bytes() != before || pipes+buffers == 0 {
			before, stands = res.AToB.Bytes(), 0
		}
		return stands > 20
	})
	return n
}

// drained reads at B all that fill sends.
func (g *rig) drained(sent <-chan int64) {
	g.t.Helper()
	if _, err := io.CopyN(io.Discard, g.B, 4<<20); err != nil {
		g.t.Fatal(err)
	}
	<-sent
}

// TestWaitsForBandwidth: to wait for bandwidth is neither to wait for bytes nor for room. (Goroutines see the
// test's clock at moments of their own.)
func TestWaitsForBandwidth(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	r, c := d.clockedRelay(t, relay.Config{LegsAfter: time.Hour})
	d.limits = &relay.Limits{PerConnection: relay.Rates{Both: 100_000, Burst: 20_000}}
	g := d.newRig(t, r, tcp, tcp)
	if _, err := g.A.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, g.B)
	begin := c.now()
	for range 100 {
		bytes := 100_000 * int64(c.now()-begin) / 1e9
		g.until("the rate is used", func(res relay.Result) bool { return res.AToB.Bytes() >= bytes })
		c.advance(10 * time.Millisecond)
	}
	res := g.session.Result()
	if res.Waits.Bandwidth < 700*time.Millisecond || res.Waits.Bandwidth > res.Duration {
		t.Errorf("%+v of %v", res.Waits, res.Duration)
	}
	if res.Legs != nil {
		t.Error("a session that runs has legs")
	}
}

// TestLegs: those of a session that runs are known if they are TCP.
func TestLegs(t *testing.T) {
	t.Parallel()

	eachDriver(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		g := d.newRig(t, r, tcp, unixStream)
		pass(t, g.A, g.B, make([]byte, 1000))
		l := g.legs()
		if !l.A.Known || l.A.Received != 1000 || l.A.MinRTT == 0 || l.A.OutOfOrder != 0 {
			t.Errorf("TCP: %+v", l.A)
		}
		if l.B != (relay.Leg{}) {
			t.Errorf("unix: %+v", l.B)
		}
		_ = g.A.CloseWrite()
		_ = g.B.CloseWrite()
		if res, err := g.wait(); err != nil || res.Legs != nil {
			t.Errorf("%v, legs %v without being asked", err, res.Legs)
		}
		if l := g.legs(); l != (relay.Legs{}) {
			t.Errorf("after the end: %+v", l)
		}
	})
}

func (g *rig) legs() (l relay.Legs) {
	if s, ok := g.session.(*loopSession); ok {
		s.on.do(func() { l = s.driven.Legs() })
		return l
	}
	return g.session.(*relay.Session).Legs()
}
