package reactor_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/reactor"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
)

func TestMain(m *testing.M) { leak.Main(m) }

// newLoop makes a loop that lives as long as the test.
func newLoop(t *testing.T) *reactor.Loop {
	t.Helper()
	l := must.Get(reactor.New())(t)
	t.Cleanup(l.Close)
	return l
}

// newPair makes connected sockets; the test owns them.
func newPair(t *testing.T) (a, b int) {
	t.Helper()
	a, b, err := sys.SocketPair()
	must.Do(t, err)
	return a, b
}

// ready is a function used as a handler.
type ready func(events uint32)

func (f ready) Ready(events uint32) { f(events) }

var errEnough = errors.New("enough")

// Two descriptors are ready in one batch. The first handler replaces both by others, which must
// not receive the events of the old ones.
func TestEventsOfAClosedDescriptorReachNobody(t *testing.T) {
	l := newLoop(t)
	var old [2]int
	replaced := false
	replace := ready(func(uint32) {
		if replaced {
			t.Error("an event was reported after Forget")
			return
		}
		replaced = true
		for _, fd := range old {
			l.Forget(fd)
			_ = sys.Close(fd)
		}
		c, d := newPair(t)
		t.Cleanup(func() { sys.Close(c); sys.Close(d) })
		for _, fd := range []int{c, d} {
			if fd != old[0] && fd != old[1] {
				t.Logf("%d is not one of %v", fd, old)
			}
			if err := l.Add(fd, sys.EPOLLIN, ready(func(uint32) { t.Error("received another descriptor's event") })); err != nil {
				t.Error(err)
			}
		}
		l.Post(func() { l.Stop(errEnough) }) // in the next batch
	})
	for i := range old {
		a, b := newPair(t)
		defer sys.Close(b)
		must.Get(sys.Send(b, []byte("x"), sys.MSG_NOSIGNAL))(t)
		if old[i] = a; l.Add(a, sys.EPOLLIN, replace) != nil {
			t.Fatal("not added")
		}
	}
	must.Is(t, l.Run(t.Context()), errEnough)
}

func TestTimersComeInOrderAndNotEarly(t *testing.T) {
	l := newLoop(t)
	start := time.Now()
	var order []time.Duration
	for _, d := range []time.Duration{20, 1, 5, 0, 10} {
		d *= time.Millisecond
		l.After(d, func() {
			if took := time.Since(start); took < d {
				t.Errorf("the timer of %v came after %v", d, took)
			}
			if order = append(order, d); len(order) == 5 {
				l.Stop(nil)
			}
		})
	}
	must.Do(t, l.Run(t.Context()))
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			t.Errorf("the order is %v", order)
		}
	}
}

func TestPostFromManyGoroutines(t *testing.T) {
	l := newLoop(t)
	const n = 100
	var all sync.WaitGroup
	sum := 0 // used on the loop's thread only
	for range n {
		all.Go(func() {
			l.Post(func() {
				if sum++; sum == n {
					l.Stop(nil)
				}
			})
		})
	}
	must.Do(t, l.Run(t.Context()))
	all.Wait()
}

func TestAnEventDoesNotAllocate(t *testing.T) {
	l := newLoop(t)
	a, b := newPair(t)
	defer sys.Close(a)
	defer sys.Close(b)
	buf := make([]byte, 1)
	handle := func() {
		must.Get(sys.Send(b, buf, sys.MSG_NOSIGNAL))(t)
	}
	left := 1000
	must.Do(t, l.Add(a, sys.EPOLLIN, ready(func(uint32) {
		_, _ = sys.Recv(a, buf, sys.MSG_DONTWAIT)
		if left--; left == 0 {
			l.Stop(nil)
			return
		}
		handle()
	})))
	handle()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.Do(t, l.Run(t.Context()))
	runtime.ReadMemStats(&after)
	// This includes the start of the run and the rest of the process.
	if n := after.Mallocs - before.Mallocs; n > 200 {
		t.Errorf("%d allocations for 1000 events", n)
	}
}
