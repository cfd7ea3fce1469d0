package loop_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

// A worker is a loop that a test turns, on a clock that stands still but while it works.
type worker struct {
	t    *testing.T
	loop *loop.Loop
	now  int64
	cost int64 // ns of each call of a handler
	step int64 // ns of each look at the clock
	far  []int // the far ends of what it serves
	end  func()
}

// newWorker makes one that serves so many descriptors.
func newWorker(t *testing.T, descriptors int, cfg loop.Config) *worker {
	t.Helper()
	w := &worker{t: t, now: 1e9}
	cfg.Now = func() int64 { w.now += w.step; return w.now }
	w.loop = newLoop(t, &cfg)
	for range descriptors {
		near, far := pair(t)
		t.Cleanup(func() { sys.Close(near) })
		add(t, w.loop, near, 0, &scripted{then: func(uint8, loop.Events) { w.now += w.cost }})
		w.far = append(w.far, far)
	}
	turn(t, w.loop) // that they are writable is told once
	w.end = w.loop.Begin()
	return w
}

// window has the loop serve the first n of its descriptors, with so many percent of a
// window of work, and do nothing for the rest of it.
func (w *worker) window(n int, percent int64) {
	w.t.Helper()
	began := w.now
	w.cost = int64(loop.LoadWindow) * percent / 100 / int64(n)
	for _, far := range w.far[:n] {
		write(w.t, far, "x")
	}
	turn(w.t, w.loop)
	w.now = max(w.now, began+int64(loop.LoadWindow))
	turn(w.t, w.loop)
}

// sleep has the loop sleep, which is when it changes its thread's policy, and checks that.
func (w *worker) sleep(want int) {
	w.t.Helper()
	w.nap()
	hasPolicy(w.t, want)
}

// nap has the loop sleep.
func (w *worker) nap() {
	w.t.Helper()
	slept := w.loop.Stats().Blocked
	var timer loop.Timer
	w.loop.Arm(&timer, expirer(func() {}), time.Millisecond)
	must.Do(w.t, w.loop.Turn())
	w.loop.Disarm(&timer)
	if n := w.loop.Stats().Blocked - slept; n != 1 {
		w.t.Fatalf("it slept %d times, want 1", n)
	}
}

// settle has the loop sleep until it must have looked which thread it is on.
func (w *worker) settle(want int) {
	w.t.Helper()
	for range loop.FollowEvery - 1 {
		w.nap()
	}
	w.sleep(want)
}

// counted checks the loop's counters.
func (w *worker) counted(batches, refused int64) {
	w.t.Helper()
	if s := w.loop.Stats(); s.Batches != batches || s.BatchRefused != refused {
		w.t.Errorf("%d batches, %d refused, want %d, %d", s.Batches, s.BatchRefused, batches, refused)
	}
}

func hasPolicy(t testing.TB, want int) {
	t.Helper()
	if got, err := sys.SchedPolicy(0); got != want || err != nil {
		t.Errorf("policy %d, %v, want %d", got, err, want)
	}
}

// ownThread gives the test a thread that ends with it, and a policy.
func ownThread(t testing.TB, policy int) {
	t.Helper()
	runtime.LockOSThread()
	setPolicy(t, sys.SCHED_OTHER) // another test's loops may have had it
	setPolicy(t, policy)
}

func setPolicy(t testing.TB, policy int) {
	t.Helper()
	has, err := sys.SchedPolicy(0)
	if err == nil && has != policy {
		err = sys.ChangeSchedPolicy(sys.Gettid(), has, policy)
	}
	must.Do(t, err)
}

// TestBatch: several descriptors and a tenth of the time make a loop take SCHED_BATCH.
func TestBatch(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		descriptors int
		percent     int64
		keep        bool
		want        int
	}{
		"enough of both":  {3, 12, false, sys.SCHED_BATCH},
		"much of both":    {70, 100, false, sys.SCHED_BATCH},
		"one session":     {2, 100, false, sys.SCHED_OTHER},
		"little work":     {70, 8, false, sys.SCHED_OTHER},
		"policy is kept":  {70, 100, true, sys.SCHED_OTHER},
		"one descriptor":  {1, 100, false, sys.SCHED_OTHER},
		"next to nothing": {3, 0, false, sys.SCHED_OTHER},
	} {
		t.Run(name, func(t *testing.T) {
			ownThread(t, sys.SCHED_OTHER)
			w := newWorker(t, c.descriptors, loop.Config{KeepPolicy: c.keep})
			w.sleep(sys.SCHED_OTHER)
			ln, fd := socket(t)
			listen(t, w.loop, fd, &loop.ListenerConfig{Acceptor: newAcceptor(t)})
			dial(t, ln, 1) // a listener is none of the descriptors
			w.window(c.descriptors, c.percent)
			hasPolicy(t, sys.SCHED_OTHER) // not before it sleeps
			w.sleep(c.want)
			want := int64(0)
			if c.want == sys.SCHED_BATCH {
				want = 1
			}
			w.counted(want, 0)
			w.end()
			hasPolicy(t, sys.SCHED_OTHER)
		})
	}
}

