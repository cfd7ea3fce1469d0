package loop_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/loop"
)

// modelTimer is a timer of TestWheel, and what it ought to do.
type modelTimer struct {
	loop.Timer
	name  int
	due   int64 // ns; what it was armed for
	tick  int64 // at which it fires
	fired func(*modelTimer)
}

func (m *modelTimer) Expired(t *loop.Timer) {
	if t != &m.Timer {
		panic("the owner was told of another timer")
	}
	m.fired(m)
}

// wheelModel is a wheel beside the sorted list that it stands for.
type wheelModel struct {
	*loop.Wheel
	t      *rapid.T
	base   int64
	now    int64
	timers []*modelTimer
	armed  map[*modelTimer]bool
	fired  []*modelTimer
	then   map[*modelTimer]func() // what a timer does to others when it fires
	turn   func()                 // what is done to timers between two turns; nil: nothing
	turns  int                    // that have left something
}

// newWheelModel makes one of so many timers, each turn of which has spent its time when the
// clock is looked at for the second time.
func newWheelModel(t *rapid.T, timers int) *wheelModel {
	base := rapid.Int64Range(1, 1<<50).Draw(t, "base")
	looks := int64(0)
	m := &wheelModel{
		Wheel: loop.NewWheelBy(base, func() int64 { looks += 2 * loop.TimersTime; return looks }),
		t:     t, base: base, now: base,
		armed: map[*modelTimer]bool{}, then: map[*modelTimer]func(){},
	}
	for i := range timers {
		m.timers = append(m.timers, &modelTimer{name: i, fired: m.onFired})
	}
	return m
}

func (m *wheelModel) onFired(timer *modelTimer) {
	if !m.armed[timer] {
		m.t.Fatalf("timer %d fired, which is not armed", timer.name)
	}
	if timer.Armed() {
		m.t.Fatalf("timer %d is armed while it fires", timer.name)
	}
	if timer.due > m.now {
		m.t.Fatalf("timer %d fired %v early", timer.name, time.Duration(timer.due-m.now))
	}
	delete(m.armed, timer)
	m.fired = append(m.fired, timer)
	if f := m.then[timer]; f != nil {
		delete(m.then, timer)
		f()
	}
}

func (m *wheelModel) arm(timer *modelTimer, d time.Duration) {
	timer.due = m.now + int64(d)
	// What is due by now fires with what is due at the next tick.
	timer.tick = max((timer.due-m.base+loop.WheelTick-1)/loop.WheelTick, (m.now-m.base)/loop.WheelTick+1)
	m.Arm(&timer.Timer, timer, timer.due)
	m.armed[timer] = true
}

func (m *wheelModel) disarm(timer *modelTimer) {
	m.Disarm(&timer.Timer)
	delete(m.armed, timer)
	if timer.Armed() {
		m.t.Fatalf("timer %d is armed still", timer.name)
	}
}

// check: what is armed is what ought to be; nothing that has been due for a tick is
// left; and the time until the next one is no longer than it may be.
func (m *wheelModel) check() {
	first := int64(-1)
	for _, timer := range m.timers {
		if timer.Armed() != m.armed[timer] {
			m.t.Fatalf("timer %d: armed is %v, want %v", timer.name, timer.Armed(), m.armed[timer])
		}
		if m.armed[timer] && (first < 0 || timer.due < first) {
			first = timer.due
		}
	}
	next := m.UntilNext(m.now)
	switch {
	case first < 0 && next >= 0:
		m.t.Fatalf("the next one is in %v, but there is none", time.Duration(next))
	case first >= 0 && (next < 0 || next > max(first-m.now, 0)+loop.WheelTick):
		m.t.Fatalf("the next one is in %v, want at most %v and a tick", time.Duration(next), time.Duration(first-m.now))
	}
}

// advance moves the clock, and checks what fired against the list.
func (m *wheelModel) advance(d time.Duration) {
	m.now += int64(d)
	must := []*modelTimer{}
	for timer := range m.armed {
		if m.base+timer.tick*loop.WheelTick <= m.now {
			must = append(must, timer)
		}
	}
	scripted := len(m.then) > 0
	m.fired = nil
	for m.Advance(m.now); m.UntilNext(m.now) == 0; m.Advance(m.now) {
		m.turns++
		if m.turn != nil {
			scripted = true
			m.turn()
		}
	}
	if scripted {
		return // others may have been disarmed meanwhile; check looks at the rest
	}
	for _, timer := range must {
		if !slices.Contains(m.fired, timer) {
			m.t.Fatalf("timer %d has not fired, and was due %v ago", timer.name, time.Duration(m.now-timer.due))
		}
	}
	if !slices.IsSortedFunc(m.fired, func(a, b *modelTimer) int { return cmp.Compare(a.tick, b.tick) }) {
		m.t.Fatalf("fired out of order: %v", m.fired)
	}
}

