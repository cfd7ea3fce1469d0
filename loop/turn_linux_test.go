package loop_test

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/zero"
	"github.com/penstock/penstock/loop"
)

// A scripted handler notes what it was told, and then does as it was told.
type scripted struct {
	told []loop.Events
	then func(which uint8, events loop.Events)
}

func (s *scripted) Ready(which uint8, events loop.Events) {
	s.told = append(s.told, events)
	if s.then != nil {
		s.then(which, events)
	}
}

// all is everything that it was told.
func (s *scripted) all() (events loop.Events) {
	for _, e := range s.told {
		events |= e
	}
	return events
}

// pair makes two connected sockets that are closed when the test ends, if the test
// has not told that it did.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	a, b, err := sys.SocketPair()
	must.Do(t, err)
	t.Cleanup(func() { sys.Close(b) })
	return a, b
}

func write(t testing.TB, fd int, s string) {
	t.Helper()
	if n, err := sys.Send(fd, []byte(s), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL); err != nil || n != len(s) {
		t.Fatalf("wrote %d of %d: %v", n, len(s), err)
	}
}

func add(t testing.TB, l *loop.Loop, fd int, which uint8, h loop.Handler) loop.ID {
	t.Helper()
	return must.Get(l.Add(fd, which, h))(t)
}

// TestEdges: readiness is told once; what is ready already when a descriptor is
// added is told as well.
func TestEdges(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	a, b := pair(t)
	defer sys.Close(a)
	write(t, b, "x")
	h := &scripted{then: func(which uint8, _ loop.Events) {
		if which != 7 {
			t.Errorf("which is %d, want 7", which)
		}
	}}
	id := add(t, l, a, 7, h)
	turn(t, l)
	turn(t, l)
	if want := []loop.Events{loop.Readable | loop.Writable}; !slices.Equal(h.told, want) {
		t.Fatalf("told %v, want %v", h.told, want)
	}
	write(t, b, "y")
	turn(t, l)
	if len(h.told) != 2 || h.told[1]&loop.Readable == 0 {
		t.Fatalf("told %v, want another Readable", h.told)
	}
	must.Do(t, sys.ShutdownWrite(b))
	turn(t, l)
	if h.all()&loop.PeerClosed == 0 {
		t.Fatalf("told %v, want PeerClosed", h.told)
	}
	l.Drop(id)
}

// TestReusedDescriptor: of two sockets that are ready in the same turn, the first one
// that is served closes the other one, and accepts a connection that gets its number,
// and its slot. The event of the old socket, which is in the batch already, must not
// reach the new one. It is alone: the number is the lowest that is free.
func TestReusedDescriptor(t *testing.T) {
	l := newLoop(t, nil)
	listener := must.Get(sys.UnixStreamSocket())(t)
	defer sys.Close(listener)
	client := listenAndConnect(t, listener)

	type end struct {
		scripted
		fd int
		id loop.ID
	}
	var ends [2]*end
	fresh := &scripted{}
	served := 0
	for i := range ends {
		a, b := pair(t)
		write(t, b, "stale")
		e := &end{fd: a}
		ends[i] = e
		e.then = func(uint8, loop.Events) {
			served++
			other := ends[1-i]
			l.Drop(other.id)
			sys.Close(other.fd)
			fd, _, err := sys.AcceptSocket(listener)
			if err != nil || fd != other.fd {
				t.Fatalf("accepted %d, %v, want number %d", fd, err, other.fd)
			}
			id := add(t, l, fd, 0, fresh)
			if uint32(id) != uint32(other.id) || id == other.id {
				t.Fatalf("ID %x after %x: not the same slot with another generation", id, other.id)
			}
			other.id = id
		}
	}
	for _, e := range ends {
		e.id = add(t, l, e.fd, 0, e)
		defer func() { sys.Close(e.fd) }()
	}
	turn(t, l)
	if served != 1 {
		t.Fatalf("%d were served, want 1", served)
	}
	if len(fresh.told) != 0 {
		t.Fatalf("the new owner was told %v of the old one's socket", fresh.told)
	}
	turn(t, l)
	if want := []loop.Events{loop.Writable}; !slices.Equal(fresh.told, want) {
		t.Fatalf("the new owner was told %v, want %v, its own", fresh.told, want)
	}
	write(t, client, "for the new one")
	turn(t, l)
	if len(fresh.told) != 2 || fresh.told[1]&loop.Readable == 0 {
		t.Fatalf("the new owner was told %v", fresh.told)
	}
}

