package relay_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

func (s *loopSession) Look() (t relay.Turn) {
	s.on.do(func() { t = s.driven.Look() })
	return t
}

// ask moves a byte from A to B, and waits until that is counted.
func (g *rig) ask() {
	g.t.Helper()
	before := g.session.Result().AToB.Bytes()
	if err := ping(g.A, g.B, 1); err != nil {
		g.t.Fatal(err)
	}
	g.until("the question is counted", func(res relay.Result) bool { return res.AToB.Bytes() > before })
}

// begun returns when the session has begun, some time ago.
func begun(c *fakeClock, g *rig) {
	for g.session.Result().Duration == 0 {
		c.advance(time.Millisecond)
	}
}

// expectTurn looks. Asked and Waited are noted in ticks: they may be less, or more, by one.
func expectTurn(t *testing.T, g *rig, want relay.Turn) {
	t.Helper()
	const tick = 135 * time.Millisecond
	near := func(got, want time.Duration) bool {
		return (got != 0) == (want != 0) && max(got-want, want-got) <= tick
	}
	got := g.session.(interface{ Look() relay.Turn }).Look()
	if got.Last != want.Last || got.Ended != want.Ended || got.Quiet != want.Quiet || got.Spoke != want.Spoke || got.Answered != want.Answered ||
		!near(got.Asked, want.Asked) || !near(got.Waited, want.Waited) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestTurn: whose turn it is, and since when, from look to look.
func TestTurn(t *testing.T) {
	t.Parallel()
	eachDriver(t, testTurn)
}

func testTurn(t *testing.T, d *driving) {
	const s = time.Second
	r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour})
	g := d.newRig(t, r, tcp, tcp)
	begun(c, g)
	c.advance(s)
	began := g.session.Result().Duration
	expectTurn(t, g, relay.Turn{Quiet: began, Asked: began})
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s})
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 3 * s, Asked: 3 * s})
	g.ask() // it goes on, and is not answered for that
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Asked: 3 * s})
	c.advance(s)
	g.answer()
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Quiet: s, Answered: true, Waited: 5 * s})
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Quiet: 2 * s, Spoke: true})
	g.answer() // to nothing: it streams
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Spoke: true})
	g.ask()
	c.advance(s)
	g.answer()
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Spoke: true, Answered: true})
}

// TestTurnAgain: a question that follows an answer, both since the look before, is a new one.
// By what has moved alone that cannot be told from an answer.
func TestTurnAgain(t *testing.T) {
	t.Parallel()

	const s = time.Second
	d := ofLoop()
	r, c := d.clockedRelay(t, relay.Config{})
	g := d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(5 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 5 * s, Asked: 5 * s})
	g.answer()
	c.advance(s)
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s, Answered: true, Waited: 8 * s})
}

// TestTurnOver: a second side that has ended is not asked any more.
func TestTurnOver(t *testing.T) {
	t.Parallel()
	eachDriver(t, testTurnOver)
}

func testTurnOver(t *testing.T, d *driving) {
	r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour})
	g := d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(time.Second)
	if err := g.B.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	g.until("the end is noted", func(res relay.Result) bool { return res.BToA.Reason == relay.ReasonEOF })
	expectTurn(t, g, relay.Turn{Quiet: time.Second})
}

// TestTurnAfterTheEnd: a first side that has asked and then ends still waits for an answer.
func TestTurnAfterTheEnd(t *testing.T) {
	t.Parallel()
	eachDriver(t, testTurnAfterTheEnd)
}

func testTurnAfterTheEnd(t *testing.T, d *driving) {
	const s = time.Second
	r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: time.Hour})
	g := d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s})
	if err := g.A.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	g.until("the end is noted", func(relay.Result) bool { return g.session.HalfOpen() })
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Ended: true, Quiet: s, Asked: 3 * s})
}

// TestFirstByteTold: the second side's first byte, and no other, is told, with the time since
// the question, or since the beginning if there was none.
func TestFirstByteTold(t *testing.T) {
	t.Parallel()
	eachDriver(t, testFirstByteTold)
}

func testFirstByteTold(t *testing.T, d *driving) {
	const s = time.Second
	for name, cfg := range map[string]relay.Config{"with timeouts": {IdleTimeout: time.Hour}, "without": {}} {
		t.Run(name, func(t *testing.T) {
			r, c := d.clockedRelay(t, cfg)
			var mu sync.Mutex
			type first struct {
				took  time.Duration
				asked bool
			}
			var told []first
			d.limits = &relay.Limits{IdleTimeout: cfg.IdleTimeout, FirstByteCame: func(took time.Duration, asked bool) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, first{took, asked})
			}}
			expectTold := func(want ...first) {
				t.Helper()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(told, want) {
					t.Errorf("told %v, want %v", told, want)
				}
			}
			asked, greeted := d.newRig(t, r, tcp, tcp), d.newRig(t, r, tcp, tcp)
			begun(c, asked)
			begun(c, greeted)
			c.advance(5 * s)
			since := greeted.session.Result().Duration
			asked.ask()
			c.advance(2 * s)
			expectTold()
			asked.answer()
			expectTold(first{2 * s, true})
			asked.ask()
			c.advance(s)
			asked.answer()
			greeted.answer()
			greeted.ask()
			c.advance(s)
			greeted.answer()
			expectTold(first{2 * s, true}, first{since + 3*s, false})
		})
	}
}