// TestBatchGoesOn: half of what it took is enough to keep it, and taking it again is
// counted. A policy that somebody has set meanwhile stays.
func TestBatchGoesOn(t *testing.T) {
	t.Parallel()

	ownThread(t, sys.SCHED_OTHER)
	w := newWorker(t, 8, loop.Config{})
	for i, step := range []struct {
		descriptors int
		percent     int64
		want        int
		batches     int64
	}{
		{8, 50, sys.SCHED_BATCH, 1},
		{3, 7, sys.SCHED_BATCH, 1},
		{8, 50, sys.SCHED_BATCH, 1},
		{8, 4, sys.SCHED_OTHER, 1}, // little work
		{8, 7, sys.SCHED_OTHER, 1},
		{8, 50, sys.SCHED_BATCH, 2},
		{2, 50, sys.SCHED_OTHER, 2}, // few descriptors
		{3, 50, sys.SCHED_BATCH, 3},
	} {
		w.window(step.descriptors, step.percent)
		w.sleep(step.want)
		if w.counted(step.batches, 0); t.Failed() {
			t.Fatalf("in step %d", i)
		}
	}
	setPolicy(t, sys.SCHED_IDLE)
	w.end()
	hasPolicy(t, sys.SCHED_IDLE)
}

// TestBatchEndsInSleep: a loop that has nothing to do any more wakes to notice it.
func TestBatchEndsInSleep(t *testing.T) {
	t.Parallel()

	ownThread(t, sys.SCHED_OTHER)
	for _, after := range []time.Duration{2*loop.LoadWindow - time.Microsecond, time.Second} {
		w := newWorker(t, 4, loop.Config{})
		w.window(4, 50)
		w.sleep(sys.SCHED_BATCH)
		w.now += int64(after)
		var slept atomic.Bool
		watch := time.AfterFunc(condition.Patience, func() {
			slept.Store(true)
			_ = w.loop.Post(func() {})
		})
		must.Do(t, w.loop.Turn())
		watch.Stop()
		if slept.Load() {
			t.Errorf("after %v it slept until it was woken", after)
		}
		hasPolicy(t, sys.SCHED_OTHER)
		w.counted(1, 0)
	}
}

// TestBatchOfWork: what other goroutines take while the loop gives way is not its work.
func TestBatchOfWork(t *testing.T) {
	t.Parallel()

	ownThread(t, sys.SCHED_OTHER)
	looks := 0
	now := int64(1e9)
	l := newLoop(t, &loop.Config{Now: func() int64 {
		if looks++; looks == 3 { // the turn's beginning, its end, and after it has given way
			now += int64(loop.LoadWindow) / 2
		}
		return now
	}})
	var fars []int
	for range 4 {
		near, far := pair(t)
		defer sys.Close(near)
		add(t, l, near, 0, &scripted{})
		fars = append(fars, far)
	}
	turn(t, l)
	defer l.Begin()()
	now += int64(loop.LoadWindow) / 2 // so that it is time to give way
	for i := range 2 {
		for _, far := range fars {
			write(t, far, "x")
		}
		looks = 0
		turn(t, l)
		if want := 3 - i; looks != want {
			t.Errorf("turn %d: %d looks at the clock, want %d: it gives way in the first", i, looks, want)
		}
	}
	if s := l.Stats(); s.MaxLag != loop.LoadWindow/2 || s.Batches != 0 {
		t.Errorf("a turn of %v, %d batches, want %v, 0", s.MaxLag, s.Batches, loop.LoadWindow/2)
	}
}

// A thread is one that does what it is told.
type thread chan func()

func newThread(t testing.TB) thread {
	th := make(thread)
	go func() {
		runtime.LockOSThread()
		for f := range th {
			f()
		}
	}()
	t.Cleanup(func() { close(th) })
	th.do(func() { setPolicy(t, sys.SCHED_OTHER) })
	return th
}

func (th thread) do(f func()) {
	done := make(chan struct{})
	th <- func() { defer close(done); f() }
	<-done
}