// listenAndConnect makes a unix socket listen, and returns a connection that waits in
// its queue.
func listenAndConnect(t *testing.T, listener int) (client int) {
	t.Helper()
	name := fmt.Sprintf("@penstock-loop-%s-%d", t.Name(), os.Getpid())
	must.Do(t, syscall.Bind(listener, &syscall.SockaddrUnix{Name: name}))
	must.Do(t, sys.Listen(listener, 8))
	client = must.Get(sys.UnixStreamSocket())(t)
	t.Cleanup(func() { sys.Close(client) })
	must.Do(t, sys.ConnectUnix(client, name))
	return client
}

// TestDropInTheSameTurn: a handler that was dropped by one that was served before it
// is not called, be it for an event, or because of Again.
func TestDropInTheSameTurn(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	var hs [2]scripted
	var ids [2]loop.ID
	for i := range hs {
		a, b := pair(t)
		defer sys.Close(a)
		write(t, b, "x")
		hs[i].then = func(uint8, loop.Events) {
			l.Again(ids[0])
			l.Again(ids[1])
			l.Drop(ids[1-i])
		}
		ids[i] = add(t, l, a, 0, &hs[i])
	}
	turn(t, l)
	if n := len(hs[0].told) + len(hs[1].told); n != 1 {
		t.Fatalf("%d calls, want 1", n)
	}
	turn(t, l)
	if n := len(hs[0].told) + len(hs[1].told); n != 2 || hs[0].all() != 0 && hs[1].all() != 0 {
		t.Fatalf("%d calls, want one more, of the one that is left", n)
	}
}

// TestAgain: it is called with the value passed to Add and no events, once for each time that it was asked for,
// after the events of the next turn, which does not block.
func TestAgain(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	busy, b := pair(t)
	defer sys.Close(busy)
	other, far := pair(t)
	defer sys.Close(other)
	var order []string
	var id loop.ID
	h := &scripted{}
	h.then = func(which uint8, events loop.Events) {
		if which != 200 {
			t.Errorf("descriptor %d is ready, want 200", which)
		}
		order = append(order, "busy")
		if events != 0 {
			l.Again(id)
			write(t, far, "x")
		}
	}
	id = add(t, l, busy, 200, h)
	add(t, l, other, 0, &scripted{then: func(_ uint8, events loop.Events) {
		if events&loop.Readable != 0 {
			order = append(order, "other")
		}
	}})
	write(t, b, "x")
	for range 2 {
		must.Do(t, l.Turn())
	}
	if want := []string{"busy", "other", "busy"}; !slices.Equal(order, want) {
		t.Fatalf("served %v, want %v", order, want)
	}
	if h.told[1] != 0 {
		t.Fatalf("called again with %v", h.told[1])
	}
}

func TestHandAndDetach(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	a, b := pair(t)
	defer sys.Close(a)
	first, second := &scripted{}, &scripted{}
	id := add(t, l, a, 0, first)
	turn(t, l)
	l.Hand(id, second)
	write(t, b, "x")
	turn(t, l)
	if len(first.told) != 1 || len(second.told) != 1 {
		t.Fatalf("told %v and %v", first.told, second.told)
	}
	must.Fail(l.Add(a, 0, first))(t, syscall.EEXIST)
	must.Do(t, l.Detach(id))
	must.Is(t, l.Detach(id), loop.ErrStale)
	l.Drop(id) // nothing
	l.Hand(id, first)
	l.Again(id)
	write(t, b, "y")
	turn(t, l)
	if len(first.told) != 1 || len(second.told) != 1 {
		t.Fatalf("told after it was detached: %v and %v", first.told, second.told)
	}
	l.Drop(add(t, l, a, 0, first)) // it can be added again
}

