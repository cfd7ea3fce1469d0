package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

// sum adds up byte counts.
func sum(list ...admin.Bytes) (all admin.Bytes) {
	add := func(m *admin.ByEngine, o admin.ByEngine) {
		m.Spliced, m.Copied = m.Spliced+o.Spliced, m.Copied+o.Copied
	}
	for _, b := range list {
		add(&all.ClientToEndpoint, b.ClientToEndpoint)
		add(&all.EndpointToClient, b.EndpointToClient)
	}
	return all
}

// bytesAgree checks that the byte counts of the listeners, of the upstreams and of their
// endpoints each add up to those of the process.
func (r *rig) bytesAgree(st *admin.Status) {
	r.T.Helper()
	var listeners, upstreams, endpoints []admin.Bytes
	for _, l := range st.Listeners {
		listeners = append(listeners, l.Bytes)
	}
	for _, u := range st.Upstreams {
		upstreams = append(upstreams, u.Bytes)
		for _, e := range u.Endpoints {
			endpoints = append(endpoints, e.Bytes)
		}
	}
	for name, list := range map[string][]admin.Bytes{"listeners": listeners, "upstreams": upstreams, "endpoints": endpoints} {
		if got := sum(list...); got != st.Bytes {
			r.T.Errorf("the %s moved %+v, the process %+v", name, got, st.Bytes)
		}
	}
}

// TestBytesByEngine: spliced and copied bytes are reported for the process and for each listener,
// upstream and endpoint. Both active and ended sessions count.
func TestBytesByEngine(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	const size = 4 << 20
	bulk := sockets.Server(t, func(c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		send(c, size)
		_, _ = io.Copy(io.Discard, c)
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u}
  - {name: m, bind: "127.0.0.1:0", upstream: v}
upstreams:
  - {name: u, endpoints: [{address: %q, name: e}], health_check: off}
  - {name: v, endpoints: [{address: %q, name: f}], health_check: off}`, bulk, named(t, "up")))
	c := client(t, r.At("l"))
	must(t, second(io.ReadFull(c, make([]byte, size))))
	other := client(t, r.At("m"))
	line(t, other)
	echoes(t, other, "12345")
	check := func() {
		t.Helper()
		st := r.Status()
		r.bytesAgree(&st)
		e, f := r.Endpoint("u", "e").Bytes, r.Endpoint("v", "f").Bytes
		if to := e.EndpointToClient; to.All() != size || to.Spliced < size/2 || e.ClientToEndpoint.All() != 0 {
			t.Errorf("of %d bytes of bulk: %+v", size, e)
		}
		want := admin.Bytes{ClientToEndpoint: admin.ByEngine{Copied: 5}, EndpointToClient: admin.ByEngine{Copied: 3 + 5}}
		if f != want {
			t.Errorf("of some bytes: %+v, want %+v", f, want)
		}
	}
	r.Until("the received bytes are counted", func() bool {
		st := r.Status()
		return st.Bytes.EndpointToClient.All() == size+8 && st.Bytes.ClientToEndpoint.All() == 5
	})
	check() // while they run
	for _, c := range []net.Conn{c, other} {
		c.Close()
	}
	r.Until("the sessions have ended", func() bool { return r.Status().Connections.Active == 0 })
	check()
}

// TestBytesOfResponses: what clients got in place of a session, on a loop or off it, is counted for their listener and the
// process, as in the session log.
func TestBytesOfResponses(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
session_log: {to: sessions.log, format: json}
listeners:
  - {name: plain, bind: "127.0.0.1:0", upstream: u}
  - {name: tls, bind: "127.0.0.1:0", upstream: u, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
  - {name: postgres, bind: "127.0.0.1:0", upstream: v, postgres: passthrough}
upstreams:
  - {name: u, endpoints: [%q], health_check: off, fallback: {respond: sorry.txt}, retry: {attempts: 0}}
  - {name: v, endpoints: [%[1]q], health_check: off, queue: {hold: 0}, retry: {attempts: 0}}`, sockets.Refusing(t)), "sorry.txt", "sorry\n", "c.pem", cert, "k.pem", key)
	encrypted, err := hello(t, r.At("tls"), "front.test")
	must(t, err)
	got := make(map[string]int64)
	for name, c := range map[string]net.Conn{"plain": client(t, r.At("plain")), "tls": encrypted, "postgres": client(t, r.At("postgres"))} {
		if name == "postgres" {
			must(t, second(io.WriteString(c, "\x00\x00\x00\x10\x00\x03\x00\x00user\x00u\x00\x00")))
		}
		b, err := io.ReadAll(c)
		if got[name] = int64(len(b)); err != nil || len(b) == 0 || name != "postgres" && string(b) != "sorry\n" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		c.Close()
	}
	var all int64
	for line := range bytes.Lines(r.logged(t, 3)) {
		var e struct {
			Listener string
			Bytes    int64 `json:"bytes_to_client"`
		}
		must(t, json.Unmarshal(line, &e))
		want := admin.Bytes{EndpointToClient: admin.ByEngine{Copied: got[e.Listener]}}
		if counted := r.Listener(e.Listener).Bytes; counted != want || e.Bytes != got[e.Listener] {
			t.Errorf("the client has got %d bytes, %+v are counted: %s", got[e.Listener], counted, line)
		}
		all += e.Bytes
	}
	if n := r.Summary().Bytes.EndpointToClient.Copied; n != all {
		t.Errorf("the process has sent %d bytes, its clients have got %d", n, all)
	}
}

