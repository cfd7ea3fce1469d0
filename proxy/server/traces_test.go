package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/file"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
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

// TestTraces: with a healthy collector, also behind TLS, as many spans are received as there were clients, the
// refused ones included.
func TestTraces(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "collector.test")
	for protocol, secure := range map[string]*tls.Config{"grpc": nil, "http/protobuf": {Certificates: []tls.Certificate{pairOf(t, cert, key)}}} {
		t.Run(protocol[:4], func(t *testing.T) {
			to, keys := collector.Start(t, protocol, secure), ", headers: [{name: X-Token, value: 'file:token'}], protocol: "+protocol
			if secure != nil {
				keys += ", tls: {ca: ca.pem}"
			}
			r := start(t, tracedConfig(to, sockets.Server(t, sockets.Echo), keys), "ca.pem", cert, "token", "s3cret\n")
			talked(t, r.At("a"), 200)
			for range 10 {
				refused(t, r.At("closed"))
			}
			counts := map[string]int{}
			for _, s := range spans(r, to, 210) {
				counts[fmt.Sprint(attribute(s, "penstock.listener"), " ", attribute(s, "penstock.outcome"), " ", s.Status.GetCode())]++
			}
			if got := to.Headers()[0].Get("X-Token"); got != "s3cret" {
				t.Errorf("the token is %q", got)
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

// TestTracesKeepTheirFiles: a bad file of traces does not stop a rollback of anything else.
func TestTracesKeepTheirFiles(t *testing.T) {
	t.Parallel()

	ca := filepath.Join(t.TempDir(), "ca.pem")
	cert, _ := certificate.New(t, "a.test")
	must(t, os.WriteFile(ca, []byte(cert), 0o600))
	text := fmt.Sprintf("traces: {endpoint: 'https://127.0.0.1:1', tls: {ca: %q}}\nlisteners: [{name: a, bind: '127.0.0.1:0', upstream: u}]\nupstreams: [{name: u, endpoints: ['127.0.0.1:1']}]\n", ca)
	r := start(t, text)
	before := r.Load(text)
	r.Reload(text + "limits: {per_second: 1}\n")
	must(t, os.WriteFile(ca, []byte("bad"), 0o600))
	must(t, r.Apply(t.Context(), before))
	r.Logs("their former contents stay in use")
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
	r.Logs("traces were exported", "sampled=20", "exported=20", "unconfirmed=0")
}

// TestLostSpans: the log says how many spans were lost, by reason, as it says of refused clients.
func TestLostSpans(t *testing.T) {
	t.Parallel()

	to, endpoint := collector.Start(t, "grpc", nil), sockets.Server(t, sockets.Echo)
	text := strings.Replace(tracedConfig(to, endpoint, ""), to.URL, "http://"+sockets.Refusing(t), 1)
	r := &rig{loadbalancer.Setting{Drain: 200 * time.Millisecond}.Start(t, text)}
	c := client(t, r.At("a"))
	echoes(t, c, "x")
	c.Close()
	_ = r.End()
	r.Logs("level=WARN", "spans were lost", `dropped="shutdown 1"`)
	r.Logs("traces were exported", "sampled=1", "exported=0", `dropped="shutdown 1"`)
}

// TestPipesOfCollectorTLS: a file of traces.tls that is a pipe without a writer is refused, and the server does not wait.
func TestPipesOfCollectorTLS(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	for _, c := range []config.TracesTLS{{CA: config.Path(pipe)}, {Cert: config.Path(pipe), Key: config.Path(pipe)}} {
		done := make(chan error, 1)
		go func() { _, err := server.CollectorTLS(&c); done <- err }()
		select {
		case err := <-done:
			if !errors.Is(err, file.ErrIrregular) {
				t.Errorf("%+v: %v", c, err)
			}
		case <-time.After(condition.Patience):
			t.Fatalf("it waits for the writer of %+v", c)
		}
	}
}
