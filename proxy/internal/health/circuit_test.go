package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"pgregory.net/rapid"
)

// breakerModel is a simple model of a Breaker.
type breakerModel struct {
	cfg              health.BreakerConfig
	state            health.State
	period           int
	until            int64
	begun, succeeded int
	opened           int64
	early            bool // half-open before its time
	inVain           int  // the number of times that it failed
	events           []modelEvent
	conns            []*modelConn
}

// modelConn is a connection that was let through.
type modelConn struct {
	permit        health.Permit
	period        int
	trial         bool
	reached, told bool
	zeroed        bool
}

func (b *breakerModel) become(s health.State, now int64) {
	b.state, b.begun, b.succeeded = s, 0, 0
	b.period++
	switch s {
	case health.Closed:
		b.events, b.inVain = nil, 0
	case health.Open:
		b.opened, b.until = now, now+int64(b.cfg.Open)
		if b.early {
			b.inVain++
		}
	}
	b.early = false
}

// passed reports a check that has succeeded.
func (b *breakerModel) passed(began, now int64) {
	pauses := []time.Duration{0, b.cfg.Open / 16, b.cfg.Open / 8, b.cfg.Open / 4, b.cfg.Open / 2, b.cfg.Open}
	if b.state == health.Open && began >= b.opened+int64(pauses[min(b.inVain, 5)]) {
		b.become(health.HalfOpen, now)
		b.early = true
	}
}

// pass is begin in panic.
func (b *breakerModel) pass(now int64) (trial bool, r health.Refusal) {
	if trial, r = b.begin(now); r == health.RefusedOpen || r == health.RefusedTrials {
		r = health.Granted
	}
	return trial, r
}

func (b *breakerModel) begin(now int64) (trial bool, r health.Refusal) {
	pending := 0
	for _, c := range b.conns {
		if !c.reached {
			pending++
		}
	}
	switch {
	case b.cfg.Connections > 0 && len(b.conns) >= int(b.cfg.Connections):
		return false, health.RefusedConnections
	case b.cfg.Pending > 0 && pending >= int(b.cfg.Pending):
		return false, health.RefusedPending
	case b.state == health.Open:
		return false, health.RefusedOpen
	case b.state == health.Closed:
		return false, health.Granted
	case b.begun >= b.cfg.TrialConnections:
		return false, health.RefusedTrials
	}
	if b.begun++; b.begun == b.cfg.TrialConnections {
		b.until = now + int64(b.cfg.Open)
	}
	return true, health.Granted
}

func (b *breakerModel) report(c *modelConn, o health.Outcome, now int64) {
	switch {
	case c.trial:
		b.tried(c, o, now)
	case !o.Failed() || b.state != health.Closed || !c.zeroed && c.period != b.period:
	default:
		b.events = failedEvent(b.events, o, now/b.width())
		b.judge(now)
	}
}

func (b *breakerModel) width() int64 { return int64(b.cfg.Window) / health.Slots }

func (b *breakerModel) reached(now int64) {
	if b.state == health.Closed {
		b.events = append(b.events, modelEvent{now / b.width(), false})
	}
}

func (b *breakerModel) judge(now int64) {
	var ok, failed uint64
	for _, e := range b.events {
		switch {
		case e.epoch <= now/b.width()-health.Slots:
		case e.failed:
			failed++
		default:
			ok++
		}
	}
	if health.TooMany(ok, failed, b.cfg.FailurePercentage, b.cfg.MinVolume) {
		b.become(health.Open, now)
	}
}

func (b *breakerModel) tried(c *modelConn, o health.Outcome, now int64) {
	switch {
	case b.state != health.HalfOpen || c.period != b.period:
	case o.Failed():
		b.become(health.Open, now)
	case o == health.Unknown:
		b.begun--
	default:
		if b.succeeded++; b.succeeded == b.cfg.TrialConnections {
			b.become(health.Closed, now)
		}
	}
}

