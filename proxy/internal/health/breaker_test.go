package health_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestBreakerConfigure changes the configuration of a half-open breaker.
func TestBreakerConfigure(t *testing.T) {
	cfg := health.BreakerConfig{FailurePercentage: 50, Window: time.Second, MinVolume: 1, Open: time.Second, TrialConnections: 3}
	half := func() (*health.Breaker, *target) {
		k, c := idle(0)
		told := new(target)
		b := health.NewBreaker(k, "a", told, &cfg)
		b.Report(0, health.Reset, c.Now())
		c.advance(time.Second)
		k.Step()
		p, _ := b.Begin()
		b.Report(p, health.OK, c.Now())
		if b.State() != health.HalfOpen {
			t.Fatalf("the breaker is %v", b.State())
		}
		return b, told
	}
	for _, test := range []struct {
		change func(*health.BreakerConfig)
		state  health.State
		trials int64
	}{
		{func(c *health.BreakerConfig) { c.TrialConnections = 1 }, health.Closed, 0},
		{func(c *health.BreakerConfig) { c.FailurePercentage = 0 }, health.Closed, 0},
		{func(c *health.BreakerConfig) { c.TrialConnections = 10 }, health.HalfOpen, 9},
	} {
		b, told := half()
		changed := cfg
		test.change(&changed)
		b.Configure(&changed)
		if b.State() != test.state || told.trials.Load() != test.trials {
			t.Errorf("%+v: %v, %d trials", changed, b.State(), told.trials.Load())
		}
	}
}

// TestBreakerBoundsHoldUnderLoad: several goroutines begin and end connections, some of which
// fail, while the breaker changes its states. No limit and no number of trials is exceeded.
func TestBreakerBoundsHoldUnderLoad(t *testing.T) {
	k, c := idle(0)
	const caps, pendings, trials = 5, 3, 2
	b := health.NewBreaker(k, "pg", new(target), &health.BreakerConfig{
		FailurePercentage: 30, Window: time.Second, MinVolume: 5, Open: time.Millisecond, TrialConnections: trials,
		Connections: caps, Pending: pendings,
	})
	var active, pending, trying, tried atomic.Int64
	var clients sync.WaitGroup
	enter := func(n *atomic.Int64, most int64, what string) {
		if now := n.Add(1); now > most {
			t.Errorf("%d %s at once, at most %d may be", now, what, most)
		}
	}
	for g := range 6 {
		clients.Go(func() {
			for i := range 3000 {
				p, r := b.Begin()
				if r != health.Granted {
					if g == 0 {
						c.advance(100 * time.Microsecond)
						k.Step()
					}
					continue
				}
				enter(&active, caps, "connections")
				enter(&pending, pendings, "pending ones")
				if p.Trial() {
					tried.Add(1)
					enter(&trying, trials, "trials")
					trying.Add(-1)
				}
				pending.Add(-1)
				b.Reached()
				out := health.OK
				switch (i*7 + g) % 5 {
				case 0:
					out = health.Unknown
				case 1, 2:
					out = health.Reset
				}
				b.Report(p, out, c.Now())
				active.Add(-1)
				b.End(true)
			}
		})
	}
	clients.Wait()
	if conns, pending := b.Load(); conns != 0 || pending != 0 {
		t.Errorf("%d connections, %d pending are left of none", conns, pending)
	}
	if tried.Load() == 0 || b.Opened.Load() < 2 {
		t.Errorf("%d trials, opened %d times: the test tries nothing", tried.Load(), b.Opened.Load())
	}
}

// TestNobodyTries: the Scheduler forgets a half-open breaker that has nothing to wait for,
// since its endpoint may be gone.
func TestNobodyTries(t *testing.T) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Second, TrialConnections: 2,
	})
	b.Report(0, health.Reset, c.Now())
	c.advance(time.Second)
	if next := k.Step(); b.State() != health.HalfOpen || next != health.Never {
		t.Errorf("%v, and the Keeper sleeps until %d", b.State(), next)
	}
	b.Begin()
	b.Begin()
	if next := k.Step(); next != c.Now()+int64(time.Second) {
		t.Errorf("with all trials under way the Keeper sleeps until %d", next)
	}
}

