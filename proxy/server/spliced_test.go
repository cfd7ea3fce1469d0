package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
	"github.com/penstock/penstock/relay"
)

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
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
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