// TestBatchMoves: a loop that has moved to another thread takes the policy with it, and
// gives it back on all.
func TestBatchMoves(t *testing.T) {
	t.Parallel()

	threads := []thread{newThread(t), newThread(t), newThread(t)}
	var w *worker
	threads[0].do(func() {
		w = newWorker(t, 4, loop.Config{})
		w.window(4, 50)
	})
	for range 2 { // the second time they have it
		for _, th := range threads {
			th.do(func() { w.settle(sys.SCHED_BATCH) })
		}
	}
	for _, th := range threads {
		th.do(func() { hasPolicy(t, sys.SCHED_BATCH) })
	}
	threads[1].do(func() { w.window(4, 1) })
	for _, th := range threads {
		th.do(func() { hasPolicy(t, sys.SCHED_OTHER) })
	}
	w.counted(1, 0)
	threads[1].do(func() { w.window(4, 50); w.sleep(sys.SCHED_BATCH) })
	threads[2].do(func() { w.settle(sys.SCHED_BATCH); w.end() })
	for _, th := range threads {
		th.do(func() { hasPolicy(t, sys.SCHED_OTHER) })
	}
	w.counted(2, 0)
}

// TestBatchOfTwoLoops: what one loop gives back another one, which has come to the same
// thread, keeps.
func TestBatchOfTwoLoops(t *testing.T) {
	t.Parallel()

	ownThread(t, sys.SCHED_OTHER)
	first, second := newWorker(t, 4, loop.Config{}), newWorker(t, 4, loop.Config{})
	for _, w := range []*worker{first, second} {
		w.window(4, 50)
		w.sleep(sys.SCHED_BATCH)
	}
	third := newWorker(t, 4, loop.Config{}) // begins where others are at work
	third.window(4, 50)
	third.sleep(sys.SCHED_BATCH)
	first.window(4, 1)
	first.sleep(sys.SCHED_BATCH)
	third.end()
	second.sleep(sys.SCHED_BATCH)
	second.end()
	hasPolicy(t, sys.SCHED_OTHER)
	for _, w := range []*worker{first, second, third} {
		w.counted(1, 0)
	}
}

// TestBatchLeavesOwnersAlone: a policy that somebody else gave the thread stays, whatever
// other loops do, and is counted once for each time.
func TestBatchLeavesOwnersAlone(t *testing.T) {
	t.Parallel()

	elsewhere := newThread(t)
	elsewhere.do(func() {
		w := newWorker(t, 4, loop.Config{})
		w.window(4, 50)
		w.sleep(sys.SCHED_BATCH)
		t.Cleanup(func() { elsewhere.do(w.end) })
	})
	for name, policy := range map[string]int{"batch": sys.SCHED_BATCH, "idle": sys.SCHED_IDLE} {
		t.Run(name, func(t *testing.T) {
			ownThread(t, policy)
			w := newWorker(t, 4, loop.Config{})
			for i := range int64(3) {
				w.window(4, 50)
				w.sleep(policy)
				elsewhere.do(func() { w.settle(sys.SCHED_BATCH) })
				w.sleep(policy)
				w.counted(i+1, 2*(i+1))
				w.window(4, 1)
				w.sleep(policy)
			}
			w.window(4, 50)
			w.sleep(policy)
			w.end()
			hasPolicy(t, policy)
		})
	}
}

// TestBatchOfRun: a loop that runs takes the policy, also when it runs again, and Run
// leaves the thread as it was.
func TestBatchOfRun(t *testing.T) {
	t.Parallel()

	ownThread(t, sys.SCHED_OTHER)
	w := newWorker(t, 4, loop.Config{})
	for i := range int64(2) {
		w.cost = int64(loop.LoadWindow)
		for _, far := range w.far {
			write(t, far, "x")
		}
		w.step = 1e5
		looks := 0
		var timer loop.Timer
		var look expirer
		look = func() { // each time that the loop has slept
			policy, err := sys.SchedPolicy(0)
			if looks++; policy == sys.SCHED_BATCH || looks == 100 {
				w.loop.Stop()
			}
			if looks == 100 {
				t.Errorf("policy %d, %v", policy, err)
			}
			w.loop.Arm(&timer, look, time.Millisecond)
		}
		w.loop.Arm(&timer, look, time.Millisecond)
		must.Do(t, w.loop.Run())
		w.loop.Disarm(&timer)
		w.step = 0
		hasPolicy(t, sys.SCHED_OTHER)
		w.counted(i+1, 0)
	}
}