// TestCapsAreExact: several goroutines request more connections than the limits allow.
func TestCapsAreExact(t *testing.T) {
	k, _ := idle(0)
	for _, cfg := range []health.BreakerConfig{{Connections: 100}, {Pending: 100}} {
		b := health.NewBreaker(k, "pg", nil, &cfg)
		for round := range 300 {
			var granted atomic.Int64
			together(4, func(int) {
				for range 50 {
					if _, r := b.Begin(); r == health.Granted {
						granted.Add(1)
					}
				}
			})
			if granted.Load() != 100 {
				t.Fatalf("round %d: %d connections were let through, want 100", round, granted.Load())
			}
			for range 100 {
				b.End(false)
			}
		}
	}
}

// TestOpensOnce: several goroutines reach the limit of failures at once.
func TestOpensOnce(t *testing.T) {
	k, c := idle(0)
	for round := range 300 {
		b := health.NewBreaker(k, "pg", new(target), &health.BreakerConfig{
			FailurePercentage: 1, Window: time.Second, MinVolume: 4, Open: time.Hour, TrialConnections: 10,
		})
		together(4, func(int) {
			for range 3 {
				b.Report(0, health.Reset, c.Now())
			}
		})
		if b.Opened.Load() != 1 || b.State() != health.Open {
			t.Fatalf("round %d: opened %d times", round, b.Opened.Load())
		}
	}
}

// TestClosedAgainBeginsAnew: a breaker that closes counts neither earlier failures nor the
// outcomes of connections that began before.
func TestClosedAgainBeginsAnew(t *testing.T) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 50, Window: time.Hour, MinVolume: 2, Open: time.Second, TrialConnections: 1,
	})
	old, _ := b.Begin()
	for range 2 {
		b.Report(0, health.Reset, c.Now())
	}
	c.advance(time.Second)
	k.Step()
	trial, _ := b.Begin()
	b.Report(trial, health.OK, c.Now())
	for range 2 {
		b.Report(old, health.Reset, c.Now())
	}
	fresh, _ := b.Begin()
	for range 4 {
		b.Reached()
	}
	if b.State() != health.Closed || b.Opened.Load() != 1 {
		t.Errorf("%v, opened %d times", b.State(), b.Opened.Load())
	}
	for range 2 {
		b.Report(fresh, health.Reset, c.Now())
	}
	if b.Opened.Load() != 2 {
		t.Error("two of four failures do not open it")
	}
}

// TestTriedWhenWell: an open breaker is notified, before its time is over, that an endpoint is
// healthy again.
func TestTriedWhenWell(t *testing.T) {
	k, c := idle(0)
	b := health.NewBreaker(k, "pg", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Minute, TrialConnections: 2,
	})
	b.Recovered()
	if b.State() != health.Closed || k.Transitions.Load() != 0 {
		t.Errorf("a closed one is %v", b.State())
	}
	b.Report(0, health.Reset, c.Now())
	c.advance(40 * time.Second)
	b.Recovered()
	b.Recovered()
	if b.State() != health.HalfOpen || k.Transitions.Load() != 2 {
		t.Errorf("an open one is %v after %d transitions", b.State(), k.Transitions.Load())
	}
	var permits [2]health.Permit
	for i := range permits {
		permits[i], _ = b.Begin()
	}
	c.advance(20 * time.Second) // the end of its original open time
	k.Step()
	if _, r := b.Begin(); r != health.RefusedTrials {
		t.Errorf("with its trials under way, not for long, another is %v", r)
	}
	for _, p := range permits {
		b.Report(p, health.OK, c.Now())
	}
	if b.State() != health.Closed {
		t.Errorf("after its trials it is %v", b.State())
	}
	b.Report(0, health.Reset, c.Now())
	b.Recovered()
	p, _ := b.Begin()
	b.Report(p, health.Reset, c.Now())
	if b.State() != health.Open {
		t.Errorf("after a trial that failed it is %v", b.State())
	}
}

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
		b, told := health.NewBreaker(k, "pg", target, &m.cfg), health.Closed.String()
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
			for _, tr := range k.Told() {
				told = tr.State
			}
			if told != m.state.String() {
				t.Fatalf("reported %s last, want %s", told, m.state)
			}
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
