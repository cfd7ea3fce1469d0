//go:build linux

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/socket"
)

func TestDrainWaitsForSessions(t *testing.T) { eachDriver(t, testDrainWaitsForSessions) }

func testDrainWaitsForSessions(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{Log: log}, endpoint(t, "127.0.0.1:0", echo))
	conn := r.dial(t)
	exchange(t, conn, "before")
	r.stop()
	j.wait(t, "draining")
	exchange(t, conn, "while draining")
	if len(r.done) != 0 {
		t.Error("Serve returned before the session has ended")
	}
	finish(t, conn)
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	want := proxy.Connections{Accepted: 1}
	if sum := r.Summary(); sum.Connections != want || sum.Bytes.ClientToEndpoint.Copied != int64(len("beforewhile draining")) {
		t.Errorf("the summary is %+v", sum)
	}
}

// What stops does not tell of room again.
func TestDrainedIsTheLastThatIsTold(t *testing.T) { eachDriver(t, testDrainedIsTheLastThatIsTold) }

func testDrainedIsTheLastThatIsTold(t *testing.T) {
	j, log := newJournal()
	r := serve(t, proxy.Config{MaxConnections: 1, Log: log}, endpoint(t, "127.0.0.1:0", echo))
	first := r.dial(t)
	exchange(t, first, "hello") // or another loop might have the second one served before it
	second := r.dial(t)
	j.wait(t, "max-connections reached, further clients wait")
	r.stop()
	j.wait(t, "draining")
	first.Close()
	exchange(t, second, "hello")
	second.Close()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	j.wait(t, "drained")
	if told := j.find("below max-connections again"); len(told) != 0 {
		t.Error("a server that has stopped tells that there is room again")
	}
}

func TestDrainRefusesNewConnections(t *testing.T) { eachDriver(t, testDrainRefusesNewConnections) }

