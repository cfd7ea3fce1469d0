package worker_test

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// A hall is where a director's clients are parked, as long as it is closed.
type hall struct {
	mu     sync.Mutex
	open   bool
	wakers []worker.Waker
}

// parking returns a director of searches that park in h until it is open.
func (h *hall) parking(addr string, timeout time.Duration) *director {
	return &director{next: func(c *worker.Client, n int) worker.Step {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.open {
			return connectTo(addr)
		}
		if n > 1 && timeout > 0 {
			return worker.Step{Action: worker.GiveUp}
		}
		h.wakers = append(h.wakers, c.Waker())
		return worker.Step{Action: worker.Park, Timeout: timeout}
	}}
}

func (h *hall) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.wakers)
}

func (h *hall) wake() {
	h.mu.Lock()
	h.open = true
	wakers := h.wakers
	h.mu.Unlock()
	var work sync.WaitGroup
	for _, w := range wakers {
		work.Go(w.Wake)
	}
	work.Wait()
}

// Clients that are parked are served when they are woken, each one once. Waking again does
// not affect the next client in that place.
func TestParkedAreWoken(t *testing.T) {
	t.Parallel()

	h := new(hall)
	d := h.parking(echo(t), 0)
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.MaxConnections = 1000 })
	r.serve(t)
	const clients = 300
	var conns []net.Conn
	for range clients {
		conns = append(conns, r.dial(t))
	}
	eventually(t, func() bool { return h.waiting() == clients })
	h.wakers[0].Wake() // it parks again
	eventually(t, func() bool { return h.waiting() == clients+1 })
	h.wake()
	for _, c := range conns {
		talk(t, c)
	}
	for _, c := range conns[:clients/2] {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == clients/2 })
	h.wake()
	h.mu.Lock()
	h.open = false
	h.mu.Unlock()
	again := r.dial(t) // in a place that was used before
	eventually(t, func() bool { return h.waiting() == clients+2 })
	for _, w := range h.wakers[:clients+1] {
		w.Wake()
	}
	r.Turn()
	if n := h.waiting(); n != clients+2 {
		t.Errorf("a stale waker has woken a client: %d were parked", n)
	}
	h.wake()
	talk(t, again)
	if n := d.joined.Load(); n != clients+1 {
		t.Errorf("%d were joined", n)
	}
}

// One that has left meanwhile gives its place back, and waking it does nothing.
func TestParkedLeaves(t *testing.T) {
	t.Parallel()

	h, a := new(hall), new(counted)
	r := directed(t, h.parking(echo(t), 0), func(_ *worker.Config, s *worker.Service) { s.Admitter = a })
	r.serve(t)
	for i := range 5 {
		c := r.dial(t)
		eventually(t, func() bool { return h.waiting() == i+1 })
		reset(c)
		eventually(t, func() bool { return r.Active() == 0 })
	}
	h.wake()
	r.Turn()
	if a.in.Load() != 5 || a.left.Load() != 5 || r.Summary().Refused != 0 {
		t.Errorf("%d were admitted, %d have left, %+v", a.in.Load(), a.left.Load(), r.Summary())
	}
}

// Parking has a timeout, after which the search is called again.
func TestParkedForTooLong(t *testing.T) {
	t.Parallel()

	var clock atomic.Int64
	clock.Store(1)
	h := new(hall)
	r := directed(t, h.parking(echo(t), 3*time.Second), func(c *worker.Config, _ *worker.Service) { c.Now = clock.Load })
	r.serve(t)
	c := r.dial(t)
	eventually(t, func() bool { return h.waiting() == 1 })
	clock.Add(int64(2900 * time.Millisecond))
	r.Wake()
	r.Turn()
	if len(r.causes()) != 0 {
		t.Fatal("it was given up before its time")
	}
	clock.Add(int64(200 * time.Millisecond))
	r.Wake()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client gets %v, want a reset", err)
	}
	eventually(t, func() bool { return len(r.causes()) == 1 })
	if got := r.causes()[0]; got != errGivenUp || r.Summary().Refusals[worker.RefusedByTargets] != 1 {
		t.Errorf("refused for %v", got)
	}
}

// Clients are woken, leave and are cut at any time. Each gets the due events and no more.
func TestParkingStorm(t *testing.T) {
	t.Parallel()

	addr := echo(t)
	var wakers sync.Map
	d := &director{next: func(c *worker.Client, n int) worker.Step {
		wakers.Store(c.Waker(), true)
		if n < 3 {
			return worker.Step{Action: worker.Park, Timeout: 20 * time.Millisecond}
		}
		return connectTo(addr)
	}}
	a := new(counted)
	r := directed(t, d, func(_ *worker.Config, s *worker.Service) { s.Admitter = a })
	r.serve(t)
	var over atomic.Bool
	var waking, work sync.WaitGroup
	waking.Go(func() {
		for !over.Load() {
			wakers.Range(func(w, _ any) bool {
				w.(worker.Waker).Wake()
				return true
			})
			wakers.Clear()
			time.Sleep(time.Millisecond)
		}
	})
	for i := range 16 {
		work.Go(func() {
			for n := range 20 {
				if (n+i)%3 != 0 {
					if err := r.hello(); err != nil {
						t.Error(err)
					}
					continue
				}
				c, err := net.Dial("tcp", r.addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				reset(c)
			}
		})
	}
	work.Wait()
	over.Store(true)
	waking.Wait()
	eventually(t, func() bool { return r.Active() == 0 })
	if a.in.Load() != a.left.Load() || r.Summary().Refused != 0 {
		t.Errorf("%d were admitted, %d have left, %+v", a.in.Load(), a.left.Load(), r.Summary())
	}
}

// A pause passes, and no client that leaves meanwhile is waited for.
func TestPause(t *testing.T) {
	t.Parallel()

	var clock atomic.Int64
	clock.Store(1)
	addr := echo(t)
	var paused atomic.Int64
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		if n <= 2 {
			paused.Add(1)
			return worker.Step{Action: worker.Pause, Timeout: time.Second}
		}
		return connectTo(addr)
	}}
	r := directed(t, d, func(c *worker.Config, _ *worker.Service) { c.Now = clock.Load })
	r.serve(t)
	c, gone := r.dial(t), r.dial(t)
	eventually(t, func() bool { return paused.Load() == 2 })
	reset(gone)
	eventually(t, func() bool { return r.Active() == 1 })
	for i := range 2 {
		clock.Add(int64(1100 * time.Millisecond))
		r.Wake()
		eventually(t, func() bool { return paused.Load() == int64(min(3+i, 3)) })
	}
	talk(t, c)
}