func (b *breakerModel) turn(now int64) {
	switch {
	case b.state == health.Closed || now < b.until:
	case b.state == health.Open:
		b.become(health.HalfOpen, now)
	case b.begun == b.cfg.TrialConnections:
		b.begun = b.succeeded
		b.period++
	}
}

func TestBreakerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, c := idle(0)
		m := &breakerModel{cfg: health.BreakerConfig{
			FailurePercentage: float64(rapid.SampledFrom([]int{0, 30, 60, 100}).Draw(t, "percent")),
			Window:            time.Second, MinVolume: rapid.IntRange(1, 6).Draw(t, "volume"), Open: time.Second,
			TrialConnections: rapid.IntRange(1, 3).Draw(t, "trials"),
			Connections:      rapid.Int64Range(0, 6).Draw(t, "connections"),
			Pending:          rapid.Int64Range(0, 3).Draw(t, "pending"),
		}}
		target, dice := new(target), dice(t)
		b := health.NewBreaker(k, "pg", target, &m.cfg)
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			var conn *modelConn
			if len(m.conns) > 0 {
				conn = m.conns[dice.IntN(len(m.conns))]
			}
			switch op := dice.IntN(12); {
			case op == 0:
				// One event at a time is due, so that the order does not matter.
				now := c.advance(time.Duration(dice.Int64N(int64(700 * time.Millisecond))))
				k.Step()
				m.turn(now)
			case op == 10:
				began := c.Now() - dice.Int64N(int64(time.Second))
				b.ProbeSucceeded(began)
				m.passed(began, c.Now())
			case op < 4 || op == 11:
				begin, model := b.Begin, m.begin
				if op == 11 {
					begin, model = b.Pass, m.pass
				}
				p, r := begin()
				trial, want := model(c.Now())
				if r != want || p.Trial() != trial {
					t.Fatalf("begin: %v, trial %v; want %v, %v", r, p.Trial(), want, trial)
				}
				if r == health.Granted {
					m.conns = append(m.conns, &modelConn{permit: p, period: m.period, trial: trial})
				}
			case conn == nil:
			case op == 4 && !conn.reached:
				b.Reached()
				m.reached(c.Now())
				conn.reached = true
			case op < 8 && !conn.told:
				out := []health.Outcome{health.Unknown, health.OK, health.OK, health.OK, health.Silent, health.ConnectFailed}[dice.IntN(6)]
				conn.told = true
				if !conn.trial && dice.IntN(3) == 0 {
					conn.permit, conn.zeroed = 0, true
				}
				b.Report(conn.permit, out, c.Now())
				m.report(conn, out, c.Now())
			case op >= 8:
				if conn.trial && !conn.told {
					b.Report(conn.permit, health.Unknown, c.Now())
					m.report(conn, health.Unknown, c.Now())
				}
				b.End(conn.reached)
				m.conns = slices.DeleteFunc(m.conns, func(e *modelConn) bool { return e == conn })
			}
			m.compare(t, b, target)
		}
	})
}

func (b *breakerModel) compare(t *rapid.T, real *health.Breaker, told *target) {
	conns, pending := real.Load()
	want := 0
	for _, c := range b.conns {
		if !c.reached {
			want++
		}
	}
	if int(conns) != len(b.conns) || int(pending) != want {
		t.Fatalf("%d connections, %d pending; want %d, %d", conns, pending, len(b.conns), want)
	}
	if real.State() != b.state || health.State(told.state.Load()) != b.state {
		t.Fatalf("state %v, notified of %v, want %v", real.State(), health.State(told.state.Load()), b.state)
	}
	left := b.cfg.TrialConnections - b.begun
	if said := int(told.trials.Load()); b.state == health.HalfOpen && (said < left || said > 0 && left == 0) {
		t.Fatalf("notified of %d trials left, want at least %d, or none", said, left)
	}
}