func TestAddRefuses(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	must.Fail(l.Add(-1, 0, &scripted{}))(t, syscall.EBADF)
	must.Fail(l.Add(0, 0, nil))(t, os.ErrInvalid)
	must.Is(t, l.Post(nil), os.ErrInvalid)
	fd := must.Get(syscall.Open("/proc/self/exe", syscall.O_RDONLY|syscall.O_CLOEXEC, 0))(t)
	defer sys.Close(fd)
	must.Fail(l.Add(fd, 0, &scripted{}))(t, syscall.EPERM)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()

	for _, d := range []time.Duration{-1, time.Second + 1} {
		if _, err := loop.New(&loop.Config{BusyPoll: d}); !errors.Is(err, loop.ErrConfig) {
			t.Errorf("BusyPoll %v: %v, want ErrConfig", d, err)
		}
	}
	must.Fail(loop.NewGroup(-1, nil))(t, loop.ErrConfig)
}

func TestRunTwice(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	for range 2 {
		entered, nested := false, error(nil)
		_ = l.Post(func() { entered, nested = true, l.Run() })
		l.Stop()
		if err := l.Run(); err != nil || !entered {
			t.Fatalf("%v, entered: %v", err, entered)
		}
		must.Is(t, nested, loop.ErrRunning)
	}
}

// A manual clock.
type clock struct{ now int64 }

type expirer func()

func (f expirer) Expired(*loop.Timer) { f() }

// TestTimersWake: a loop that sleeps wakes for a timer, and so does one that polls. Of a
// few times one is in time, however busy the machine is.
func TestTimersWake(t *testing.T) {
	t.Parallel()

	const in = 20 * time.Millisecond
	for _, spin := range []time.Duration{0, 100 * time.Millisecond} {
		l := running(t, &loop.Config{BusyPoll: spin})
		took := make(chan time.Duration, 1)
		var timer loop.Timer
		d := late(1, 10*in, func() time.Duration {
			_ = l.Post(func() {
				start := l.Now()
				l.Arm(&timer, expirer(func() { took <- time.Duration(l.Now() - start) }), in)
			})
			d := condition.Receive(t, "a timer", took)
			if d < in {
				t.Errorf("with BusyPoll %v it took %v, want %v or more", spin, d, in)
			}
			return d
		})
		if d > 10*in {
			t.Errorf("with BusyPoll %v it took %v, want about %v", spin, d, in)
		}
	}
}

// TestLag: a turn that took long is counted where it belongs.
func TestLag(t *testing.T) {
	t.Parallel()

	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	_ = l.Post(func() { c.now += 5e6 })
	turn(t, l)
	s := l.Stats()
	if s.Turns != 1 || s.MaxLag != 5*time.Millisecond || s.Lag[13] != 1 { // 4,096 to 8,191 µs
		t.Fatalf("%+v", s)
	}
}