func testDrainRefusesNewConnections(t *testing.T) {
	r := serve(t, proxy.Config{}, endpoint(t, "127.0.0.1:0", echo))
	conn := r.dial(t)
	exchange(t, conn, "before")
	r.stop()
	for {
		late, err := net.Dial("tcp", r.Addresses()[0])
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			late.Close()
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	exchange(t, conn, "after")
}

func TestDrainTimeoutCuts(t *testing.T) { eachDriver(t, testDrainTimeoutCuts) }

// A timer is one that a server has asked for.
type timer struct {
	after time.Duration
	over  chan time.Time
}

func testDrainTimeoutCuts(t *testing.T) {
	open := func(t *testing.T, timeout time.Duration) (server *proxy.Server, asked chan timer, j *journal) {
		j, log := newJournal()
		server, err := proxy.Open(context.Background(), &proxy.Config{
			Loops:  loopsOf(t),
			Listen: []socket.Address{parse(t, "127.0.0.1:0")}, To: []socket.Address{parse(t, endpoint(t, "127.0.0.1:0", echo))},
			MaxConnections: 500, DrainTimeout: timeout, Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		asked = make(chan timer, 10)
		server.SetAfter(func(d time.Duration) <-chan time.Time {
			over := make(chan time.Time, 1)
			asked <- timer{d, over}
			return over
		})
		return server, asked, j
	}
	t.Run("after the time", func(t *testing.T) {
		server, asked, j := open(t, 30*time.Second)
		r := run(t, server)
		const clients = 100
		for range clients {
			exchange(t, r.dial(t), "hello")
		}
		r.stop()
		spread := core.NewSpread(30 * time.Second)
		next := func(want time.Duration) timer {
			t.Helper()
			s := <-asked
			if s.after != want {
				t.Fatalf("the time is %v, want %v", s.after, want)
			}
			return s
		}
		step, look := next(spread.First), next(10*time.Second)
		look.over <- time.Time{}
		next(10 * time.Second)
		j.wait(t, "drain waits for sessions")
		if len(r.done) != 0 {
			t.Error("Serve returned before its time")
		}
		for n := 1; n < spread.Steps; n++ {
			step.over <- time.Time{}
			step = next(spread.Every)
		}
		condition.Await(t, "few are left for the last step", func() bool { return r.Summary().Connections.Active < clients/5 })
		step.over <- time.Time{}
		err := <-r.done
		if want := fmt.Sprintf("sessions were cut before their end: %d", clients); !errors.Is(err, proxy.ErrCut) || err.Error() != want {
			t.Errorf("error is %v, want %v", err, want)
		}
		if got := r.Summary().Connections; got.Active != 0 || got.Accepted != clients {
			t.Errorf("connections are %+v", got)
		}
	})
	t.Run("0 is off", func(t *testing.T) {
		server, asked, _ := open(t, 0)
		r := run(t, server)
		conn := r.dial(t)
		exchange(t, conn, "hello")
		r.stop()
		exchange(t, conn, "hello")
		finish(t, conn)
		if err := <-r.done; err != nil {
			t.Errorf("error is %v", err)
		}
		if s := <-asked; s.after != 10*time.Second || len(asked) != 0 {
			t.Errorf("the clock was asked for %v, and %d times more", s.after, len(asked))
		}
	})
}

func TestCutEndsAtOnce(t *testing.T) { eachDriver(t, testCutEndsAtOnce) }

func testCutEndsAtOnce(t *testing.T) {
	for name, begin := range map[string]func(*running, *journal){
		"while serving":  func(*running, *journal) {},
		"while draining": func(r *running, j *journal) { r.stop(); j.wait(t, "draining") },
	} {
		t.Run(name, func(t *testing.T) {
			j, log := newJournal()
			r := serve(t, proxy.Config{Log: log}, endpoint(t, "127.0.0.1:0", echo))
			conn := r.dial(t)
			exchange(t, conn, "hello")
			begin(r, j)
			r.Cut()
			if err := <-r.done; !errors.Is(err, proxy.ErrCut) {
				t.Errorf("error is %v, want ErrCut", err)
			}
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("the client reads %d bytes, %v", n, err)
			}
		})
	}
}

// A cut also ends what is only being connected, and what waits for its turn.
func TestCutWhileConnecting(t *testing.T) { eachDriver(t, testCutWhileConnecting) }

func testCutWhileConnecting(t *testing.T) {
	mute := sockets.Silent(t)
	r := serve(t, proxy.Config{MaxConnections: 1}, mute)
	r.dial(t)
	r.dial(t)
	for r.Summary().Connections.Active == 0 {
		time.Sleep(time.Millisecond)
	}
	r.stop()
	r.Cut()
	if err := <-r.done; !errors.Is(err, proxy.ErrCut) {
		t.Errorf("error is %v, want ErrCut", err)
	}
	if got := r.Summary().Connections; got.Active != 0 || got.Refused != 0 {
		t.Errorf("connections are %+v", got)
	}
}

// Clients that were connected before the stop are served, those above the limit
// too.
func TestQueuedConnectionsAreServedBeforeTheEnd(t *testing.T) {
	eachDriver(t, testQueuedConnectionsAreServedBeforeTheEnd)
}

func testQueuedConnectionsAreServedBeforeTheEnd(t *testing.T) {
	server, err := proxy.Open(context.Background(), &proxy.Config{
		Loops:  loopsOf(t),
		Listen: []socket.Address{parse(t, "127.0.0.1:0")}, To: []socket.Address{parse(t, endpoint(t, "127.0.0.1:0", echo))},
		MaxConnections: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 20 {
		conn, err := net.Dial("tcp", server.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	r := run(t, server)
	r.stop()
	var clients sync.WaitGroup
	for _, conn := range conns {
		clients.Go(func() {
			if err := roundTrip(conn, "hello"); err != nil {
				t.Error(err)
			}
			conn.Close()
		})
	}
	clients.Wait()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if got := r.Summary().Connections; got.Accepted != 20 || got.Refused != 0 || got.Active != 0 {
		t.Errorf("connections are %+v", got)
	}
}