// durations are as likely to be near the edges of the wheel's levels as anywhere.
func durations(t *rapid.T) time.Duration {
	tick := rapid.OneOf(
		rapid.Int64Range(0, 70),
		rapid.Int64Range(4000, 4200),
		rapid.Int64Range(262_000, 262_300),
		rapid.Int64Range(1<<30-100, 1<<30+100), // what the wheel holds
		rapid.Int64Range(0, 1<<34),
	).Draw(t, "ticks")
	return time.Duration(tick*loop.WheelTick + rapid.Int64Range(-1, 1).Draw(t, "off"))
}

func TestWheel(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		m := newWheelModel(t, 8)
		timers := rapid.SampledFrom(m.timers)
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { m.check() },
			"arm":    func(t *rapid.T) { m.arm(timers.Draw(t, "timer"), durations(t)) },
			"disarm": func(t *rapid.T) { m.disarm(timers.Draw(t, "timer")) },
			"when fired, arm": func(t *rapid.T) {
				timer, other, d := timers.Draw(t, "timer"), timers.Draw(t, "other"), durations(t)
				m.then[timer] = func() { m.arm(other, d) }
			},
			"when fired, disarm": func(t *rapid.T) {
				timer, other := timers.Draw(t, "timer"), timers.Draw(t, "other")
				m.then[timer] = func() { m.disarm(other) }
			},
			"advance": func(t *rapid.T) { m.advance(max(durations(t), 0)) },
		})
		clear(m.then)
		m.advance(time.Duration(1<<35) * time.Millisecond)
		if len(m.armed) > 0 {
			t.Fatalf("%d have never fired", len(m.armed))
		}
	})
}

// TestWheelInTurns: the same with so many timers that they take several turns, between which
// timers are armed, moved and disarmed like at any other time.
func TestWheelInTurns(t *testing.T) {
	t.Parallel()

	turns := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newWheelModel(t, 5*loop.TimersLook)
		timers := rapid.SampledFrom(m.timers)
		m.turn = func() {
			for _, timer := range m.timers {
				if m.armed[timer] != timer.Armed() {
					t.Fatalf("timer %d: armed is %v, want %v", timer.name, timer.Armed(), m.armed[timer])
				}
			}
			switch timer := timers.Draw(t, "between"); rapid.IntRange(0, 2).Draw(t, "turns") {
			case 0:
				m.arm(timer, durations(t))
			case 1:
				m.disarm(timer)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.check() },
			"arm all": func(t *rapid.T) {
				d, apart := durations(t), rapid.SampledFrom([]int64{0, 1, loop.WheelTick}).Draw(t, "apart")
				for i, timer := range m.timers {
					m.arm(timer, d+time.Duration(int64(i)*apart))
				}
			},
			"arm":     func(t *rapid.T) { m.arm(timers.Draw(t, "timer"), durations(t)) },
			"disarm":  func(t *rapid.T) { m.disarm(timers.Draw(t, "timer")) },
			"advance": func(t *rapid.T) { m.advance(max(durations(t), 0)) },
		})
		m.turn = nil
		m.advance(time.Duration(1<<35) * time.Millisecond)
		if len(m.armed) > 0 {
			t.Fatalf("%d have never fired", len(m.armed))
		}
		turns += m.turns
	})
	if turns == 0 {
		t.Error("no turn has left anything: nothing is tried")
	}
}

// counter counts, and does what it is made to on the way.
type counter struct {
	n    int
	then func(n int)
}

func (c *counter) Expired(*loop.Timer) {
	c.n++
	if c.then != nil {
		c.then(c.n)
	}
}

// TestTurnsOfTimersAreBounded: however many timers are due at once, or have to be spread over
// shorter lists before, a turn goes on with a bounded number, and for a bounded time; the next
// ones have the rest.
func TestTurnsOfTimersAreBounded(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		at    int64 // when they are due
		takes int64 // what each call takes
		most  int   // calls in a turn
	}{
		"one tick":              {10 * loop.WheelTick, 0, loop.MostTimers},
		"spread first":          {5000 * loop.WheelTick, 0, loop.MostTimers},
		"spread twice":          {300_000 * loop.WheelTick, 0, loop.MostTimers},
		"calls that take 50 µs": {10 * loop.WheelTick, 50e3, loop.TimersLook + int(loop.TimersTime/50e3) + loop.TimersLook},
	} {
		t.Run(name, func(t *testing.T) {
			const many = 20_000
			clock := int64(0)
			w := loop.NewWheelBy(0, func() int64 { return clock })
			timers, c := make([]loop.Timer, many), &counter{}
			for i := range timers {
				w.Arm(&timers[i], c, test.at)
			}
			moved, before := 0, 0
			c.then = func(int) { clock += test.takes; moved++ }
			turns, now := 0, test.at+100*loop.WheelTick
			for w.Advance(now); w.UntilNext(now) == 0; w.Advance(now) {
				if moved-before > test.most {
					t.Fatalf("turn %d calls %d timers, want at most %d", turns, moved-before, test.most)
				}
				if turns++; turns > many {
					t.Fatal("it does not end")
				}
				before = moved
			}
			if c.n != many {
				t.Errorf("%d of %d were called", c.n, many)
			}
			if turns < many/test.most {
				t.Errorf("they took %d turns, want %d at least", turns, many/test.most)
			}
			if next := w.UntilNext(now); next != -1 {
				t.Errorf("then the next one is in %d, want none", next)
			}
		})
	}
}