// TestBusyPoll: a loop with something to do every now and then does not sleep
// between, and one without does in the end.
func TestBusyPoll(t *testing.T) {
	t.Parallel()

	c := clock{now: 1}
	polls := 0
	l := newLoop(t, &loop.Config{BusyPoll: time.Millisecond, Now: func() int64 {
		polls++
		c.now += 1000 // each look at the clock is a microsecond
		return c.now
	}})
	a, b := pair(t)
	defer sys.Close(a)
	h := &scripted{}
	add(t, l, a, 0, h)
	turn(t, l)
	write(t, b, "x")
	must.Do(t, l.Turn())
	if s := l.Stats(); s.Blocked != 0 || len(h.told) != 2 {
		t.Fatalf("it slept %d times, was told %v", s.Blocked, h.told)
	}
	if n := l.Stats().BusyPollHits; n != 0 {
		t.Errorf("%d hits of busy polling although there was something to do at once", n)
	}
	// Nothing to do: it looks about a thousand times, then sleeps until the timer.
	var timer loop.Timer
	l.Arm(&timer, expirer(func() {}), 5*time.Millisecond)
	polls = 0
	must.Do(t, l.Turn())
	if s := l.Stats(); s.Blocked != 1 || polls < 900 || polls > 1100 {
		t.Fatalf("it slept %d times after %d looks, want 1 and about 1000", s.Blocked, polls)
	}
	if n := l.Stats().BusyPollHits; n != 0 {
		t.Errorf("%d hits of busy polling although it found nothing", n)
	}
}

// TestBusyPollHits: what comes while the loop polls is a hit of that.
func TestBusyPollHits(t *testing.T) {
	t.Parallel()

	var come func()
	l := newLoop(t, &loop.Config{BusyPoll: time.Second, Now: func() int64 {
		if f := come; f != nil {
			come = nil
			f()
		}
		return 1
	}})
	a, b := pair(t)
	defer sys.Close(a)
	add(t, l, a, 0, &scripted{})
	turn(t, l)
	for i, f := range []func(){
		func() { write(t, b, "x") },
		func() { _ = l.Post(func() {}) },
	} {
		come = f
		must.Do(t, l.Turn())
		if s := l.Stats(); s.BusyPollHits != int64(i+1) || s.Blocked != 0 {
			t.Errorf("after %d events: %d hits, slept %d times", i+1, s.BusyPollHits, s.Blocked)
		}
	}
}

// again is a timer that is armed again when it is due.
type again struct {
	l     *loop.Loop
	timer loop.Timer
	fired int
}

func (a *again) arm() { a.l.Arm(&a.timer, a, time.Millisecond) }

func (a *again) Expired(*loop.Timer) {
	a.fired++
	a.arm()
}

// TestDirect: a loop that has looked for events in vain blocks without looking, which is one call for an event
// and not two. It looks again once events come without a sleep, and events come between timers anyway.
func TestDirect(t *testing.T) {
	t.Parallel()

	now, step := int64(1), int64(0)
	l := newLoop(t, &loop.Config{Now: func() int64 { now += step; return now }})
	a, b := pair(t)
	defer sys.Close(a)
	h := &scripted{then: func(uint8, loop.Events) { _, _ = sys.Recv(a, make([]byte, 8), sys.MSG_DONTWAIT) }}
	add(t, l, a, 0, h)
	timers := &again{l: l}
	timers.arm() // so that a turn without events ends
	expect := func(when string, event, direct bool) {
		t.Helper()
		if event {
			write(t, b, "x")
		}
		told := len(h.told)
		must.Do(t, l.Turn())
		if got := len(h.told) > told; got != event || l.Direct() != direct {
			t.Fatalf("%s: an event came %v, want %v; it blocked at once %v, want %v", when, got, event, l.Direct(), direct)
		}
	}
	turn(t, l) // it is writable
	for range 3 {
		expect("busy", true, false)
	}
	for range loop.Futile {
		expect("in vain", false, false)
	}
	step = 3000 // ns of the clock, so that it has slept
	for range 2 * loop.Prompt {
		expect("after a sleep", true, true)
	}
	step = 0
	for range loop.Prompt {
		expect("at once", true, true)
	}
	expect("it looks again", true, false)

	for range loop.Futile {
		expect("in vain once more", false, false)
	}
	step = int64(time.Second) // timers are always due
	fired := timers.fired
	for range 3 {
		expect("beside timers", true, true)
		step = 0
		for range loop.Futile {
			expect("in vain", false, false)
		}
		step = int64(time.Second)
	}
	if timers.fired == fired {
		t.Error("no timer was due")
	}
}

