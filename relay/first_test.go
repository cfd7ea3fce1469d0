package relay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// TestFirst: the result says which side has ended first, once one has, also after the other
// one has too.
func TestFirst(t *testing.T) {
	t.Parallel()
	eachDriver(t, testFirst)
}

func testFirst(t *testing.T, d *driving) {
	r := newRelay(t, nil)
	for _, first := range []relay.Side{relay.SideA, relay.SideB} {
		g := d.newRig(t, r, tcp, tcp)
		g.echo(t)
		if res := g.session.Result(); res.First != relay.SideNone {
			t.Errorf("%v before either has ended", res.First)
		}
		one, other := g.A, g.B
		if first == relay.SideB {
			one, other = other, one
		}
		if err := one.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		g.until("one has ended", func(res relay.Result) bool { return res.First == first })
		if err := other.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if res, err := g.wait(); err != nil || res.First != first || res.Reason != relay.ReasonEOF {
			t.Errorf("%+v, %v; want %v first", res, err, first)
		}
	}
}

// TestAnswered: that the second side has sent a byte is told once the time for it is over, an
// end of file without one is not.
func TestAnswered(t *testing.T) {
	t.Parallel()
	eachDriver(t, testAnswered)
}

func testAnswered(t *testing.T, d *driving) {
	for _, bytes := range []bool{true, false} {
		r, c := d.clockedRelay(t, relay.Config{})
		var told atomic.Int64
		d.limits = &relay.Limits{FirstByte: 3 * time.Second, IdleTimeout: 10 * time.Second, Answered: func() { told.Add(1) }}
		g := d.newRig(t, r, tcp, tcp)
		g.echo(t)
		if bytes {
			g.answer()
		} else if err := g.B.CloseWrite(); err != nil {
			t.Fatal(err)
		} else {
			g.until("it has ended", func(res relay.Result) bool { return res.First == relay.SideB })
		}
		c.advance(3 * time.Second)
		if bytes {
			g.until("it is told", func(relay.Result) bool { return told.Load() > 0 })
		}
		c.advance(10 * time.Second)
		expectTimeout(t, g, relay.ReasonIdle)
		if (told.Load() > 0) != bytes {
			t.Errorf("with bytes %v it was told %d times", bytes, told.Load())
		}
	}
}
