//go:build linux

package proxy_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

// listed lists a server's clients by address.
func (r *running) listed(t *testing.T) map[string]proxy.Session {
	t.Helper()
	all := map[string]proxy.Session{}
	for s := range r.Sessions(context.Background()) {
		if was, twice := all[s.Client]; twice && s.Client != "gone" {
			t.Errorf("%s is told of twice: %+v and %+v", s.Client, was, s)
		}
		all[s.Client] = s
	}
	return all
}

// until lists clients until what is known of one is what it should be: a byte is counted
// shortly after it was sent, and not before it can arrive.
func (r *running) until(t *testing.T, conn net.Conn, right func(proxy.Session) bool) proxy.Session {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		s := r.listed(t)[conn.LocalAddr().String()]
		if right(s) {
			return s
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("the listing has %+v", s)
		}
	}
}

func TestSessions(t *testing.T) { eachDriver(t, testSessions) }

func testSessions(t *testing.T) {
	target := endpoint(t, "127.0.0.1:0", func(c net.Conn) {
		defer io.Copy(io.Discard, c) // until the client has ended as well
		first := make([]byte, 1)
		for {
			if _, err := io.ReadFull(c, first); err != nil || first[0] == '.' {
				c.(*net.TCPConn).CloseWrite()
				return
			}
			c.Write(first)
		}
	})
	r := serve(t, proxy.Config{Engine: relay.EngineCopy, IdleTimeout: time.Hour}, target)
	loops := loopsOf(t)
	conn := r.dial(t)
	exchange(t, conn, "h")
	one := proxy.Session{State: core.Joined, Endpoint: target}
	one.ClientToEndpoint.Copied, one.EndpointToClient.Copied = 1, 1
	is := func(want proxy.Session) func(proxy.Session) bool {
		return func(s proxy.Session) bool {
			return s.State == want.State && s.Endpoint == want.Endpoint &&
				s.ClientToEndpoint == want.ClientToEndpoint && s.EndpointToClient == want.EndpointToClient
		}
	}
	before := r.until(t, conn, is(one))
	if loops < 0 != (before.Loop < 0) || before.Loop >= max(loops, 0) || before.Idle < 0 || before.Idle > before.Age {
		t.Errorf("the listing has %+v", before)
	}
	after := r.until(t, conn, func(s proxy.Session) bool { return s.Age > before.Age && s.Idle > before.Idle })
	if after.Age-before.Age > time.Minute {
		t.Errorf("%v has passed", after.Age-before.Age)
	}
	if _, err := conn.Write([]byte(".")); err != nil {
		t.Fatal(err)
	}
	one.State, one.ClientToEndpoint.Copied = core.EndpointEnded, 2
	r.until(t, conn, is(one))

	other := r.dial(t)
	exchange(t, other, "x")
	finish(t, other) // which both have then
	last := r.dial(t)
	exchange(t, last, "x")
	r.until(t, other, func(s proxy.Session) bool { return s.Client == "" })
	if n := len(r.listed(t)); n != 2 {
		t.Errorf("%d clients are listed, want 2", n)
	}
}

// A client that has ended is told of as that, and one whose target does not answer too.
func TestSessionsOfAllStates(t *testing.T) { eachDriver(t, testSessionsOfAllStates) }

func testSessionsOfAllStates(t *testing.T) {
	stop := make(chan struct{})
	r := serve(t, proxy.Config{ConnectTimeout: time.Hour}, endpoint(t, "127.0.0.1:0", func(net.Conn) { <-stop }))
	t.Cleanup(func() { close(stop) })
	conn := r.dial(t)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r.until(t, conn, func(s proxy.Session) bool { return s.State == core.ClientEnded })

	r = serve(t, proxy.Config{ConnectTimeout: time.Hour}, sockets.Silent(t))
	conn = r.dial(t)
	before := r.until(t, conn, func(s proxy.Session) bool { return s.State == core.Dialing })
	if before.Endpoint != "" || before.Idle >= 0 {
		t.Errorf("the listing has %+v", before)
	}
	r.until(t, conn, func(s proxy.Session) bool { return s.State == core.Dialing && s.Age > before.Age })
}

// Clients come and go while several list them: those that stay are told of once each
// time, and nobody twice.
func TestSessionsInChurn(t *testing.T) { eachDriver(t, testSessionsInChurn) }

func testSessionsInChurn(t *testing.T) {
	r := serve(t, proxy.Config{}, endpoint(t, "127.0.0.1:0", echo))
	stay := map[string]bool{}
	join := func(n int) {
		for range n {
			conn := r.dial(t)
			exchange(t, conn, "x")
			stay[conn.LocalAddr().String()] = true
		}
	}
	var work, lists sync.WaitGroup
	over := make(chan struct{})
	going := func() bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	}
	join(100)
	for range 4 {
		work.Go(func() {
			for going() {
				conn, err := net.Dial("tcp", r.Addresses()[0])
				if err == nil {
					err = roundTrip(conn, "hello")
				}
				if err != nil {
					t.Error(err)
					return
				}
				conn.Close()
			}
		})
	}
	join(100) // with others between them
	for range 2 {
		lists.Go(func() {
			for range 10 {
				all, found := r.listed(t), 0
				for client := range stay {
					if s := all[client]; s.State == core.Joined {
						found++
					}
				}
				if found != len(stay) {
					t.Errorf("%d of %d that stay are listed", found, len(stay))
				}
			}
		})
	}
	lists.Wait()
	close(over)
	work.Wait()
	for client := range r.listed(t) {
		delete(stay, client)
	}
	if len(stay) != 0 {
		t.Errorf("%d that stay are not listed", len(stay))
	}
}

// Who reads a list may take their time, and stop when they like.
func TestSessionsAtLeisure(t *testing.T) { eachDriver(t, testSessionsAtLeisure) }

func testSessionsAtLeisure(t *testing.T) {
	server, err := proxy.Open(context.Background(), &proxy.Config{
		Listen: []socket.Address{parse(t, "127.0.0.1:0")}, To: []socket.Address{parse(t, endpoint(t, "127.0.0.1:0", echo))},
		MaxConnections: 1000, Loops: loopsOf(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range server.Sessions(context.Background()) {
		t.Error("a client is listed before there is one")
	}
	r := run(t, server)
	conns := make([]net.Conn, 150) // more than are asked for at a time
	for i := range conns {
		conns[i] = r.dial(t)
		exchange(t, conns[i], "x")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for range r.Sessions(ctx) {
		exchange(t, conns[n], "it goes on")
		if n++; n == 10 {
			cancel()
		}
	}
	if n < 10 || n > 10+64 {
		t.Errorf("%d were listed, and it was canceled after 10", n)
	}
	n = 0
	for range r.Sessions(context.Background()) {
		if n++; n == 70 {
			break
		}
	}
	for range r.Sessions(context.Background()) {
		if n == 70 {
			r.Cut()
			<-r.done
		}
		n++
	}
	if n < 70+1 || n > 70+64 {
		t.Errorf("%d were listed, and all ended after 71", n)
	}
	if n := len(r.listed(t)); n != 0 {
		t.Errorf("%d are listed after the end", n)
	}
}