// TestOverruns: a turn that works for two milliseconds is one, one that waits is none, and
// nothing is measured unless that is asked for.
func TestOverruns(t *testing.T) {
	t.Parallel()

	runtime.LockOSThread() // turn is called here, and must not move
	defer runtime.UnlockOSThread()
	work := func() {
		for began := threadTime(t); threadTime(t)-began < 2*time.Millisecond; {
		}
	}
	wait := func() { time.Sleep(2 * time.Millisecond) }
	for _, measured := range []bool{false, true} {
		l := newLoop(t, &loop.Config{TurnCPU: measured})
		for i, f := range []func(){work, wait} {
			must.Do(t, l.Post(f))
			before := l.Stats().Overruns
			turn(t, l)
			if n, want := l.Stats().Overruns-before, int64(1); i > 0 && n != 0 || i == 0 && measured != (n == want) {
				t.Errorf("measured %v, function %d: %d turns have used too much", measured, i, n)
			}
		}
	}
}

func threadTime(t *testing.T) time.Duration {
	t.Helper()
	return must.Get(sys.ThreadCPUTime())(t)
}

// TestTimerLate: how late timers fire is counted from the tick that they had to wait for
// to the beginning of the turn, once for all of a tick.
func TestTimerLate(t *testing.T) {
	t.Parallel()

	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	base := c.now
	var timers [4]loop.Timer
	var fired int
	expired := expirer(func() { fired++; c.now += 3e6 }) // which is the turn's time, and not theirs
	tick := time.Duration(loop.WheelTick)
	l.Arm(&timers[0], expired, 10*tick-1)
	l.Arm(&timers[1], expired, 10*tick)
	l.Arm(&timers[2], expired, 10*tick+1)
	l.Arm(&timers[3], expired, time.Hour)
	counted := func(on, n int64, late, most time.Duration) {
		t.Helper()
		s, sum := l.Stats(), int64(0)
		for _, k := range s.TimerLate {
			sum += k
		}
		if sum != n || s.TimerLate[bits.Len64(uint64(late/time.Microsecond))] != on || s.MaxTimerLate != most {
			t.Fatalf("%v, the longest %v; want %d of %d of %v, the longest %v", s.TimerLate, s.MaxTimerLate, on, n, late, most)
		}
	}
	for _, step := range []struct {
		at         time.Duration
		fired      int
		n          int64
		late, most time.Duration
	}{
		{10 * tick, 2, 1, 0, 0}, // in time, the one that was rounded up too
		{11*tick + 5*time.Millisecond, 3, 2, 5 * time.Millisecond, 5 * time.Millisecond},
		{time.Hour - tick, 3, 2, 5 * time.Millisecond, 5 * time.Millisecond}, // only longer lists' times
		{time.Hour + time.Millisecond, 4, 3, time.Millisecond, 5 * time.Millisecond},
	} {
		c.now = base + int64(step.at)
		_ = l.Post(func() {})
		turn(t, l)
		if fired != step.fired {
			t.Fatalf("%d timers have fired at %v, want %d", fired, step.at, step.fired)
		}
		counted(1, step.n, step.late, step.most)
	}
}

