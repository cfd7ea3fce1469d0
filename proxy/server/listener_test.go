package server_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// TestAddresses: one listener has several addresses, TCP and unix.
func TestAddresses(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:0", "127.0.0.2:0", "unix:%s?mode=0640"], upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, path, named(t, "a")))
	at := r.Status().Listeners[0].Addresses
	if len(at) != 3 || !strings.HasPrefix(at[1], "127.0.0.2:") || !strings.HasSuffix(at[2], path) {
		t.Fatalf("%q", at)
	}
	for _, a := range at[:2] {
		servedBy(t, a, "a")
	}
	c := dialUnix(t, path)
	hears(t, c, "a")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestRoutesByPort: a listener with several ports routes by port.
func TestRoutesByPort(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	one, two := sockets.Port(t), sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:%s", "127.0.0.1:%s"], routes: [{match: {port: %[2]s}, upstream: b}], upstream: a}]
upstreams: [{name: a, endpoints: [%[3]q]}, {name: b, endpoints: [%[4]q]}]`, one, two, a, b))
	for i, want := range []string{"a", "b"} {
		servedBy(t, r.Status().Listeners[0].Addresses[i], want)
	}
}

// TestRates: clients beyond the rate wait to be accepted; those beyond the rate of one source are
// refused.
func TestRates(t *testing.T) {
	t.Parallel()

	const rate, clients = 10, 15
	a := named(t, "a")
	text := `
limits: {per_second: %d}
listeners:
  - {name: listener, bind: "127.0.0.1:0", upstream: u, limits: {per_second: %d}}
  - {name: source, bind: "127.0.0.1:0", upstream: u, limits: {per_source_per_second: 1}}
upstreams: [{name: u, endpoints: [%q]}]`
	for name, text := range map[string]string{"process": fmt.Sprintf(text, rate, 0, a), "listener": fmt.Sprintf(text, 0, rate, a)} {
		r := start(t, text)
		began := time.Now()
		for range clients {
			servedBy(t, r.At("listener"), "a")
		}
		// As many as a second gives may come at once.
		if took, least := time.Since(began), (clients-rate-1)*time.Second/rate; took < least {
			t.Errorf("%s: %d clients were served within %v", name, clients, took)
		}
		r.End()
	}
	r := start(t, fmt.Sprintf(text, 0, 0, a))
	whose(t, r.At("source"))
	refused(t, r.At("source"))
	r.Until("the refusal is counted", func() bool { return r.Refused("source", "per_source_per_second") == 1 })
	c := dialFrom(t, "127.0.0.9", r.At("source"))
	line(t, c) // of another source
}

// TestProcessLimit: at the limit of the process clients of each listener wait.
func TestProcessLimit(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
limits: {connections: 2}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	one, two, three := client(t, r.At("l")), client(t, r.At("m")), client(t, r.At("m"))
	line(t, one)
	_ = three.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	line(t, two)
	if _, err := sockets.ReadLine(three); !errors.Is(err, errTimeout) {
		t.Errorf("%v, want it to wait", err)
	}
	one.Close()
	_ = three.SetReadDeadline(time.Now().Add(condition.Patience))
	line(t, three)
}

// TestProcessLimitBeyondDescriptors: a limit beyond the available descriptors is logged; fewer
// clients are served.
func TestProcessLimitBeyondDescriptors(t *testing.T) {
	t.Parallel()

	r := startWith(t, 7, `
limits: {connections: 8}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`)
	if got := r.Log.String(); !strings.Contains(got, "connections=8 allowed=7") {
		t.Errorf("the log says %q", got)
	}
}

// TestReloadKeepsTheQueue: connections in the accept queue at a reload are served by what it brings into force: another upstream, the
// address that takes over, a longer queue; or, where their listener is gone, as if it were there.
func TestReloadKeepsTheQueue(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	const one = `, {name: l, bind: "127.0.0.1:PORT", upstream: a, limits: {connections: 1}}`
	for name, test := range map[string]struct{ before, meanwhile, after, want string }{ // listeners
		"another upstream": {one, one, `, {name: l, bind: "127.0.0.1:PORT", upstream: b}`, "b"},
		"a takeover":       {strings.Replace(one, "127.0.0.1", "", 1), "", `, {name: l, bind: "127.0.0.1:PORT", upstream: b}`, "b"},
		"longer, and gone": {strings.Replace(one, "limits", "socket: {backlog: 1}, limits", 1), strings.Replace(one, "limits", "socket: {backlog: 100}, limits", 1), "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := sockets.Port(t)
			text := func(listener string) string {
				return fmt.Sprintf("listeners: [{name: other, bind: \"127.0.0.1:0\", upstream: a}%s]\nupstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]", strings.ReplaceAll(listener, "PORT", port), a, b)
			}
			r := start(t, text(test.before))
			first := client(t, "127.0.0.1:"+port)
			line(t, first)
			r.Reload(text(cmp.Or(test.meanwhile, test.before)))
			var queue []*net.TCPConn
			for range 50 {
				queue = append(queue, client(t, "127.0.0.1:"+port))
			}
			if n := r.Status().Connections.Accepted; n > 3 {
				t.Errorf("%d were accepted, want them in the queue", n)
			}
			must(t, r.ApplyCommitted(t.Context(), r.Load(text(test.after)), func() { must(t, r.LookForRoom(t.Context())) }))
			echoes(t, first, "still here")
			first.Close()
			var others atomic.Int64
			var clients sync.WaitGroup
			for _, c := range queue { // one at a time where the limit is one, in any order
				clients.Go(func() {
					if got, err := sockets.ReadLine(c); err != nil {
						t.Error(err)
					} else if got != test.want {
						others.Add(1)
					}
					c.Close()
				})
			}
			clients.Wait()
			if n := others.Load(); n > 2 { // each of two loops may have had one client already
				t.Errorf("%d were served by another than %s", n, test.want)
			}
			if s := r.Summary(); s.Connections.Refused != 0 || s.Lost != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Options of TCP that package syscall does not name, see tcp(7).
const (
	tcpKeepIdle    = 4
	tcpUserTimeout = 18
	tcpFastOpen    = 23
)

// listening finds the socket of this process that listens at a port.
func listening(t *testing.T, port string) (fd int, inode uint64) {
	t.Helper()
	want, err := strconv.Atoi(port)
	must(t, err)
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range list {
		fd, _ := strconv.Atoi(entry.Name())
		accepts, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		if err != nil || accepts == 0 {
			continue
		}
		var stat syscall.Stat_t
		at, err := syscall.Getsockname(fd)
		if v4, ok := at.(*syscall.SockaddrInet4); ok && err == nil && v4.Port == want && syscall.Fstat(fd, &stat) == nil {
			return fd, stat.Ino
		}
	}
	t.Fatalf("no socket listens at %s", port)
	return -1, 0
}

// TestSocketOptions: the configured options are set; a reload sets them on the same socket.
func TestSocketOptions(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", upstream: u, socket: {keepalive: %ds, user_timeout: %ds, fastopen: %t}}]
upstreams: [{name: u, endpoints: [%q]}]`
	port, up := sockets.Port(t), named(t, "a")
	r := start(t, fmt.Sprintf(text, port, 30, 5, true, up))
	var socket uint64
	for i, want := range [][2]int{{30, 5}, {40, 7}, {0, 0}, {50, 8}} {
		if i > 0 {
			r.Reload(fmt.Sprintf(text, port, want[0], want[1], i%2 == 0, up))
		}
		fd, inode := listening(t, port)
		if i > 0 && inode != socket {
			t.Error("the reload opened another socket")
		}
		socket = inode
		asks, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		if err != nil || (asks != 0) != (want[0] != 0) {
			t.Errorf("keepalive %v, %v, want %v", asks != 0, err, want[0] != 0)
		}
		idle, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpKeepIdle)
		if err != nil || asks != 0 && idle != want[0] {
			t.Errorf("keepalive %d, %v", idle, err)
		}
		timeout, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpUserTimeout)
		if err != nil || timeout != want[1]*1000 {
			t.Errorf("user_timeout %d, %v", timeout, err)
		}
		queue, err := syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, tcpFastOpen)
		if err != nil || queue > 0 != (i%2 == 0) {
			t.Errorf("fastopen %d, %v", queue, err)
		}
	}
	servedBy(t, r.At("l"), "a")
}