// TestBytesOutliveReloads: the byte counts of a listener, an upstream and an endpoint continue
// under the next configuration. The process's counts do not fall when a part of it is removed.
func TestBytesOutliveReloads(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := func(idle int, endpoints string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: %ds}}]
upstreams: [{name: u, endpoints: [%s], health_check: off}]`, idle, endpoints)
	}
	both := fmt.Sprintf("{address: %q, name: a}, {address: %q, name: b}", a, b)
	r := start(t, text(100, both))
	first, second := client(t, r.At("l")), client(t, r.At("l"))
	line(t, first)
	line(t, second)
	first.Close()
	r.Until("one session has ended", func() bool { return r.Status().Connections.Active == 1 })
	before := r.Status()
	r.bytesAgree(&before)
	r.Reload(text(99, both))
	after := r.Status()
	r.bytesAgree(&after)
	if before.Bytes != after.Bytes || after.Bytes.EndpointToClient.Copied != 4 {
		t.Errorf("%+v before a reload, %+v after it", before.Bytes, after.Bytes)
	}
	r.Reload(text(99, fmt.Sprintf("{address: %q, name: c}", a)))
	if after := r.Status(); after.Bytes != before.Bytes || after.Upstreams[0].Bytes != before.Bytes {
		t.Errorf("%+v in all, %+v of the upstream, whose endpoints are gone; want %+v", after.Bytes, after.Upstreams[0].Bytes, before.Bytes)
	}
	second.Close()
	r.Until("the other session has ended", func() bool { return r.Status().Connections.Active == 0 })
	if after := r.Status(); after.Listeners[0].Bytes != before.Bytes || after.Upstreams[0].Bytes != before.Bytes {
		t.Errorf("%+v of the listener, %+v of the upstream, want %+v", after.Listeners[0].Bytes, after.Upstreams[0].Bytes, before.Bytes)
	}
}

// streams is a server that sends size bytes and an end of file, and reads until the client's end
// of file.
func streams(t *testing.T, size int) string {
	return sockets.Server(t, func(c net.Conn) {
		taken := make(chan struct{})
		go func() {
			defer close(taken)
			_, _ = io.Copy(io.Discard, c)
		}()
		send(c, size)
		_ = c.(*net.TCPConn).CloseWrite()
		<-taken
	})
}

// send sends size bytes.
func send(c net.Conn, size int) {
	buf := make([]byte, 64<<10)
	for size > 0 {
		n, err := c.Write(buf[:min(size, len(buf))])
		if size -= n; err != nil {
			return
		}
	}
}

// spliced lists the features that a spliced session may have.
var spliced = []struct {
	name, listener, upstream string
	before                   func(*testing.T) []byte // the client's first bytes; nil: none
}{
	{name: "nothing", listener: "upstream: u"},
	{name: "SNI", listener: `routes: [{match: {sni: ["*.example.com"]}, upstream: u}]`, before: asking},
	{name: "ALPN", listener: "routes: [{match: {alpn: [h2]}, upstream: u}]", before: asking},
	{name: "source", listener: `routes: [{match: {source: ["127.0.0.0/8"]}, upstream: u}]`},
	{name: "split", listener: "routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: 50}]}]"},
	{name: "allow", listener: `upstream: u, allow: ["127.0.0.0/8"], deny: ["127.6.6.6"]`},
	{name: "accept_proxy", listener: "upstream: u, accept_proxy: {}", before: proxied},
	{name: "send_proxy 1", listener: "upstream: u", upstream: ", send_proxy: 1"},
	{name: "send_proxy 2", listener: "upstream: u", upstream: ", send_proxy: 2"},
	{name: "limits", listener: "upstream: u, limits: {connections: 10, per_second: 100, per_source: 10, per_source_per_second: 100}"},
	{name: "bandwidth", listener: "upstream: u, limits: {bandwidth: 32MiB}"},
	{name: "bandwidth of each direction", listener: "upstream: u, limits: {bandwidth: {up: 32MiB, down: 64MiB, burst: 1MiB}}"},
	{name: "bandwidth_per_connection", listener: "upstream: u, limits: {bandwidth_per_connection: 32MiB}"},
	{name: "timeouts", listener: "upstream: u, timeouts: {first_byte: 10s, idle: 10s, half_close: 10s, lifetime: 1m}"},
	{name: "on_data", listener: "upstream: u, connect: on_data"},
	{name: "queue", listener: "upstream: u", upstream: ", queue: {size: 4}, slow_start: 1s, balance: least_conn"},
	{
		name: "all",
		listener: `routes: [{match: {sni: [a.example.com], alpn: [h2], source: ["192.0.2.0/24"], port: 443}, upstream: u}], ` +
			`accept_proxy: {}, allow: ["192.0.2.0/24"], limits: {connections: 10, per_second: 100, per_source: 10, per_source_per_second: 100, ` +
			`bandwidth: 64MiB, bandwidth_per_connection: 32MiB}, timeouts: {first_byte: 10s, idle: 10s, half_close: 10s, lifetime: 1m}`,
		upstream: ", send_proxy: 2, balance: maglev, queue: {size: 4}",
		before:   func(t *testing.T) []byte { return append(proxied(t), asking(t)...) },
	},
}

func asking(t *testing.T) []byte { return clienthello.Named(t, "a.example.com", "h2") }

func proxied(*testing.T) []byte { return []byte("PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\n") }

// TestSplicedAllTheSame: both directions are spliced, whatever is preread, sent first, counted or
// limited. The accounting agrees.
func TestSplicedAllTheSame(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	const size = 4 << 20
	up := streams(t, size)
	for _, c := range spliced {
		t.Run(c.name, func(t *testing.T) {
			r := startSplicing(t, fmt.Sprintf(`
