package traces

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/display"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// An outcome is the result of one attempt.
type outcome struct {
	settled  bool          // the spans are not sent again
	refused  int64         // spans that the collector has refused, if settled
	mayHave  bool          // the request was sent, and had no answer
	after    time.Duration // how long the collector wants us to wait before the next attempt
	err      error
	sent     atomic.Bool
	answered atomic.Bool
}

// outcomeKey is the key of an attempt's outcome in the attempt's context.
type outcomeKey struct{}

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// attempt sends spans once.
func (s *Settings) attempt(ctx context.Context, spans *tracepb.ScopeSpans) *outcome {
	out := new(outcome)
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, outcomeKey{}, out), s.Timeout)
	defer cancel()
	all := &collectorpb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{Resource: s.resource, ScopeSpans: []*tracepb.ScopeSpans{spans}, SchemaUrl: schema}},
	}
	if s.Protocol == GRPC {
		s.call(ctx, all, out)
	} else {
		s.post(ctx, all, out)
	}
	if out.mayHave = !out.settled && out.sent.Load() && !out.answered.Load(); out.mayHave || !out.settled && !out.answered.Load() {
		s.cut() // the peer may have vanished; servers of gRPC do not allow the pings that would show it
	}
	return out
}

// refuse notes that the collector has refused all spans for good.
func (out *outcome) refuse(err error) { out.settled, out.refused, out.err = true, 1<<62, err }

// accept notes an answer. After a partial success, the collector has refused some of the spans.
func (out *outcome) accept(answer *collectorpb.ExportTraceServiceResponse) {
	out.settled, out.refused = true, answer.GetPartialSuccess().GetRejectedSpans()
	if text := answer.GetPartialSuccess().GetErrorMessage(); text != "" {
		out.err = fmt.Errorf("the collector says: %s", shortened(display.Text(text)))
	}
}

// post makes the attempt over HTTP.
func (s *Settings) post(ctx context.Context, all *collectorpb.ExportTraceServiceRequest, out *outcome) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { out.sent.Store(true) }})
	r, err := s.request(ctx, all)
	if err != nil {
		out.err = err
		return
	}
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		out.err = err
		return
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		out.err = fmt.Errorf("answer of %s: %w", s.Endpoint.Host, err)
		return
	}
	out.answered.Store(true)
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		var all collectorpb.ExportTraceServiceResponse
		_ = proto.Unmarshal(data, &all) // an unreadable answer counts as a full success
		out.accept(&all)
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		seconds, _ := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
		out.after, out.err = time.Duration(seconds)*time.Second, fmt.Errorf("the collector answered %s", answer.Status)
	default:
		text := ""
		var told statuspb.Status // OTLP puts a Status into the body of an error
		if proto.Unmarshal(data, &told) == nil && told.Message != "" {
			text = ": " + shortened(display.Text(told.Message))
		}
		out.refuse(fmt.Errorf("the collector answered %s%s", answer.Status, text))
	}
}

// request returns the request over HTTP.
func (s *Settings) request(ctx context.Context, all *collectorpb.ExportTraceServiceRequest) (*http.Request, error) {
	body, err := proto.Marshal(all)
	if err != nil {
		return nil, err
	}
	headers := http.Header{"Content-Type": {"application/x-protobuf"}}
	if s.Gzip {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(body) // a bytes.Buffer returns no error
		_ = w.Close()
		body = zipped.Bytes()
		headers.Set("Content-Encoding", "gzip")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(headers, s.Headers)
	headers.Set("User-Agent", s.userAgent())
	r.Header, r.Host, r.GetBody = headers, s.Headers.Get("Host"), nil // without GetBody, net/http cannot send a request twice unnoticed
	return r, nil
}

// call makes the attempt over gRPC.
func (s *Settings) call(ctx context.Context, all *collectorpb.ExportTraceServiceRequest, out *outcome) {
	if s.conn == nil {
		if out.err = s.open(); out.err != nil {
			return
		}
	}
	for key, values := range s.Headers {
		for _, v := range values {
			if key != "Host" {
				ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(key), v)
			}
		}
	}
	answer, err := collectorpb.NewTraceServiceClient(s.conn).Export(ctx, all)
	if err == nil {
		out.accept(answer)
		return
	}
	told := status.Convert(err)
	out.err = errors.New(shortened(display.Text(told.Message())))
	if !out.answered.Load() {
		return
	}
	out.err = fmt.Errorf("the collector answered with gRPC status %d: %w", told.Code(), out.err)
	wait := false
	for _, detail := range told.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait, out.after = true, min(info.RetryDelay.AsDuration(), time.Hour)
		}
	}
	switch told.Code() { // OTLP/gRPC Response
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
	case codes.ResourceExhausted:
		if !wait {
			out.refuse(out.err)
		}
	default:
		out.refuse(out.err)
	}
}

// HandleRPC implements [stats.Handler]. It notes whether a request was sent, and whether the collector has
// answered.
func (s *Settings) HandleRPC(ctx context.Context, event stats.RPCStats) {
	out := ctx.Value(outcomeKey{}).(*outcome)
	switch event.(type) {
	case *stats.OutPayload:
		out.sent.Store(true)
	case *stats.InHeader, *stats.InTrailer:
		out.answered.Store(true)
	}
}

// TagRPC implements [stats.Handler].
func (s *Settings) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements [stats.Handler].
func (s *Settings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (s *Settings) HandleConn(context.Context, stats.ConnStats) {}

func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