type handler int

func (handler) Ready(uint8, loop.Events) {}

// TestTable: IDs in force are found, with what was put there; all others are stale,
// however often their slot has been used again.
func TestTable(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		table := loop.NewTable()
		live := map[loop.ID]int{}
		var ids, stale []loop.ID
		next := 0
		take := func() {
			id := table.Take(next, handler(next))
			if _, ok := live[id]; ok || id == 0 {
				t.Fatalf("ID %x is given twice, or 0", id)
			}
			live[id] = next
			ids = append(ids, id)
			next++
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(*rapid.T) { take() },
			"take many": func(*rapid.T) {
				for range 700 { // more than a chunk
					take()
				}
			},
			"drop": func(t *rapid.T) {
				if len(ids) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(ids)-1).Draw(t, "i")
				id := ids[i]
				ids[i] = ids[len(ids)-1]
				ids = ids[:len(ids)-1]
				table.Drop(id)
				delete(live, id)
				stale = append(stale, id)
			},
			"": func(t *rapid.T) {
				if table.Used() != len(live) {
					t.Fatalf("%d are used, want %d", table.Used(), len(live))
				}
				for id, n := range live {
					if fd, h, ok := table.Find(id); !ok || fd != n || h != handler(n) {
						t.Fatalf("ID %x: %d, %v, %v, want %d", id, fd, h, ok, n)
					}
				}
				for _, id := range append(stale, 0, 1<<63) {
					if _, _, ok := table.Find(id); ok {
						t.Fatalf("ID %x is not stale", id)
					}
				}
			},
		})
	})
}

// TestGenerationsGoRound: after the last one comes the first, which is not 0.
func TestGenerationsGoRound(t *testing.T) {
	t.Parallel()

	table := loop.NewTable()
	last := table.SetGeneration(table.Take(1, handler(1)), loop.LastGeneration)
	table.Drop(last)
	first := table.Take(2, handler(2))
	if _, _, ok := table.Find(first); !ok || first == 0 || first == last {
		t.Fatalf("after %x comes %x, found: %v", last, first, ok)
	}
	if _, _, ok := table.Find(last); ok {
		t.Fatal("the last one is in force still")
	}
}

// accepts plays turns against a queue: arrivals[i] connections come before turn i. It
// returns how many calls of accept found the queue empty, and how long the queue was.
func accepts(b *loop.BatchSize, arrivals []int) (empty, longest int) {
	queued := 0
	for i, n := range arrivals {
		queued += n
		longest = max(longest, queued)
		if queued == 0 {
			continue
		}
		size := b.Next(int64(i))
		n := min(size, queued)
		queued -= n
		b.Learn(n, n < size)
		if n < size {
			empty++
		}
	}
	return empty, longest
}

func repeat(n, times int) (arrivals []int) {
	for range times {
		arrivals = append(arrivals, n)
	}
	return arrivals
}

func TestBatchSize(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arrivals       []int
		empty, longest int // at most
	}{
		"one now and then":       {[]int{1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0}, 0, 1},
		"one in each turn":       {repeat(1, 1000), 20, 1},
		"seven in each turn":     {repeat(7, 1000), 30, 50},
		"1000 at once":           {append([]int{1000}, repeat(0, 100)...), 1, 1000},
		"100 in each turn":       {repeat(100, 10), 0, 1000},
		"a few at once, at rest": {[]int{5, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0}, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			empty, longest := accepts(loop.NewBatchSize(), test.arrivals)
			if empty > test.empty || longest > test.longest {
				t.Errorf("%d calls found it empty, up to %d waited; want at most %d, %d", empty, longest, test.empty, test.longest)
			}
		})
	}
}

// TestBatchSizeIsBounded: whatever it learns.
func TestBatchSizeIsBounded(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		b := loop.NewBatchSize()
		for i, arrivals := range rapid.SliceOf(rapid.IntRange(0, 200)).Draw(t, "arrivals") {
			size := b.Next(int64(i))
			if size < 1 || size > loop.MaxAccept {
				t.Fatalf("the size is %d", size)
			}
			b.Learn(min(size, arrivals), arrivals < size)
		}
	})
}

func TestMain(m *testing.M) { leak.Main(m) }
