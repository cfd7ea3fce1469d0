package server_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// anotherCongestion returns the congestion control of this system, and another one that each process may use.
func anotherCongestion(t *testing.T) (usual, another string) {
	t.Helper()
	_, allowed, err := sys.CongestionControls()
	if err != nil {
		t.Skipf("this kernel does not list its congestion controls: %v", err)
	}
	usual, err = sys.DefaultCongestion()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range allowed {
		if name != usual {
			return usual, name
		}
	}
	t.Skipf("this kernel has %s alone", usual)
	return "", ""
}

// congestionOf returns the congestion control of the socket of this process between two addresses. A session with TLS gets
// descriptors of its own of its sockets, so a look at all descriptors may miss one that is being replaced.
func congestionOf(t *testing.T, local, peer net.Addr) (name string) {
	t.Helper()
	condition.Await(t, fmt.Sprintf("a socket from %v to %v", local, peer), func() bool {
		fd, ok := socketBetween(t, local, peer)
		if !ok {
			return false
		}
		var err error
		name, err = sys.Congestion(fd)
		return err == nil
	})
	return name
}

// TestCongestion: the connections of clients and those to endpoints have the congestion control of the listener and of
// the upstream, those with TLS too; the status reads it back, and a reload changes it on the same socket.
func TestCongestion(t *testing.T) {
	t.Parallel()

	usual, another := anotherCongestion(t)
	for _, further := range []string{"", ", tls: {certificates: [{cert: c.pem, key: k.pem}]}"} {
		testCongestion(t, usual, another, further)
	}
}

func testCongestion(t *testing.T, usual, another, further string) {
	cert, key := certificate.New(t, "front.test")
	arrived := make(chan net.Conn, 1)
	up := sockets.Server(t, func(c net.Conn) {
		arrived <- c
		sockets.Echo(c)
	})
	text := "listeners: [{name: l, bind: '127.0.0.1:%s', upstream: u%s, socket: {congestion: '%s'}}]\n" +
		"upstreams: [{name: u, endpoints: [%q], health_check: off, socket: {congestion: '%s'}}]"
	port := sockets.Port(t)
	of := func(listener, upstream string) string {
		return fmt.Sprintf(text, port, further, listener, up, upstream)
	}
	r := start(t, of(another, another), "c.pem", cert, "k.pem", key)
	for i, want := range [][2]string{{another, another}, {"", another}, {another, ""}, {"", ""}} {
		if i > 0 {
			r.Reload(of(want[0], want[1]))
		}
		c := client(t, r.At("l"))
		if further != "" {
			if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake(); err != nil {
				t.Fatal(err)
			}
		}
		to := <-arrived
		used := func(name string) string {
			if name == "" {
				return usual
			}
			return name
		}
		if got := congestionOf(t, c.RemoteAddr(), c.LocalAddr()); got != used(want[0]) {
			t.Errorf("%q: a client has %s", want, got)
		}
		if got := congestionOf(t, to.RemoteAddr(), to.LocalAddr()); got != used(want[1]) {
			t.Errorf("%q: an endpoint has %s", want, got)
		}
		sameCongestion(t, "listener", r.Listener("l").Congestion, want[0])
		sameCongestion(t, "upstream", r.Status().Upstreams[0].Congestion, want[1])
		c.Close()
	}
}

// sameCongestion fails the test unless a status has the congestion control of the file.
func sameCongestion(t *testing.T, of string, st *admin.Congestion, want string) {
	t.Helper()
	if want == "" {
		if st != nil {
			t.Errorf("%s: %+v, want none", of, *st)
		}
	} else if st == nil || *st != (admin.Congestion{Configured: want, Used: want}) {
		t.Errorf("%s: %+v, want %s", of, st, want)
	}
}

// TestCongestionRefused: a kernel that does not take it is said in the status and in the log, and clients are served.
func TestCongestionRefused(t *testing.T) {
	t.Parallel()

	usual, _ := anotherCongestion(t)
	text := fmt.Sprintf("listeners: [{name: l, bind: '127.0.0.1:0', upstream: u}]\nupstreams: [{name: u, endpoints: [%q]}]", named(t, "a"))
	r := start(t, text)
	cfg := r.Load(text)
	const none = "no_such_thing"
	cfg.Listeners[0].Socket.Congestion, cfg.Upstreams[0].Socket.Congestion = none, none
	if err := r.Apply(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := whose(t, r.At("l")); got != "a" {
			t.Error(got)
		}
	}
	const why = "this kernel has no congestion control no_such_thing: setsockopt TCP_CONGESTION: no such file or directory"
	if st := r.Listener("l").Congestion; st == nil || *st != (admin.Congestion{Configured: none, Used: usual, Error: why}) {
		t.Errorf("listener: %+v", st)
	}
	if st := r.Status().Upstreams[0].Congestion; st == nil || *st != (admin.Congestion{Configured: none, Used: usual, Error: why, Refused: 3}) {
		t.Errorf("upstream: %+v", st)
	}
	r.Logs("socket.congestion is not applied", "listener=l", "used="+usual)
	r.Logs("socket.congestion is not applied", "upstream=u", "used="+usual)
}

// TestCongestionOfMirrors: connections to endpoints of mirrors have that of their upstream.
func TestCongestionOfMirrors(t *testing.T) {
	t.Parallel()

	_, another := anotherCongestion(t)
	arrived := make(chan net.Conn, 1)
	shadow := sockets.Server(t, func(c net.Conn) {
		arrived <- c
		sockets.Echo(c)
	})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, mirror: {upstream: s}}]
upstreams: [{name: u, endpoints: [%q]}, {name: s, endpoints: [%q], health_check: off, socket: {congestion: %s}}]`, named(t, "a"), shadow, another))
	c := client(t, r.At("l"))
	defer c.Close()
	echoes(t, c, "a\n")
	to := <-arrived
	if got := congestionOf(t, to.RemoteAddr(), to.LocalAddr()); got != another {
		t.Errorf("the mirror has %s, want %s", got, another)
	}
}
