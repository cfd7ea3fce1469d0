package relay_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay"
)

// TestIdlePairs: 4,500 joined pairs, each after 64 KiB both ways through pipes,
// hold no pipe, no buffer, and two descriptors each.
//
// On a loop they have no goroutine either.
func TestIdlePairs(t *testing.T) { eachDriver(t, testIdlePairs) }

func testIdlePairs(t *testing.T, d *driving) {
	const pairs = 4500
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if lim.Cur < 2*pairs+200 {
		t.Skipf("RLIMIT_NOFILE is %d, the test needs %d", lim.Cur, 2*pairs+200)
	}
	pipes, err := pipe.NewPool(&pipe.Config{IdleTime: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer pipes.Close()
	r := newRelay(t, &relay.Config{Engine: relay.EngineSplice, Pipes: pipes, IdleTimeout: time.Hour})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	origin := startHelper(t, "origin")
	to := origin.line()
	dialers := startHelper(t, "dialers", "RELAY_TEST_ADDR="+l.Addr().String(), fmt.Sprint("RELAY_TEST_CONNS=", pairs))
	if d.onLoop() {
		d.looped(t, r)
	}
	before, goroutines := leak.Take(), runtime.NumGoroutine()

	results := serve(t, d, r, l, to, pairs)
	if got := dialers.line(); got != "ready" {
		t.Fatalf("dialers say %q", got)
	}
	quiet := waitQuiet(t, r)
	if quiet.Pipes.Made == 0 {
		t.Fatalf("no pipe was ever made: %+v", quiet)
	}
	if opened := leak.Take().Since(before); len(opened) != 2*pairs {
		t.Errorf("%d descriptors above the baseline, want %d; not sockets: %v", len(opened), 2*pairs, notSockets(opened))
	}

	if d.onLoop() { // those that have handed over a session may not have ended yet; the rest are the test's own
		for deadline := time.Now().Add(patience); runtime.NumGoroutine()-goroutines > 8; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines for %d sessions", runtime.NumGoroutine()-goroutines, pairs)
			}
		}
	}
	if pipes, buffers := d.holds(t, r); pipes != 0 || buffers != 0 {
		t.Errorf("idle sessions hold %d pipes, %d buffers", pipes, buffers)
	}

	dialers.stop()
	for range pairs {
		res := <-results
		if res.Reason != relay.ReasonEOF || res.AToB.Spliced != idleBytes || res.BToA.Spliced != idleBytes {
			t.Fatalf("a session did %+v", res)
		}
	}
}

// serve joins the next n connections of l to connections of its own to addr.
func serve(t *testing.T, d *driving, r *relay.Relay, l net.Listener, addr string, n int) <-chan relay.Result {
	results := make(chan relay.Result, n)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				s, err := net.Dial("tcp", addr)
				if err != nil {
					c.Close()
					t.Error(err)
					return
				}
				if d.onLoop() {
					on := d.loops[r]
					on.start(&loopSession{on: on, ended: func(res relay.Result, _ error) { results <- res }}, on.take(c), on.take(s))
					return
				}
				res, _ := r.Join(ctx, c, s)
				results <- res
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close(); cancel() })
	return results
}

// waitQuiet waits until nothing is leased and no pipe lies idle.
func waitQuiet(t *testing.T, r *relay.Relay) relay.Stats {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s := r.Stats()
		if s.Pipes.Leased == 0 && s.Pipes.Idle == 0 && s.Buffers.Live == 0 {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("not quiet: %+v", s)
		}
	}
}

func notSockets(fds []string) []string {
	var odd []string
	for _, fd := range fds {
		if len(odd) < 10 && !strings.Contains(fd, "socket:") {
			odd = append(odd, fd)
		}
	}
	return odd
}
