package worker_test

import (
	"errors"
	"math"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	inuse "github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A parkRig is a loop with a clock of the test's, whose sessions have left user space.
type parkRig struct {
	*rig
	*tie
	clock *atomic.Int64
	conns []net.Conn
}

func newParkRig(t *testing.T, sessions int, limits relay.Limits) *parkRig {
	t.Helper()
	p := &parkRig{tie: &tie{upstream: "u", endpoint: "e"}, clock: new(atomic.Int64)}
	p.clock.Store(int64(time.Hour))
	limits.Of = p.tie
	d := straight(echo(t))
	d.reached = func() (*relay.Limits, error) { return &limits, nil }
	p.rig = directed(t, d, func(c *setup, _ *worker.Service) { c.Loops, c.Now, c.MaxConnections = 1, p.clock.Load, 1000 })
	p.serve(t)
	for range sessions {
		c := p.dial(t)
		talk(t, c)
		p.conns = append(p.conns, c)
	}
	p.Turn()
	if n := p.Depart(0); n != sessions {
		t.Fatalf("%d of %d have left", n, sessions)
	}
	return p
}

// pass lets time pass, in steps.
func (p *parkRig) pass(d time.Duration) {
	const step = 250 * time.Millisecond
	for ; d > 0; d -= step {
		p.clock.Add(int64(min(d, step)))
		p.Wake()
		p.Turn()
	}
}

// TestParkedTimeouts: sessions that have left are parked after a second, are counted and listed like others, and end by their
// timeouts at the time at which those pass. Without timeouts nothing looks for any.
func TestParkedTimeouts(t *testing.T) {
	t.Parallel()

	const n, second = 5, time.Second
	for _, c := range []struct {
		name   string
		limits relay.Limits
		half   bool
		at     time.Duration
		why    relay.Reason
	}{
		{"idle", relay.Limits{IdleTimeout: 12 * second}, false, 12 * second, relay.ReasonIdle},
		{"idle for longer", relay.Limits{IdleTimeout: 5 * time.Minute}, false, 5 * time.Minute, relay.ReasonIdle},
		{"lifetime", relay.Limits{IdleTimeout: time.Hour, MaxLifetime: 20 * second}, false, 20 * second, relay.ReasonLifetime},
		{"half-closed", relay.Limits{HalfCloseTimeout: 9 * second}, true, 9 * second, relay.ReasonHalfClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newParkRig(t, n, c.limits)
			p.pass(0)
			if parked, _, _ := p.Parked(0); parked != 0 {
				t.Errorf("%d are parked at once", parked)
			}
			if c.half {
				p.EachDeparted(0, func(o lane.Observer, s *lane.Session) { o.HalfClosed(s, 1) })
			}
			const early = 2 * second
			p.pass(early)
			if parked, bound, _ := p.Parked(0); parked != n || bound != n {
				t.Errorf("%d are parked, %d with timeouts", parked, bound)
			}
			for s := range p.Sessions(t.Context(), new(worker.Query)) {
				if !s.Lane || s.Age != early || s.Idle != early || s.ClientToEndpoint == (worker.Moved{}) || s.Upstream != "u" {
					t.Errorf("%+v", s)
				}
			}
			p.pass(c.at - early - 10*time.Millisecond)
			if active := p.Summary().Active; active != n || len(p.all()) != 0 {
				t.Fatalf("%d are left before the time", active)
			}
			p.pass(10 * time.Millisecond)
			p.pass(10 * time.Millisecond)
			if active := p.Summary().Active; active != 0 {
				t.Fatalf("%d are left after the time", active)
			}
			for _, r := range p.all() {
				if r.Reason != c.why || r.Duration < c.at || r.Duration > c.at+20*time.Millisecond {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestParkedWithoutTimeouts: nothing looks for timeouts of sessions that have none, and one that can wait for none is not parked.
func TestParkedWithoutTimeouts(t *testing.T) {
	t.Parallel()

	p := newParkRig(t, 3, relay.Limits{})
	p.pass(2 * time.Second)
	if parked, bound, _ := p.Parked(0); parked != 3 || bound != 0 {
		t.Errorf("%d are parked, %d with timeouts", parked, bound)
	}
	p.pass(5 * time.Minute)
	if active := p.Summary().Active; active != 3 {
		t.Errorf("%d are left", active)
	}
	short := newParkRig(t, 3, relay.Limits{IdleTimeout: 4 * time.Second})
	short.pass(3 * time.Second)
	if parked, _, _ := short.Parked(0); parked != 0 {
		t.Errorf("%d with a short timeout are parked", parked)
	}
	short.pass(2 * time.Second)
	if active := short.Summary().Active; active != 0 {
		t.Errorf("%d are left after a short timeout", active)
	}
}

// TestParkedEnds: parked sessions end as others do: by their endpoints, by a cut of some, by their IDs, and with everything.
func TestParkedEnds(t *testing.T) {
	t.Parallel()

	cause := errors.New("cut by the test")
	for name, end := range map[string]func(t *testing.T, p *parkRig){
		"by their endpoints": func(_ *testing.T, p *parkRig) {
			p.EachDeparted(0, func(o lane.Observer, s *lane.Session) {
				o.Ended(s, lane.Result{Left: true, View: lane.View{EndedBy: 1}})
			})
		},
		"by a reset": func(_ *testing.T, p *parkRig) {
			p.EachDeparted(0, func(o lane.Observer, s *lane.Session) {
				o.Ended(s, lane.Result{Left: true, Reset: true, View: lane.View{EndedBy: 0, Ends: [2]lane.End{1: {Ended: true}}}})
			})
		},
		"cut": func(t *testing.T, p *parkRig) {
			if n := p.CutMatching(func(*worker.Listening, worker.Binding) bool { return true }, cause); n != 3 {
				t.Errorf("%d were cut", n)
			}
		},
		"cut in the lane": func(t *testing.T, p *parkRig) {
			if n := p.CutLane(func(*worker.Listening, worker.Binding) bool { return true }); n != 3 {
				t.Errorf("%d were cut", n)
			}
		},
		"by IDs": func(t *testing.T, p *parkRig) {
			var ids []worker.ID
			for s := range p.Sessions(t.Context(), new(worker.Query)) {
				ids = append(ids, s.ID)
			}
			busy := 0
			if err := p.End(t.Context(), ids, time.Second, func(_ worker.ID, e worker.EndResult) {
				if e == worker.Busy { // its last bytes are not known to be acknowledged
					busy++
				}
			}); err != nil || busy != 3 {
				t.Errorf("%d are busy, %v", busy, err)
			}
			if parked, _, _ := p.Parked(0); parked != 3 {
				t.Errorf("%d are parked after they were looked at", parked)
			}
			if err := p.End(t.Context(), ids, 0, func(_ worker.ID, e worker.EndResult) {
				if e != worker.EndedNow {
					t.Error(e)
				}
			}); err != nil {
				t.Error(err)
			}
		},
		"by a drain": func(_ *testing.T, p *parkRig) { p.LeaveLane(cause) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newParkRig(t, 3, relay.Limits{IdleTimeout: time.Hour})
			p.pass(2 * time.Second)
			if parked, _, _ := p.Parked(0); parked != 3 {
				t.Fatalf("%d are parked", parked)
			}
			end(t, p)
			eventually(t, func() bool { return p.Summary().Active == 0 })
			if r := p.all(); len(r) != 3 || r[0].Duration != 2*time.Second || r[0].AToB.Copied == 0 {
				t.Errorf("%+v", r)
			} else if name == "by a reset" && r[0].First != relay.SideB {
				t.Errorf("its endpoint had ended before: %+v", r[0])
			}
			if _, bound, _ := p.Parked(0); bound != 0 {
				t.Errorf("%d that have ended have timeouts", bound)
			}
		})
	}
}

// inTheLane is the most bytes of this process for a session that has left user space, beside its places in the tables of the lane: its two objects have 184,
// and the last slab of clients is not full.
const inTheLane = 188

// TestManyParked: of 11,000 sessions that have left, lists take parts of less than a millisecond of CPU time, and nothing that looks at them unparks them. Each takes
// no more than inTheLane of the heap, with its part in the lane.
func TestManyParked(t *testing.T) {
	const most = 10_000
	all := most
	if testing.Short() || race.Enabled {
		all = 1000
	}
	m, clock := new(partMeter), new(atomic.Int64)
	clock.Store(int64(time.Hour))
	r := newRig(t, func(c *setup) {
		c.Loops, c.MaxConnections, c.TurnCPU, c.Now = 1, all+1000, true, clock.Load
	})
	r.SetParts(m.measure)
	r.serve(t)
	there := 0
	depart := func(n int) {
		const some = 500 // which have sockets at a time, and are parked before the next
		for end := there + n; there < end; {
			pairs := make([][2]int, 0, some)
			for range min(some, end-there) {
				pairs = append(pairs, tcpPair(t, len(pairs)))
			}
			if _, err := r.Simulate(0, pairs, 0); err != nil {
				t.Fatal(err)
			}
			r.Turn()
			if left := r.Depart(0); left != len(pairs) {
				t.Fatalf("%d of %d have left", left, len(pairs))
			}
			there += len(pairs)
			clock.Add(int64(2 * time.Second))
			eventually(t, func() bool { r.Wake(); parked, _, _ := r.Parked(0); return parked == there })
		}
	}
	depart(1000)
	inUse := func() int { // beside the slabs of sessions, which are for those in user space
		_, _, slabs := r.Parked(0)
		return inuse.InUse() - slabs*8<<10
	}
	before := inUse()
	depart(all)
	each := (inUse() - before) / all
	_, _, slabs := r.Parked(0)
	t.Logf("%d bytes for each of %d, %d slabs of sessions are left", each, all, slabs)
	if each > inTheLane && all == most { // of few, the parts of slabs that are not used yet count for too much
		t.Errorf("%d bytes for each session, want at most %d", each, inTheLane)
	}
	if slabs > worker.SpareSlabs+1 {
		t.Errorf("%d slabs of sessions are left", slabs)
	}
	m.overruns = r.overruns
	r.Turn()
	m.before = m.overruns()
	m.holds(t, "a list", func() {
		n := 0
		for s := range r.Sessions(t.Context(), &worker.Query{Sample: true, Brief: true}) {
			if s.Lane {
				n++
			}
		}
		if n != there {
			t.Errorf("%d are listed", n)
		}
	})
	t.Logf("a watch takes %v", r.Watch())
	if parked, _, _ := r.Parked(0); parked != there {
		t.Errorf("%d are parked after they were looked at", parked)
	}
}

// TestSpan: a time is kept to a two thousandth, and that at which packets began to try to a millisecond.
func TestSpan(t *testing.T) {
	t.Parallel()

	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 2047 * time.Millisecond, 3 * time.Second, time.Hour, 1000 * time.Hour, 1e6 * time.Hour} {
		if got, want := worker.Span(d), max(d, 0).Truncate(time.Millisecond); got > want || want-got > want/1000 {
			t.Errorf("%v is kept as %v", d, got)
		}
	}
	for _, at := range []uint32{0, 1, 1<<16 - 1, 1 << 16, 123456789, math.MaxUint32} {
		if got := worker.Tried(at); got != at {
			t.Errorf("%d is kept as %d", at, got)
		}
	}
}

// TestEndedInUserSpace: a session that the lane ends just as it comes back, as by a user timeout, ends; one that has never left
// goes on.
func TestEndedInUserSpace(t *testing.T) {
	t.Parallel()

	for name, cameBack := range map[string]bool{"come back": true, "never left": false} {
		t.Run(name, func(t *testing.T) {
			e := new(tie)
			r := directed(t, straight(echo(t)).bound(e), func(c *setup, _ *worker.Service) { c.Loops = 1 })
			r.serve(t)
			c := r.dial(t)
			talk(t, c)
			owner, sessions := r.Prepared(0, cameBack)
			if len(sessions) != 1 {
				t.Fatalf("%d sessions", len(sessions))
			}
			owner.Ended(sessions[0], lane.Result{Reset: true, Left: true, Err: os.ErrDeadlineExceeded})
			if !cameBack {
				r.Turn()
				talk(t, c)
				return
			}
			eventually(t, func() bool { return e.ended() == 1 && r.Summary().Active == 0 })
			if got := e.all()[0].Reason; got != relay.ReasonCanceled {
				t.Error(got)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the client still waits")
			}
		})
	}
}

// TestWithdrawnOverTurns: when no session is to leave user space any more, a loop withdraws those that it has prepared for that some in each turn, and
// none is offered meanwhile.
func TestWithdrawnOverTurns(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), func(c *setup, _ *worker.Service) { c.Loops = 1 })
	r.serve(t)
	r.Prepared(0, false) // none yet
	const sessions = 60_000
	restore, err := r.Simulate(0, nil, sessions)
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	if _, prepared := r.Prepared(0, false); len(prepared) != sessions {
		t.Fatalf("%d sessions are prepared", len(prepared))
	}
	left, offered := r.LeaveLaneAlone(0)
	if left == 0 {
		t.Error("all are withdrawn in one turn")
	}
	if offered {
		t.Error("one is offered that is not withdrawn yet")
	}
	eventually(t, func() bool {
		there := 0
		r.EachDeparted(0, func(lane.Observer, *lane.Session) { there++ })
		return there == 0
	})
	talk(t, r.dial(t))
}

// TestLaneQueuedOnce: a session waits once to be asked whether it may leave user space, however often all are asked again, and is in a queue again
// after there was no lane.
func TestLaneQueuedOnce(t *testing.T) {
	t.Parallel()

	r := directed(t, straight(echo(t)), func(c *setup, s *worker.Service) { c.Loops, s.Lane = 1, worker.LaneOn })
	r.serve(t)
	const sessions = 3
	for range sessions {
		talk(t, r.dial(t))
	}
	every := func(*worker.Listening, worker.Binding) bool { return true }
	for _, l := range []*lane.Lane{new(lane.Lane), nil, new(lane.Lane)} { // which is not open: none is asked before the test has ended
		r.SetLane(l, time.Hour)
		for range 20 {
			r.AskLane(every)
		}
		want := sessions
		if l == nil {
			want = 0
		}
		eventually(t, func() bool { return r.LaneQueued(0) == want })
		r.Turn()
		if n := r.LaneQueued(0); n != want {
			t.Errorf("%d wait, want %d", n, want)
		}
	}
}
