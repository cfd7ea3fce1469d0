package traces_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/relay"
)

// exported returns the span of a session as a collector has it.
func exported(t *testing.T, change func(*record.Record)) (*trace.Span, *collector.Collector) {
	t.Helper()
	to := collector.Start(t, traces.GRPC, nil)
	r := export(t, to, traces.GRPC, func(s *traces.Settings) {
		s.Ratio, s.Resource = 0.75, []traces.Attribute{{Key: "service.name", Value: "edge"}, {Key: "deployment.environment.name", Value: "prod"}}
	})
	var one record.Record
	for one.Sampler == 0 {
		r.next++
		id := r.ids.Of(r.next)
		fill(&one, id)
		one.Sampler = r.Sample(id)
	}
	if change != nil {
		change(&one)
	}
	r.Add(&one)
	r.settled()
	got := to.Spans()[0]
	if is := string(got.SpanId) == string(one.ID[:8]) && len(got.ParentSpanId) == 0; string(got.TraceId) != string(one.ID[:]) || is == one.Adopted {
		t.Errorf("IDs %x, %x", got.TraceId, got.SpanId)
	}
	return got, to
}

// values are attributes as text.
func values(list []*common.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			m[a.Key] = fmt.Sprint(v.BoolValue)
		case *common.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return m
}

// course is the events of a span: name, milliseconds since its beginning, attributes.
func course(s *trace.Span) (list []string) {
	for _, e := range s.Events {
		text := fmt.Sprintf("%s %d", e.Name, (e.TimeUnixNano-s.StartTimeUnixNano)/uint64(time.Millisecond))
		m := values(e.Attributes)
		for _, key := range []string{"penstock.endpoint", "penstock.side", "error.type", "penstock.queue.before", "penstock.duration"} {
			if v, ok := m[key]; ok {
				text += " " + v
			}
		}
		list = append(list, text)
	}
	return list
}

// TestSpan: all of an ordinary session.
func TestSpan(t *testing.T) {
	before := time.Now()
	s, to := exported(t, nil)
	if s.Name != "session web" || s.Kind != trace.Span_SPAN_KIND_SERVER || s.Flags != 0x103 || s.TraceState != "ot=th:4" || s.Status != nil {
		t.Errorf("%q, %v, flags %#x, state %q, status %v", s.Name, s.Kind, s.Flags, s.TraceState, s.Status)
	}
	start, end := time.Unix(0, int64(s.StartTimeUnixNano)), time.Unix(0, int64(s.EndTimeUnixNano))
	if end.Sub(start) != 10*time.Millisecond || start.Before(before.Add(-time.Minute)) || start.After(time.Now().Add(time.Minute)) {
		t.Errorf("from %v to %v", start, end)
	}
	want := map[string]string{
		"client.address": "192.0.2.1", "client.port": "5555", "server.address": "192.0.2.2", "server.port": "443",
		"network.peer.address": "192.0.2.1", "network.peer.port": "5555", "network.local.address": "192.0.2.2", "network.local.port": "443",
		"network.transport": "tcp", "network.type": "ipv4", "tls.client.server_name": "shop.example", "penstock.tls.protocols": "h2,http/1.1",
		"penstock.listener": "web", "penstock.upstream": "app", "penstock.endpoint": "b", "penstock.endpoint.address": "192.0.2.3:8443",
		"penstock.outcome": "joined", "penstock.reason": "eof", "penstock.loop": "1",
		"penstock.client_to_endpoint.bytes": "100", "penstock.endpoint_to_client.bytes": "1048576",
		"penstock.client_to_endpoint.engine": "copy", "penstock.endpoint_to_client.engine": "splice",
	}
	if d := cmp.Diff(want, values(s.Attributes)); d != "" {
		t.Error(d)
	}
	wantCourse := []string{
		"begin 1 0.001", "preread 2 0.001", "route 3", "pick 4 b", "connect 5 b", "joined 6 b 0.001",
		"first_byte 7 client 0.007", "first_byte 8 endpoint 0.001", "half_close 9 client", "end 10 0.004",
	}
	if d := cmp.Diff(wantCourse, course(s)); d != "" {
		t.Error(d)
	}
	host, _ := os.Hostname()
	got := values(to.Resources()[0].Attributes)
	if id := got["service.instance.id"]; len(id) != 36 || strings.Count(id, "-") != 4 {
		t.Errorf("service.instance.id %q", id)
	}
	delete(got, "service.instance.id")
	wantResource := map[string]string{
		"service.name": "edge", "deployment.environment.name": "prod", "service.version": "v1.2.3", "host.name": host,
		"process.pid": fmt.Sprint(os.Getpid()), "process.executable.name": "traces.test",
	}
	if d := cmp.Diff(wantResource, got); d != "" {
		t.Error(d)
	}
}