func newGroup(t *testing.T, n int) *loop.Group {
	t.Helper()
	g := must.Get(loop.NewGroup(n, nil))(t)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestGroup: every loop runs, at the same time as the others, and all have ended when
// Run returns.
func TestGroup(t *testing.T) {
	t.Parallel()

	const n = 3
	g := newGroup(t, n)
	if len(g.Loops()) != n {
		t.Fatalf("%d loops, want %d", len(g.Loops()), n)
	}
	var all sync.WaitGroup
	all.Add(n)
	for _, l := range g.Loops() {
		if err := l.Post(func() {
			all.Done()
			all.Wait() // for the others, which must be running
		}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { all.Wait(); g.Stop() }()
	must.Do(t, g.Run())
}

func TestGroupOfAsManyAsThereAreCPUs(t *testing.T) {
	if n := len(newGroup(t, 0).Loops()); n != runtime.GOMAXPROCS(0) {
		t.Fatalf("%d loops, want %d", n, runtime.GOMAXPROCS(0))
	}
}

// TestGroupStopBeforeRun: it is not forgotten.
func TestGroupStopBeforeRun(t *testing.T) {
	t.Parallel()

	g := newGroup(t, 2)
	g.Stop()
	must.Do(t, g.Run())
}

// TestGroupFails: one loop that cannot run ends the others.
func TestGroupFails(t *testing.T) {
	t.Parallel()

	g := newGroup(t, 2)
	must.Do(t, g.Loops()[1].Close())
	must.Is(t, g.Run(), os.ErrClosed)
}

// TestZeroValues: methods of zero values return.
func TestZeroValues(t *testing.T) {
	zero.Methods(t, map[string]string{
		"Loop.Connect": "a Connector that is nil has no method",
		"Conn.Go":      "only handlers have a Conn", "Conn.Detach": "only handlers have a Conn", "Conn.AsyncWrite": "only handlers have a Conn",
		"Conn.Loop": "only handlers have a Conn", "Conn.More": "only handlers have a Conn",
	}, new(loop.Loop), new(loop.Group), new(loop.Server), new(loop.Conn), new(loop.Listener), new(loop.Dial), new(loop.Timer), new(loop.ID))
}

func allocates(t *testing.T, what string, f func()) {
	t.Helper()
	f() // what is made once
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s allocates %v times", what, n)
	}
}

type idle struct{ l *loop.Loop }

func (idle) Ready(uint8, loop.Events) {}
func (idle) Expired(*loop.Timer)      {}

// TestNothingAllocates of what a loop does for each event, timer, post or
// connection.
func TestNothingAllocates(t *testing.T) {
	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	fd := must.Get(sys.Eventfd())(t)
	defer sys.Close(fd)
	id := add(t, l, fd, 0, idle{l})
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	allocates(t, "an event", func() {
		_, _ = sys.Write(fd, one)
		_ = l.Turn()
	})
	allocates(t, "Again", func() {
		l.Again(id)
		_ = l.Turn()
	})
	allocates(t, "adding", func() {
		_ = l.Detach(id)
		id, _ = l.Add(fd, 0, idle{l})
	})
	var timer loop.Timer
	allocates(t, "a timer", func() {
		l.Arm(&timer, idle{l}, time.Millisecond)
		c.now += 3e6
		_ = l.Turn()
	})
	allocates(t, "a timer that is disarmed", func() {
		l.Arm(&timer, idle{l}, time.Minute)
		l.Disarm(&timer)
	})
	nothing := func() {}
	allocates(t, "a post", func() {
		_ = l.Post(nothing)
		_ = l.Turn()
	})
}

type closer struct{ n int }

func (c *closer) Accepted(fd int, _ netip.AddrPort) { c.n++; sys.Close(fd) }
func (c *closer) Paused(error)                      {}

type keeper struct{ fd int }

func (k *keeper) Connected(_ *loop.Dial, fd int, _ loop.ID, _ loop.Events, _ error) { k.fd = fd }

// TestAcceptAndConnectAllocateNothing.
func TestAcceptAndConnectAllocateNothing(t *testing.T) {
	l := newLoop(t, nil)
	s, fd := socket(t)
	got := &closer{}
	listen(t, l, fd, &loop.ListenerConfig{Acceptor: got})
	to := tcp(s)
	cfg := &loop.DialConfig{Timeout: time.Minute}
	var d loop.Dial
	k := &keeper{}
	want := 0
	allocates(t, "a connection", func() {
		k.fd = -1
		l.Connect(&d, 0, to, cfg, k)
		want++
		for k.fd < 0 || got.n < want {
			_ = l.Turn()
		}
		sys.Close(k.fd)
	})
}