listeners: [{name: l, bind: ["127.0.0.1:0", "unix:%s"], %s}]
upstreams: [{name: u, endpoints: [%q], health_check: off%s}, {name: v, endpoints: [%[3]q], health_check: off}]`,
				filepath.Join(t.TempDir(), "s"), c.listener, up, c.upstream))
			var before []byte
			if c.before != nil {
				before = c.before(t)
			}
			stream(t, client(t, r.At("l")), before, size)
			r.bothSpliced(size)
		})
	}
	t.Run("unix", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		r := startSplicing(t, fmt.Sprintf(`
listeners: [{name: l, bind: "unix:%s", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, path, up))
		c := dialUnix(t, path)
		stream(t, c, nil, size)
		r.bothSpliced(size)
	})
}

// startSplicing is start with the engine that splices from the first byte on. The auto engine
// chooses by the size of reads, which depends on the machine.
func startSplicing(t *testing.T, text string) *rig {
	t.Helper()
	return &rig{loadbalancer.Setting{Change: func(o *server.Options) { o.Engine = relay.EngineSplice }}.Start(t, text)}
}

// stream sends and reads size bytes.
func stream(t *testing.T, c net.Conn, before []byte, size int) {
	t.Helper()
	go func() {
		_, _ = io.Copy(c, bytes.NewReader(before))
		send(c, size)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); n != int64(size) || err != nil {
		t.Errorf("%d bytes of %d received, %v", n, size, err)
	}
}

