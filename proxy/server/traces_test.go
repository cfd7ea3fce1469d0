package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// tracedConfig is a configuration whose sessions are all traced, with more keys of traces.
func tracedConfig(to *collector.Collector, endpoint, more string) string {
	return fmt.Sprintf(`traces: {endpoint: %q, sample: 100, schedule_delay: 10ms%s}
listeners:
- {name: a, bind: "127.0.0.1:0", upstream: u}
- {name: closed, bind: "127.0.0.1:0", deny: [127.0.0.0/8], upstream: u}
upstreams: [{name: u, endpoints: [%q]}]`, to.URL, more, endpoint)
}

// spans waits until a collector has n spans, each once, and returns them.
func spans(r *rig, to *collector.Collector, n int) []*trace.Span {
	r.T.Helper()
	r.Until(fmt.Sprintf("%d spans", n), func() bool { return to.Distinct() >= n })
	got := to.Spans()
	if len(got) != n {
		r.T.Errorf("%d spans, want %d", len(got), n)
	}
	return got
}

// attribute returns an attribute of a span that is a text.
func attribute(s *trace.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// talked has n sessions exchange some bytes and end, one after the other.
func talked(t *testing.T, address string, n int) {
	t.Helper()
	for range n {
		c := client(t, address)
		echoes(t, c, "hello")
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}
}

// TestTraces: with a healthy collector as many spans are received as there were clients, the
// refused ones included.
func TestTraces(t *testing.T) {
	t.Parallel()

	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol[:4], func(t *testing.T) {
			to := collector.Start(t, protocol, nil)
			r := start(t, tracedConfig(to, sockets.Server(t, sockets.Echo), ", protocol: "+protocol))
			talked(t, r.At("a"), 200)
			for range 10 {
				refused(t, r.At("closed"))
			}
			counts := map[string]int{}
			for _, s := range spans(r, to, 210) {
				counts[fmt.Sprint(attribute(s, "penstock.listener"), " ", attribute(s, "penstock.outcome"), " ", s.Status.GetCode())]++
			}
			if counts["a joined STATUS_CODE_UNSET"] != 200 || counts["closed refused STATUS_CODE_ERROR"] != 10 {
				t.Errorf("%v", counts)
			}
			r.Until("all are counted", func() bool { return r.Status().Traces.Exported == 210 })
			if st := r.Status().Traces; st.Sampled != 210 || st.Open != 0 || st.Queued != 0 || len(st.Dropped) != 0 || st.Unconfirmed != 0 || st.Sample != 100 || st.Endpoint != to.URL {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestTracesOfWaiting: a session's course has its steps: the endpoint that was tried first, the
// other one, the first bytes, and the end.
func TestTracesOfWaiting(t *testing.T) {
	t.Parallel()

	to := collector.Start(t, "grpc", nil)
	text := strings.Replace(tracedConfig(to, sockets.Server(t, sockets.Echo), ""), "endpoints: [", "balance: first, health_check: off, endpoints: ["+fmt.Sprintf("%q, ", sockets.Refusing(t)), 1)
	r := start(t, text)
	talked(t, r.At("a"), 1)
	s := spans(r, to, 1)[0]
	var names []string
	last := s.StartTimeUnixNano
	for _, e := range s.Events {
		names = append(names, e.Name)
		if e.TimeUnixNano < last || e.TimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("%s is at %d, after %d, until %d", e.Name, e.TimeUnixNano, last, s.EndTimeUnixNano)
		}
		last = e.TimeUnixNano
	}
	if got := strings.Join(names, " "); got != "begin route connect connect_failed pick connect joined first_byte first_byte half_close end" {
		t.Errorf("the course is %s", got)
	}
}

// TestTracesOverReloads: sessions that go on over reloads have one span each, also after traces
// were switched off, and none is sampled then.
func TestTracesOverReloads(t *testing.T) {
	t.Parallel()

	first, second := collector.Start(t, "grpc", nil), collector.Start(t, "grpc", nil)
	endpoint := sockets.Server(t, sockets.Echo)
	r := start(t, tracedConfig(first, endpoint, ""))
	open := func() (list []net.Conn) {
		for range 10 {
			c := client(t, r.At("a"))
			echoes(t, c, "x")
			list = append(list, c)
		}
		return list
	}
	early := open()
	r.Reload(tracedConfig(second, endpoint, ", resource: service.name=edge"))
	late := open()
	for _, c := range early {
		c.Close()
	}
	spans(r, second, 10)
	off := tracedConfig(second, endpoint, "")
	r.Reload(off[strings.IndexByte(off, '\n'):])
	untraced := open()
	if st := r.Status().Traces; st.Sampled != 20 || st.Open != 10 || st.Endpoint != "" {
		t.Errorf("%+v", st)
	}
	for _, c := range append(late, untraced...) {
		c.Close()
	}
	r.Until("no session is left", func() bool { return r.Status().Connections.Active == 0 })
	spans(r, second, 20)
	if n := first.Distinct(); n != 0 {
		t.Errorf("%d spans went to the first one", n)
	}
}

// TestTracesOfDrain: sessions that end in a drain, or are cut by it, leave their spans before
// the process ends, whatever the delay.
func TestTracesOfDrain(t *testing.T) {
	t.Parallel()

	to := collector.Start(t, "http/protobuf", nil)
	text := tracedConfig(to, sockets.Server(t, sockets.Echo), ", protocol: http/protobuf")
	r := &rig{loadbalancer.Setting{Drain: 200 * time.Millisecond}.Start(t, strings.Replace(text, "schedule_delay: 10ms", "schedule_delay: 5m", 1))}
	var list []net.Conn
	for range 20 {
		c := client(t, r.At("a"))
		echoes(t, c, "x")
		list = append(list, c)
	}
	for _, c := range list[:10] {
		c.Close()
	}
	_ = r.End()
	reasons := map[string]int{}
	for _, s := range spans(r, to, 20) {
		reasons[attribute(s, "penstock.reason")]++
	}
	if reasons["eof"] != 10 || reasons["canceled"] != 10 {
		t.Errorf("%v", reasons)
	}
	r.Logs("traces exported", "sampled=20", "exported=20", "unconfirmed=0")
}

// TestTracesWithoutCollector: clients do not notice that there is no collector, and each span is
// counted: received + dropped = sampled.
func TestTracesWithoutCollector(t *testing.T) {
	t.Parallel()

	to := collector.Start(t, "grpc", nil)
	to.Stop(true)
	r := start(t, tracedConfig(to, sockets.Server(t, sockets.Echo), ", max_queue_size: 20, max_export_batch_size: 10, retry_for: 1s, flush_timeout: 100ms"))
	talked(t, r.At("a"), 100)
	r.Until("an attempt has failed", func() bool { return r.Status().Traces.LastError != "" })
	_ = r.End()
	r.Logs("spans lost", "queue_full")
	r.Logs("traces exported", "sampled=100", "exported=0", "unconfirmed=0")
}

// TestTracesOverTLS: the collector is verified by tls.ca, TLS that ends here is traced, and a CA
// that cannot be read fails the reload, which changes nothing.
func TestTracesOverTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "shop.example")
	pair := pairOf(t, cert, key)
	to := collector.Start(t, "grpc", &tls.Config{Certificates: []tls.Certificate{pair}})
	text := strings.Replace(tracedConfig(to, sockets.Server(t, sockets.Echo), ", tls: {ca: ca.pem}, headers: [{name: X-Token, value: 'file:token'}]"),
		"upstream: u}", "upstream: u, tls: {certificates: [{cert: ca.pem, key: own.key}], alpn: [echo]}}", 1)
	r := start(t, text, "ca.pem", cert, "own.key", key, "token", "s3cret\n")
	c := tls.Client(client(t, r.At("a")), &tls.Config{InsecureSkipVerify: true, ServerName: "shop.example", NextProtos: []string{"echo"}})
	echoes(t, c, "hello")
	c.Close()
	s := spans(r, to, 1)[0]
	if attribute(s, "tls.client.server_name") != "shop.example" || attribute(s, "penstock.tls.protocols") != "echo" || attribute(s, "penstock.upstream") != "u" {
		t.Errorf("%v", s.Attributes)
	}
	if got := to.Headers()[0].Get("X-Token"); got != "s3cret" {
		t.Errorf("the token is %q", got)
	}
	var st admin.Status
	if st = r.Status(); st.Traces.Sampled != 1 {
		t.Errorf("%+v", st.Traces)
	}
}
