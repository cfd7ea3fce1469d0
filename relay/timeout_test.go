package relay_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// A fakeClock stands still until advanced; its timers then fire in order.
type fakeClock struct {
	mu     sync.Mutex
	t      time.Duration
	timers []*fakeTimer
}

type fakeTimer struct {
	c    *fakeClock
	at   time.Duration
	f    func()
	dead bool
}

func (c *fakeClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) afterFunc(d time.Duration, f func()) interface {
	Reset(time.Duration) bool
	Stop() bool
} {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c: c, at: c.t + d, f: f}
	c.timers = append(c.timers, t)
	return t
}

func (t *fakeTimer) Reset(d time.Duration) bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := !t.dead
	t.at, t.dead = t.c.t+d, false
	return was
}

func (t *fakeTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	was := !t.dead
	t.dead = true
	return was
}

// advance moves the time by d and fires what is due at that time.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.t += d
	var due []*fakeTimer
	for _, t := range c.timers {
		if !t.dead && t.at <= c.t {
			t.dead = true
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.f()
	}
}

func clockedRelay(t *testing.T, cfg relay.Config) (*relay.Relay, *fakeClock) {
	r := newRelay(t, &cfg)
	c := &fakeClock{t: time.Hour}
	r.SetClock(c.now, c.afterFunc)
	return r, c
}

// echo moves a byte from A to B.
func (g *rig) echo(t *testing.T) {
	t.Helper()
	if err := ping(g.A, g.B, 1); err != nil {
		t.Fatal(err)
	}
}

func expectTimeout(t *testing.T, g *rig, want relay.Reason) {
	t.Helper()
	res, err := g.wait()
	if res.Reason != want || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("ended by %v, error %v, want %v", res.Reason, err, want)
	}
}

func running(t *testing.T, g *rig) {
	t.Helper()
	if res := g.session.Result(); res.Reason != relay.ReasonNone {
		t.Fatalf("ended by %v, but the timeout is not over", res.Reason)
	}
}

// TestIdleTimeout: exactly the idle time after the last byte, in either direction
// and on every kind of connection.
func TestIdleTimeout(t *testing.T) {
	for name, n := range networks {
		t.Run(name, func(t *testing.T) {
			r, c := clockedRelay(t, relay.Config{IdleTimeout: 10 * time.Second})
			g := newRig(t, r, n, tcp)
			g.echo(t)
			for range 5 {
				c.advance(6 * time.Second)
				if err := ping(g.B, g.A, 1); err != nil {
					t.Fatal(err)
				}
			}
			c.advance(10*time.Second - 1)
			running(t, g)
			c.advance(1)
			expectTimeout(t, g, relay.ReasonIdle)
			if err := expect(g.A, nil); err != nil {
				t.Fatalf("idle side: %v, want a clean end", err)
			}
		})
	}
}

// TestHalfCloseTimeout: counts from the first end, and from the last byte after
// it, and replaces the idle timeout.
func TestHalfCloseTimeout(t *testing.T) {
	r, c := clockedRelay(t, relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: 10 * time.Second})
	g := newRig(t, r, tcp, tcp)
	g.echo(t)
	c.advance(59 * time.Minute)
	g.A.CloseWrite()
	if err := expect(g.B, nil); err != nil {
		t.Fatal(err)
	}
	g.until("half open", func(relay.Result) bool { return g.session.HalfOpen() })
	c.advance(9 * time.Second)
	running(t, g)
	if err := ping(g.B, g.A, 1); err != nil {
		t.Fatal(err)
	}
	c.advance(9 * time.Second)
	running(t, g)
	c.advance(time.Second)
	expectTimeout(t, g, relay.ReasonHalfClose)
}

// TestMaxLifetime: counts from the start, however busy the session is.
func TestMaxLifetime(t *testing.T) {
	r, c := clockedRelay(t, relay.Config{IdleTimeout: time.Minute, MaxLifetime: 100 * time.Second})
	g := newRig(t, r, tcp, tcp)
	for range 9 {
		g.echo(t)
		c.advance(11 * time.Second)
		running(t, g)
	}
	g.echo(t)
	c.advance(time.Second)
	expectTimeout(t, g, relay.ReasonLifetime)
}
