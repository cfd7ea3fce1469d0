package traces

import (
	"net/netip"
	"slices"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/relay"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// maxCause is the longest text of an error, in bytes.
const maxCause = 256

// SpanID returns the ID of a session's span: the first half of the trace's ID.
func SpanID(id record.ID) (span [8]byte) {
	copy(span[:], id[:8])
	if span == [8]byte{} {
		span[7] = 1
	}
	return span
}

// thisProcess is the same for all spans of this process, and different in every other process.
var thisProcess = record.NewIDs().Of(1)

// adoptedSpan returns the ID of an adopted session's span. It differs from SpanID, because the
// earlier process may have sent a span of its own.
func adoptedSpan(id record.ID) (span [8]byte) {
	for i := range span {
		span[i] = id[8+i] ^ thisProcess[i]
	}
	return span
}

// flagsSampled are the flags of a sampled trace with a random ID (W3C Trace Context, level 2). They also say that
// the span has no remote parent.
const (
	flagsSampled     = 0x01 | 0x02 | 0x100
	flagRemoteParent = 0x200 // the parent is remote: the span of an adopted session
)

func (s *span) span(state string) *tracepb.Span {
	r := &s.record
	id := SpanID(r.ID)
	out := &tracepb.Span{
		TraceId: slices.Clone(r.ID[:]), SpanId: id[:], TraceState: state, Flags: flagsSampled,
		Name: display.Text("session " + r.Listener), Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: s.unix(r.Accepted), EndTimeUnixNano: s.unix(max(r.Ended, r.Accepted)), Events: s.events(),
	}
	if r.Adopted {
		before := id
		id, out.ParentSpanId = adoptedSpan(r.ID), before[:]
		out.Flags |= flagRemoteParent
	}
	s.attributes((*attributes)(&out.Attributes))
	if isError, text := s.failed(); isError {
		out.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: display.Text(text)}
	}
	return out
}

// attributes belong to a span, an event or a resource.
type attributes []*commonpb.KeyValue

// text adds a text, unless it is empty, as valid UTF-8.
func (a *attributes) text(key, v string) {
	if v != "" {
		a.add(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: display.Text(v)}})
	}
}

func (a *attributes) integer(key string, v int64) {
	a.add(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}})
}

func (a *attributes) boolean(key string, v bool) {
	a.add(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}})
}

func (a *attributes) number(key string, v float64) {
	a.add(key, &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}})
}

func (a *attributes) add(key string, v *commonpb.AnyValue) {
	*a = append(*a, &commonpb.KeyValue{Key: key, Value: v})
}

// unix converts a time of the record's clock to a Unix time in nanoseconds.
func (s *span) unix(clock int64) uint64 { return uint64(max(s.wall+clock, 0)) }

// attributes adds the attributes of the span. OpenTelemetry's semantic conventions give their names if they
// have one. All other names are penstock.*.
func (s *span) attributes(a *attributes) {
	r := &s.record
	s.addresses(a)
	if r.ServerName != "" {
		a.text("tls.client.server_name", r.ServerName)
	}
	a.text("penstock.tls.protocols", r.Protocols)
	a.text("penstock.user", r.User)
	a.text("db.namespace", r.Database)
	if r.TLS {
		a.boolean("tls.established", r.Joined != 0)
	}
	a.text("penstock.listener", r.Listener)
	a.text("penstock.upstream", r.Upstream)
	a.text("penstock.endpoint", r.Endpoint)
	a.text("penstock.endpoint.address", r.EndpointName())
	if r.Adopted {
		a.boolean("penstock.adopted", true)
	}
	a.text("penstock.outcome", r.Outcome.String())
	a.text("penstock.reason", s.reason())
	if r.Retries > 0 {
		a.integer("penstock.retries", int64(r.Retries))
	}
	if r.NumFailures > 0 {
		a.integer("penstock.failed_attempts", int64(r.NumFailures))
	}
	if r.Redispatched {
		a.boolean("penstock.redispatched", true)
	}
	if r.Loop >= 0 {
		a.integer("penstock.loop", int64(r.Loop))
	}
	s.result(a)
	leg(a, "penstock.client", &r.ClientLeg)
	leg(a, "penstock.endpoint", &r.EndpointLeg)
	a.text("penstock.verdict", r.Verdict)
	if isError, _ := s.failed(); isError {
		a.text("error.type", s.errorType())
	}
}

