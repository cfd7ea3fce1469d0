package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/relay"
)

// TestBandwidth: over every time, what a session moves, both ways together or one way, is no more than its rates give and their bursts,
// and as much if there is that much to be moved. A limit of one direction leaves the other alone.
func TestBandwidth(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		// A direction whose source had nothing queued when it asked reads before it pays: LeastPiece.
		const fast, slow, burst, queued = 200_000, 50_000, 20_000, 1 << 20
		for name, x := range map[string]struct {
			limits      relay.Limits
			all, ab, ba int64 // the rates; 0: there is none
		}{
			"shared":            {limits: relay.Limits{Bandwidth: relay.NewBucket(fast, burst)}, all: fast},
			"own":               {limits: relay.Limits{PerConnection: relay.Rates{Both: fast}}, all: fast},
			"shared, each":      {limits: relay.Limits{BandwidthAToB: relay.NewBucket(fast, burst), BandwidthBToA: relay.NewBucket(slow, burst)}, ab: fast, ba: slow},
			"own, each":         {limits: relay.Limits{PerConnection: relay.Rates{AToB: slow, BToA: fast, Burst: burst}}, ab: slow, ba: fast},
			"own, one":          {limits: relay.Limits{PerConnection: relay.Rates{BToA: slow, Burst: burst}}, ba: slow},
			"shared, the other": {limits: relay.Limits{BandwidthAToB: relay.NewBucket(slow, burst)}, ab: slow},
			"beside a faster":   {limits: relay.Limits{Bandwidth: relay.NewBucket(1<<30, 0), PerConnection: relay.Rates{AToB: fast, BToA: slow, Burst: burst}}, ab: fast, ba: slow},
			"own and shared":    {limits: relay.Limits{BandwidthAToB: relay.NewBucket(fast, burst), PerConnection: relay.Rates{AToB: slow, Burst: burst}}, ab: slow},
		} {
			t.Run(name, func(t *testing.T) {
				r, c := d.clockedRelay(t, relay.Config{Engine: relay.EngineSplice})
				d.limits = &x.limits
				begin := c.now()
				g := d.newRig(t, r, tcp, tcp)
				for _, from := range []halfConn{g.A, g.B} {
					write(t, from, make([]byte, queued))
				}
				go io.Copy(io.Discard, g.A)
				go io.Copy(io.Discard, g.B)
				for range 50 {
					due := func(rate, unlimited int64) int64 {
						if rate == 0 {
							return unlimited
						}
						return rate * int64(c.now()-begin) / 1e9
					}
					all, ab, ba := due(x.all, 2*queued), due(x.ab, queued), due(x.ba, queued)
					res := g.until("the rates are used", func(res relay.Result) bool {
						c.nudge()
						if x.all > 0 {
							return res.AToB.Bytes()+res.BToA.Bytes() >= all
						}
						return res.AToB.Bytes() >= ab && res.BToA.Bytes() >= ba
					})
					const most = burst + relay.LeastPiece
					if n, m := res.AToB.Bytes(), res.BToA.Bytes(); n > ab+most || m > ba+most || n+m > all+most+relay.LeastPiece {
						t.Fatalf("%d and %d bytes moved in %v", n, m, c.now()-begin)
					}
					if name == "shared" {
						g.until("nothing is held", func(relay.Result) bool { pipes, buffers := d.holds(t, r); return pipes+buffers == 0 })
					}
					c.advance(10 * time.Millisecond)
				}
				g.until("it rests", func(relay.Result) bool { return r.Stats().Drivers.Rests > 0 })
				if n := r.Stats().Drivers.Rests; x.all > 0 && n > 3*50 {
					t.Errorf("rested %d times in 50 steps of the clock", n)
				}
				if res := g.session.Result(); res.AToB.Copied+res.BToA.Copied > 0 {
					t.Errorf("%+v, want all spliced", res)
				}
			})
		}
	})
}

// TestBandwidthMarks: sources whose low-water marks are raised and whose rates are
// limited move all, the tails included.
func TestBandwidthMarks(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		d.proven = true
		for _, rate := range []int64{16 << 20, 128 << 20} {
			d.limits = &relay.Limits{Bandwidth: relay.NewBucket(rate, 0)}
			g := d.newRig(t, r, tcp, tcp)
			for i, n := range []int{1, 300_000, 17, 2_000_000, 5} { // bursts, and a tail each
				want := content(uint64(i), n)
				go func() {
					if _, err := g.A.Write(want); err != nil {
						t.Error(err)
					}
				}()
				got := make([]byte, n)
				readFull(t, g.B, got)
				if string(got) != string(want) {
					t.Fatal("other bytes came")
				}
			}
			g.A.CloseWrite()
			g.B.CloseWrite()
			g.checkClean(2_300_023, 0)
		}
		if n := r.Stats().Drivers.MarksRaised; n == 0 {
			t.Error("no mark was raised: the test does not try what it is for")
		}
	})
}

// queued is a network whose far end has sent a text, which is in the near end's queue: a direction
// that finds its queue empty may read before it pays.
func queued(n network, text string) network {
	return func(t testing.TB) (far halfConn, near net.Conn) {
		t.Helper()
		far, near = n(t)
		write(t, far, text)
		awaitQueued(t, near)
		return far, near
	}
}