// TestBacklog: a reload changes the length of the accept queues, of a unix socket as well.
func TestBacklog(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:0", "unix:%s"], upstream: u, socket: {backlog: %%d}}]
upstreams: [{name: u, endpoints: [%q]}]`, filepath.Join(t.TempDir(), "s"), named(t, "a"))
	r := start(t, fmt.Sprintf(text, 10))
	for _, want := range []int64{10, 20} {
		if want != 10 {
			r.Reload(fmt.Sprintf(text, want))
		}
		for _, q := range r.Listener("l").Queues {
			if q.Most != want {
				t.Errorf("%+v, want a queue of %d", q, want)
			}
		}
	}
}

// TestMultipath: a client that uses Multipath TCP is served with it if the listener allows it.
func TestMultipath(t *testing.T) {
	t.Parallel()

	if b, err := os.ReadFile("/proc/sys/net/mptcp/enabled"); err != nil || len(b) == 0 || b[0] != '1' {
		t.Skipf("this kernel has no Multipath TCP, or it is off: %v", err)
	}
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, socket: {mptcp: true}}, {name: m, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for name, want := range map[string]bool{"l": true, "m": false} {
		var d net.Dialer
		d.SetMultipathTCP(true)
		c, err := d.Dial("tcp", r.At(name))
		must(t, err)
		defer c.Close()
		hears(t, c, "a")
		if got, err := c.(*net.TCPConn).MultipathTCP(); got != want || err != nil {
			t.Errorf("%s: multipath %v, %v", name, got, err)
		}
	}
}

// anotherCongestion returns the congestion control of this system, and another one that each process may use.
func anotherCongestion(t *testing.T) (usual, another string) {
	t.Helper()
	_, allowed, err := sys.CongestionControls()
	if err != nil {
		t.Skipf("this kernel does not list its congestion controls: %v", err)
	}
	usual, err = sys.DefaultCongestion()
	must(t, err)
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
	arrived, mirrored := make(chan net.Conn, 1), make(chan net.Conn, 1)
	server := func(to chan net.Conn) string {
		return sockets.Server(t, func(c net.Conn) {
			to <- c
			sockets.Echo(c)
		})
	}
	up, shadow, port := server(arrived), server(mirrored), sockets.Port(t)
	of := func(listener, upstream string) string {
		return fmt.Sprintf("listeners: [{name: l, bind: '127.0.0.1:%s', upstream: u%s, mirror: {upstream: v}, socket: {congestion: '%s'}}]\n"+
			"upstreams: [{name: u, endpoints: [%q], health_check: off, socket: {congestion: '%s'}}, {name: v, endpoints: [%q], health_check: off, socket: {congestion: '%[5]s'}}]",
			port, further, listener, up, upstream, shadow)
	}
	r := start(t, of(another, another), "c.pem", cert, "k.pem", key)
	for i, want := range [][2]string{{another, another}, {"", another}, {another, ""}, {"", ""}} {
		if i > 0 {
			r.Reload(of(want[0], want[1]))
		}
		c := client(t, r.At("l"))
		var conn net.Conn = c
		if further != "" {
			conn = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		}
		echoes(t, conn, "x")
		to, shadow := <-arrived, <-mirrored
		for i, of := range []net.Conn{c, to, shadow} { // of the listener, and twice of an upstream
			name := cmp.Or(want[min(i, 1)], usual)
			if got := congestionOf(t, of.RemoteAddr(), of.LocalAddr()); got != name {
				t.Errorf("%q: connection %d has %s, want %s", want, i, got, name)
			}
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
	must(t, r.Apply(context.Background(), cfg))
	for range 3 {
		servedBy(t, r.At("l"), "a")
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

// TestStatusOfBinds: the status counts clients by bind address, also after the address moves to
// another listener.
func TestStatusOfBinds(t *testing.T) {
	t.Parallel()

	a := named(t, "a")
	path := filepath.Join(t.TempDir(), "s")
	text := func(web, other string) string {
		return fmt.Sprintf("listeners: [{name: web, bind: [%s], upstream: a}, {name: other, bind: [%s], upstream: a}]\nupstreams: [{name: a, endpoints: [%q]}]", web, other, a)
	}
	bind := fmt.Sprintf("%q", "unix:"+path+"?mode=0600")
	r := start(t, text(`"127.0.0.1:0", `+bind, `"[::1]:0"`))
	has := func(listener string, want ...admin.Bind) {
		t.Helper()
		for _, l := range r.Status().Listeners {
			if l.Name == listener && !reflect.DeepEqual(l.Binds, want) {
				t.Errorf("%s has %+v, want %+v", listener, l.Binds, want)
			}
		}
	}
	for range 2 {
		line(t, client(t, r.At("web")))
	}
	c := dialUnix(t, path)
	line(t, c)
	has("web", admin.Bind{Bind: "127.0.0.1:0", Active: 2}, admin.Bind{Bind: "unix:" + path + "?mode=0600", Active: 1})
	has("other", admin.Bind{Bind: "[::1]:0"})
	r.Reload(text(`"127.0.0.1:0"`, bind))
	has("web", admin.Bind{Bind: "127.0.0.1:0", Active: 2})
	has("other", admin.Bind{Bind: "unix:" + path + "?mode=0600", Active: 1})
	r.Reload(text(`"127.0.0.1:0"`, strings.Replace(bind, "0600", "0640", 1)))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a reload with another mode: %v, %v", info.Mode(), err)
	}
}

// TestPausesAreToldAndCounted: when a listener reaches its limit of connections, or of
// connections a second, the status says so. The pauses are counted, and logged once.
func TestPausesAreToldAndCounted(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, limits: {connections: 1}}
  - {name: m, bind: "127.0.0.1:0", upstream: u, limits: {per_second: 1}}
  - {name: n, bind: "127.0.0.1:0", upstream: u}
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	for i := range 5 {
		c := client(t, r.At("l"))
		line(t, c)
		if l := r.Listener("l"); l.State != "paused" || l.PausedAt != "connections" {
			t.Errorf("at its limit of connections: %+v", l)
		}
		late := client(t, r.At("l"))
		r.Until("the client waits", func() bool { return r.Listener("l").Pauses["connections"] >= int64(i+1) })
		c.Close()
		line(t, late)
		late.Close()
		r.Until("there is room", func() bool { l := r.Listener("l"); return l.State == "serving" && l.PausedAt == "" })
	}
	line(t, client(t, r.At("m")))
	late := client(t, r.At("m"))
	r.Until("the client waits", func() bool { return r.Listener("m").Pauses["per_second"] >= 1 })
	line(t, late)
	if m := r.Listener("m"); m.State != "paused" || m.PausedAt != "per_second" {
		t.Errorf("at its limit of connections a second: %+v", m)
	}
	line(t, client(t, r.At("n")))
	if n := r.Listener("n"); len(n.Pauses) != 0 || n.State != "serving" {
		t.Errorf("without a limit: %+v", n)
	}
	r.Logs("level=INFO", "a listener is at its limit", "listener=l", "limit=connections", "times=1")
	r.Logs("level=INFO", "a listener is at its limit", "listener=m", "limit=per_second")
	if n := strings.Count(r.Log.String(), "listener=l limit="); n > 2 { // twice if the test takes long
		t.Errorf("logged %d times", n)
	}
}

// TestNewLimitOfSources: a limit that a reload brings counts the sessions that are there: no more come until the source has
// fewer. So do sessions that began while there was none, if it comes back.
func TestNewLimitOfSources(t *testing.T) {
	t.Parallel()

	text := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {per_source: %%d}}, {name: h, bind: "127.0.0.1:0", upstream: u, accept_proxy: {from: [127.0.0.0/8]}, limits: {per_source: %%[1]d}}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a"))
	r := start(t, fmt.Sprintf(text, 0))
	join := func() net.Conn {
		t.Helper()
		c := client(t, r.At("l"))
		line(t, c)
		return c
	}
	proxied := func(c net.Conn) net.Conn {
		_, err := io.WriteString(c, "PROXY TCP4 10.0.0.7 127.0.0.1 1 1\r\n")
		must(t, err)
		return c
	}
	present, late := [2]net.Conn{join(), join()}, client(t, r.At("h"))
	line(t, proxied(client(t, r.At("h"))))
	r.Until("the late one is accepted", func() bool { return r.Status().Connections.Active == 4 })
	limited := func() {
		t.Helper()
		r.Reload(fmt.Sprintf(text, 1))
		r.Until("present sessions count", func() bool { return r.CountedSources("l") == 2 && r.CountedSources("h") == 1 })
		refused(t, r.At("l"))
		isReset(t, proxied(client(t, r.At("h"))))
	}
	limited()
	isReset(t, proxied(late))
	r.Reload(fmt.Sprintf(text, 0))
	present[0].Close()
	r.Until("its place is free", func() bool { return r.CountedSources("l") == 1 })
	present[0] = join()
	limited()
	present[0].Close()
	present[1].Close()
	r.Until("their places are free", func() bool { return r.CountedSources("l") == 0 })
	join()
	refused(t, r.At("l"))
}

// TestSourcesOfAnyLimit: sources are limited whatever the limit of descriptors is: in containers it may be a thousand million.
func TestSourcesOfAnyLimit(t *testing.T) {
	t.Parallel()

	r := startWith(t, 1<<29, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, limits: {per_source: 1}}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "a")))
	c := client(t, r.At("l"))
	if got := line(t, c); got != "a" {
		t.Errorf("it is served by %q", got)
	}
	refused(t, r.At("l"))
}