// bothSpliced checks that nearly all bytes of both directions were spliced. The rest was preread
// by a listener.
func (r *rig) bothSpliced(size int64) {
	r.T.Helper()
	r.Until("the session has ended", func() bool { return r.Summary().Connections.Active == 0 })
	s := r.Summary()
	if up, down := s.Bytes.ClientToEndpoint, s.Bytes.EndpointToClient; up.Spliced < size*9/10 || down.Spliced < size*9/10 {
		r.T.Errorf("of %d bytes each way: %+v and %+v", size, up, down)
	}
	if s.Fallbacks["wrapped"] > 0 || s.Lost > 0 {
		r.T.Errorf("fallbacks %v, lost %d", s.Fallbacks, s.Lost)
	}
}

// sendAroundUrgent sends an urgent byte between two texts, and the end of file.
func sendAroundUrgent(c net.Conn, before, after string) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte(before)); err != nil {
		return err
	}
	waited := raw.Write(func(fd uintptr) bool {
		_, err = sys.Send(int(fd), []byte{'!'}, sys.MSG_OOB|sys.MSG_NOSIGNAL)
		return true
	})
	if err := errors.Join(waited, err); err != nil {
		return err
	}
	if _, err := c.Write([]byte(after)); err != nil {
		return err
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

// TestUrgentByteIsUrgent: an urgent byte is passed on as one, both ways, in user space and in the lane: a peer that does not take it in line
// gets the bytes around it, and the byte by MSG_OOB, as a database does whose breaks are urgent bytes.
func TestUrgentByteIsUrgent(t *testing.T) {
	t.Parallel()

	for _, in := range []string{"off", "auto"} {
		t.Run(in, func(t *testing.T) {
			if in == "auto" && !laned(t) {
				return
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			far, over := make(chan net.Conn, 1), make(chan struct{})
			defer close(over)
			sockets.Serve(t, ln, func(c net.Conn) {
				far <- c
				<-over
			})
			r := start(t, laneConfig(ln.Addr().String(), "lane: "+in))
			c := client(t, r.At("l"))
			server := <-far
			_ = server.SetDeadline(time.Now().Add(condition.Patience))
			r.Until("it is where it is to be", func() bool {
				for _, way := range []struct{ from, to net.Conn }{{c, server}, {server, c}} {
					sends(t, way.from, "x")
					must(t, second(io.ReadFull(way.to, make([]byte, 1))))
				}
				s := r.session(t)
				return s != nil && (s.Engine == admin.EngineLane) == (in == "auto")
			})
			for _, way := range []struct{ from, to net.Conn }{{c, server}, {server, c}} {
				must(t, sendAroundUrgent(way.from, "before", "after"))
				urgent := make([]byte, 1)
				receives(t, way.to, "before")
				fd := sockets.FD(t, way.to.(*net.TCPConn))
				r.Until("the urgent byte comes", func() bool {
					n, err := sys.Recv(fd, urgent, sys.MSG_OOB|sys.MSG_DONTWAIT)
					return n == 1 && err == nil
				})
				if rest, err := io.ReadAll(sockets.Marked(way.to)); string(urgent)+string(rest) != "!after" || err != nil {
					t.Errorf("got %q and then %q, %v", urgent, rest, err)
				}
			}
		})
	}
}

// TestFirstByteThatIsUrgent: a first byte that was sent as urgent data is looked at, so the endpoint gets it in the stream: else it would
// read others than those that the route was chosen by.
func TestFirstByteThatIsUrgent(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", routes: [{match: {bytes: [{text: "!after"}]}, upstream: u}]}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, sockets.Server(t, sockets.Echo)))
	c := client(t, r.At("l"))
	must(t, sendAroundUrgent(c, "", "after"))
	if got, err := io.ReadAll(c); string(got) != "!after" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