// TestBandwidthIsNotIdle: a session that waits for the others to leave it some
// bandwidth is neither idle, nor is its endpoint silent.
func TestBandwidthIsNotIdle(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r, c := d.clockedRelay(t, relay.Config{})
		b := relay.NewBucket(1000, 0)
		b.Owe(16<<10+60_000, c.now()) // by others: a minute's worth
		d.limits = &relay.Limits{Bandwidth: b, IdleTimeout: 5 * time.Second, FirstByte: 3 * time.Second}
		g := d.newRig(t, r, tcp, queued(tcp, "hello"))
		d.untilResting(t, r, 1)
		for range 59 {
			c.advance(time.Second)
			running(t, g)
		}
		if n := g.session.Result().BToA.Bytes(); n != 0 {
			t.Fatalf("%d bytes were moved that were not left", n)
		}
		c.walk(2*time.Second, 100*time.Millisecond, func() bool { return false })
		untilMoved(t, c, g, 5)
		sockets.Expect(t, g.A, "hello")
		c.advance(4 * time.Second)
		running(t, g)
		c.advance(time.Second)
		expectTimeout(t, g, relay.ReasonIdle)
	})
}

// untilResting waits until a direction has begun to wait for its rate so many times.
func (d *driving) untilResting(t *testing.T, r *relay.Relay, times int64) {
	t.Helper()
	condition.Await(t, "a direction waits for its rate", func() bool { return r.Stats().Drivers.Rests >= times })
}

// untilMoved moves the time on, little by little, until a session has moved n bytes: a direction on a
// goroutine that was late to set its timer counts from a later time than the one it looked at.
func untilMoved(t *testing.T, c *fakeClock, g *rig, n int64) {
	t.Helper()
	moved := func() int64 { res := g.session.Result(); return res.AToB.Bytes() + res.BToA.Bytes() }
	condition.Await(t, fmt.Sprintf("%d bytes have been moved", n), func() bool { c.advance(time.Millisecond); return moved() >= n })
}

// untilTimed waits until a direction on a goroutine that has begun to wait has its timer, the only one
// of the clock, whose time would otherwise be counted from a later one.
func (d *driving) untilTimed(t *testing.T) {
	const never = time.Duration(1 << 62)
	t.Helper()
	condition.Await(t, "the direction has a timer", func() bool { return d.onLoop() || d.clock.due(never) != never })
}

// TestBandwidthReset: what a client had sent before it was reset waits for its turn like
// all else, and the reset follows it.
func TestBandwidthReset(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r, c := d.clockedRelay(t, relay.Config{})
		b := relay.NewBucket(1000, 0)
		b.Owe(16<<10+10_000, c.now())
		d.limits = &relay.Limits{Bandwidth: b}
		g := d.newRig(t, r, queued(tcp, "hello"), tcp)
		d.untilResting(t, r, 1)
		d.untilTimed(t)
		_ = g.A.(*net.TCPConn).SetLinger(0)
		g.A.Close()
		c.advance(9 * time.Second)
		running(t, g)
		c.walk(2*time.Second, 100*time.Millisecond, func() bool { return false })
		untilMoved(t, c, g, 5)
		got := make([]byte, 5)
		if _, err := io.ReadFull(g.B, got); err != nil || string(got) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
		if res, _ := g.wait(); res.Reason != relay.ReasonReset || res.AToB.Bytes() != 5 || res.AToB.Lost != 0 {
			t.Errorf("%+v", res)
		}
		must.Fail(g.B.Read(got))(t, syscall.ECONNRESET)
	})
}

// TestBandwidthCut: a session that waits for bandwidth is cut like any other.
func TestBandwidthCut(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		networks := d.networks()
		if !d.onLoop() {
			networks["tls"] = tlsOverTCP
			defer delete(networks, "tls")
		}
		for name, n := range networks {
			r, c := d.clockedRelay(t, relay.Config{})
			b := relay.NewBucket(1000, 0)
			b.Owe(1<<30, c.now())
			d.limits = &relay.Limits{Bandwidth: b, IdleTimeout: time.Hour}
			g := d.newRig(t, r, queued(n, "hello"), tcp)
			d.untilResting(t, r, 1)
			why := errors.New("enough")
			g.cancel(why)
			res, err := g.wait()
			if res.Reason != relay.ReasonCanceled || !errors.Is(err, why) || res.AToB.Bytes() != 0 || res.AToB.Lost > 5 {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
	})
}

// TestBandwidthChanged: those who wait are served by a new rate soon.
func TestBandwidthChanged(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		b := relay.NewBucket(1, 1)
		d.limits = &relay.Limits{Bandwidth: b}
		g := d.newRig(t, r, tcp, tcp)
		go g.A.Write(make([]byte, 300_000))
		d.untilResting(t, r, 1)
		b.Set(1<<30, 0)
		readFull(t, g.B, make([]byte, 300_000))
		b.Set(1, 0)
		b.Set(0, 0)
		g.echo(t)
		if b.Rate() != 0 || b.Waits() == 0 {
			t.Errorf("rate %d, %d waits", b.Rate(), b.Waits())
		}
	})
}