// TestSpanOfRetries: a client with a PROXY header that has waited, at the third endpoint.
func TestSpanOfRetries(t *testing.T) {
	s, _ := exported(t, func(r *record.Record) {
		const ms = int64(time.Millisecond)
		r.Source, r.Destination, r.Header = netip.MustParseAddrPort("[2001:db8::7]:99"), netip.MustParseAddrPort("[2001:db8::8]:443"), 2*ms
		r.Failures[0] = record.Failure{Endpoint: "x", Began: 4 * ms, Ended: 5 * ms, Cause: record.CauseRefused}
		r.Failures[1] = record.Failure{Endpoint: "y", Began: 5 * ms, Ended: 7 * ms, Cause: record.CauseTimeout}
		r.NumFailures, r.Retries, r.Redispatched = 2, 2, true
		r.Picked, r.Connecting, r.Joined, r.ClientFirst, r.EndpointFirst = 8*ms, 8*ms, 9*ms, 9*ms, 10*ms
		r.Queued, r.Waits, r.Before = 500*time.Microsecond, 1, 3
		r.ClientLeg = record.Leg{Known: true, RTT: 2 * time.Millisecond, MinRTT: time.Millisecond, Retransmitted: 4}
		r.Verdict, r.Result.Reason, r.Result.Culprit, r.Err = "endpoint", relay.ReasonReset, relay.SideB, errors.New("connection reset")
	})
	got := values(s.Attributes)
	for key, want := range map[string]string{
		"client.address": "2001:db8::7", "server.address": "2001:db8::8", "network.peer.address": "192.0.2.1", "network.local.port": "443",
		"penstock.retries": "2", "penstock.failed_attempts": "2", "penstock.redispatched": "true", "penstock.verdict": "endpoint",
		"penstock.client.rtt": "0.002", "penstock.client.retransmitted_segments": "4", "error.type": "reset", "penstock.culprit": "endpoint",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if _, known := got["penstock.endpoint.rtt"]; known {
		t.Error("an RTT that is not known")
	}
	if s.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || s.Status.Message != "connection reset" {
		t.Errorf("status %v", s.Status)
	}
	all := course(s)
	for _, want := range []string{"proxy_header 1", "queue 7 3 0.0005", "connect 3 x", "connect_failed 4 x refused 0.001", "connect 4 y", "connect_failed 6 y timeout 0.002", "pick 7 b", "joined 8 b 0.001"} {
		if !slices.Contains(all, want) {
			t.Errorf("no event %q in %q", want, all)
		}
	}
}

// TestSpanOfAdopted: the span of a session that was adopted is of the trace of before, and another one than that of the process before.
func TestSpanOfAdopted(t *testing.T) {
	before, _ := exported(t, func(*record.Record) {})
	s, _ := exported(t, func(r *record.Record) {
		r.Adopted = true
		copy(r.ID[:], before.TraceId)
	})
	if !bytes.Equal(s.TraceId, before.TraceId) || !bytes.Equal(s.ParentSpanId, before.SpanId) || bytes.Equal(s.SpanId, before.SpanId) || len(before.ParentSpanId) != 0 || values(s.Attributes)["penstock.adopted"] != "true" {
		t.Errorf("%v, before that %v", s, before)
	}
}

// TestSpanOfRefused: a client that was refused has a span with an error.
func TestSpanOfRefused(t *testing.T) {
	s, _ := exported(t, func(r *record.Record) {
		id, by := r.ID, r.Sampler
		r.Begin(id, "web", 0, 100)
		r.Sampler, r.Client, r.Outcome, r.Why, r.Err, r.Ended = by, source.Unix(source.Credentials{UID: 7, GID: 8, PID: 9}), record.Refused, "address", errors.New("denied\nby \x1b a rule"), 300
	})
	if s.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || s.Status.Message != `denied\nby \x1b a rule` {
		t.Errorf("status %v", s.Status)
	}
	want := map[string]string{
		"network.transport": "unix", "penstock.client.uid": "7", "penstock.client.gid": "8", "penstock.client.pid": "9",
		"penstock.listener": "web", "penstock.outcome": "refused", "penstock.reason": "address", "penstock.loop": "0", "error.type": "address",
	}
	if d := cmp.Diff(want, values(s.Attributes)); d != "" {
		t.Error(d)
	}
	if got := course(s); !slices.Equal(got, []string{"end 0"}) {
		t.Errorf("%q", got)
	}
}

// TestNamesFromTheNetwork: whatever a client says, the collector can read the span.
func TestNamesFromTheNetwork(t *testing.T) {
	for name, want := range map[string]struct{ server, protocol string }{
		"\xff\xfe": {`\xff\xfe`, "%FF%FE"}, "a\x00b": {`a\x00b`, "a%00b"}, strings.Repeat("ü", 200): {strings.Repeat("ü", 200), "%C3%BC"}, "\x1b[2J": {`\x1b[2J`, "%1B[2J"}, "münchen.example": {"münchen.example", "m%C3%BCn"},
	} {
		s, _ := exported(t, func(r *record.Record) { r.Hello(name, []string{name, name}) })
		got := values(s.Attributes)
		for key, want := range map[string]string{"tls.client.server_name": want.server, "penstock.tls.protocols": want.protocol} {
			if v := got[key]; !utf8.ValidString(v) || !strings.HasPrefix(v, want[:min(len(want), 8)]) || strings.Contains(v, `\xc3`) {
				t.Errorf("%s of %q is %q", key, name, v)
			}
		}
	}
}