// addresses adds the addresses of the client, of its destination, and of the connection's peer. With a PROXY
// header, the peer is not the client.
func (s *span) addresses(a *attributes) {
	r := &s.record
	from, to := r.From(), r.Local
	if r.Destination.IsValid() {
		to = r.Destination
	}
	address(a, "client", from.AddrPort())
	if peer, unix := r.Client.Credentials(); unix {
		a.text("network.transport", "unix")
		a.integer("penstock.client.uid", int64(peer.UID))
		a.integer("penstock.client.gid", int64(peer.GID))
		a.integer("penstock.client.pid", int64(peer.PID))
	} else {
		a.text("network.transport", "tcp")
	}
	peer := r.Client.AddrPort()
	switch {
	case peer.Addr().Is4():
		a.text("network.type", "ipv4")
	case peer.Addr().Is6():
		a.text("network.type", "ipv6")
	}
	address(a, "network.peer", peer)
	address(a, "network.local", r.Local)
	address(a, "server", to)
}

func address(a *attributes, of string, at netip.AddrPort) {
	if !at.IsValid() {
		return
	}
	a.text(of+".address", at.Addr().Unmap().String())
	a.integer(of+".port", int64(at.Port()))
}

// result adds the bytes by direction, and the engines.
func (s *span) result(a *attributes) {
	r := &s.record
	if r.Outcome != record.Joined && r.Outcome != record.Responded {
		return
	}
	in, out := &r.Result.AToB, &r.Result.BToA
	a.integer("penstock.client_to_endpoint.bytes", in.Bytes())
	a.integer("penstock.endpoint_to_client.bytes", out.Bytes())
	if r.Outcome != record.Joined {
		return
	}
	a.text("penstock.client_to_endpoint.engine", engine(in))
	a.text("penstock.endpoint_to_client.engine", engine(out))
	if lost := in.Lost + out.Lost; lost > 0 {
		a.integer("penstock.lost.bytes", lost)
	}
	switch r.Result.Culprit {
	case relay.SideA:
		a.text("penstock.culprit", "client")
	case relay.SideB:
		a.text("penstock.culprit", "endpoint")
	}
}

// engine names the engines that moved the bytes of a direction; empty: there were no bytes.
func engine(f *relay.Flow) string {
	switch {
	case f.Carried > 0:
		return "lane"
	case f.Spliced > 0 && f.Copied > 0:
		return "copy,splice"
	case f.Spliced > 0:
		return "splice"
	case f.Copied > 0:
		return "copy"
	}
	return ""
}

// leg adds the kernel's figures of a connection, if they are known.
func leg(a *attributes, of string, l *record.Leg) {
	if !l.Known {
		return
	}
	if l.RTT > 0 {
		a.number(of+".rtt", l.RTT.Seconds())
	}
	if l.MinRTT > 0 {
		a.number(of+".min_rtt", l.MinRTT.Seconds())
	}
	a.integer(of+".retransmitted_segments", int64(l.Retransmitted))
}

// reason returns why the session has ended, or why the client was refused.
func (s *span) reason() string {
	switch r := &s.record; r.Outcome {
	case record.Joined:
		return r.Reason()
	case record.Refused:
		return r.Why
	}
	return ""
}

// failed reports whether the status of the span is an error, and returns the error's message.
func (s *span) failed() (isError bool, message string) {
	switch r := &s.record; {
	case r.Outcome == record.Joined && r.Result.Reason == relay.ReasonEOF, r.Outcome == record.CancelSent:
		return false, ""
	case s.cause != "":
		return true, s.cause
	case r.Outcome == record.Left:
		return true, "the client has left"
	case r.Outcome == record.Responded:
		return true, "the fallback's response was sent instead of an endpoint's"
	case r.Outcome == record.CancelUnsent:
		return true, "a CancelRequest that no endpoint got"
	}
	return true, s.reason()
}

func (s *span) errorType() string {
	if reason := s.reason(); reason != "" {
		return reason
	}
	return s.record.Outcome.String()
}

// instance makes the ID of a process from random bytes: a UUID of version 4.
func instance(random record.ID) string {
	random[6], random[8] = random[6]&0x0f|0x40, random[8]&0x3f|0x80
	hex := random.String()
	return hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:]
}
