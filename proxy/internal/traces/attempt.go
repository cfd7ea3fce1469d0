package traces

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"google.golang.org/protobuf/encoding/protowire"
)

// An outcome is the result of one attempt.
type outcome struct {
	settled bool          // there is no further attempt
	refused int64         // spans that the collector has refused, of a settled one
	mayHave bool          // it was sent, and there was no answer
	after   time.Duration // the collector's wish for the time until the next attempt
	err     error
}

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 64 << 10

// attempt sends the batch once.
func (s *sender) attempt(settings *Settings) (out outcome) {
	ctx, cancel := context.WithTimeout(s.stop, settings.Timeout)
	defer cancel()
	sent := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	body, err := s.batch.body(settings)
	if err != nil {
		return s.refusedAll(err)
	}
	r, err := settings.request(ctx, body)
	if err != nil {
		return s.refusedAll(err)
	}
	if settings.Protocol == GRPC {
		settings.headGRPC(r)
	} else {
		settings.headHTTP(r)
	}
	answer, err := settings.client.Do(r)
	if err != nil {
		settings.cut() // of a peer that has vanished; gRPC's servers do not allow pings that would show it
		return outcome{mayHave: sent, err: plain(err)}
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return outcome{mayHave: true, err: fmt.Errorf("answer of %s: %w", settings.Endpoint.Host, err)}
	}
	if settings.Protocol == GRPC {
		return s.answerGRPC(answer, data)
	}
	return s.answerHTTP(answer, data)
}

// plain is an error of a client without the method and the URL, which may have a password.
func plain(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (s *sender) refusedAll(err error) outcome {
	return outcome{settled: true, refused: int64(s.batch.spans), err: err}
}

func (s *Settings) headHTTP(r *http.Request) {
	r.Header.Set("Content-Type", "application/x-protobuf")
	if s.Gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
}

func (s *Settings) headGRPC(r *http.Request) {
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	r.Header.Set("Grpc-Timeout", strconv.FormatInt(s.Timeout.Milliseconds(), 10)+"m")
	if s.Gzip {
		r.Header.Set("Grpc-Encoding", "gzip")
	}
}

// answerHTTP reads an answer (OTLP/HTTP Response).
func (s *sender) answerHTTP(answer *http.Response, data []byte) outcome {
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		return accepted(data)
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		seconds, _ := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31)
		return outcome{after: time.Duration(seconds) * time.Second, err: fmt.Errorf("the collector has answered %s", answer.Status)}
	default:
		return s.refusedAll(fmt.Errorf("the collector has answered %s%s", answer.Status, statusText(data)))
	}
}

// statusText returns the message of a google.rpc.Status, as OTLP has it in the body of an error.
func statusText(data []byte) string {
	if text := display.Text(string(textOf(data, 2))); text != "" {
		return ": " + shortened(text)
	}
	return ""
}

// accepted reads an ExportTraceServiceResponse: a partial success has spans that are refused.
func accepted(data []byte) (out outcome) {
	out.settled = true
	partial := textOf(data, 1)
	for len(partial) > 0 {
		field, kind, n := protowire.ConsumeTag(partial)
		if n < 0 {
			return out
		}
		size := protowire.ConsumeFieldValue(field, kind, partial[n:])
		if size < 0 {
			return out
		}
		switch value := partial[n : n+size]; {
		case field == 1 && kind == protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			out.refused = int64(v)
		case field == 2 && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			out.err = fmt.Errorf("the collector says: %s", shortened(display.Text(string(text))))
		}
		partial = partial[n+size:]
	}
	return out
}

// textOf returns a field of a message; nil: it has none.
func textOf(data []byte, of protowire.Number) (text []byte) {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(field, kind, data[n:])
		if size < 0 {
			return nil
		}
		if field == of && kind == protowire.BytesType {
			text, _ = protowire.ConsumeBytes(data[n:])
		}
		data = data[n+size:]
	}
	return text
}

// The codes of gRPC after which OTLP tries again (OTLP/gRPC Response), resourceExhausted only
// if the collector says when.
const (
	resourceExhausted = 8
	retryCodes        = 1<<1 | 1<<4 | 1<<10 | 1<<11 | 1<<14 | 1<<15 // canceled, deadline exceeded, aborted, out of range, unavailable, data loss
)

// answerGRPC reads an answer (grpc/doc/PROTOCOL-HTTP2.md): its status is in the trailers, or in
// the head if there is nothing else.
func (s *sender) answerGRPC(answer *http.Response, data []byte) outcome {
	status := answer.Trailer
	if answer.Header.Get("Grpc-Status") != "" {
		status = answer.Header
	}
	text := status.Get("Grpc-Status")
	code, err := strconv.ParseUint(text, 10, 6)
	switch {
	case text == "" && answer.StatusCode != http.StatusOK:
		return s.answerHTTP(answer, nil) // of something before the collector
	case err != nil:
		return outcome{mayHave: true, err: fmt.Errorf("the collector has answered without a status of gRPC")}
	case code == 0:
		return accepted(unframed(data))
	}
	message, _ := url.PathUnescape(status.Get("Grpc-Message"))
	failed := fmt.Errorf("the collector has answered with the status %d of gRPC: %s", code, shortened(display.Text(message)))
	after, told := retryDelay(status.Get("Grpc-Status-Details-Bin"))
	if retryCodes>>code&1 == 1 || code == resourceExhausted && told {
		return outcome{after: after, err: failed}
	}
	return s.refusedAll(failed)
}

// unframed returns the message of an answer; nil: there is none that can be read.
func unframed(data []byte) []byte {
	if len(data) < 5 || data[0] != 0 {
		return nil
	}
	return data[5:]
}

// retryDelay finds a google.rpc.RetryInfo in the details of a google.rpc.Status.
func retryDelay(details string) (after time.Duration, told bool) {
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(details, "="))
	if err != nil {
		return 0, false
	}
	detail := textOf(data, 3) // an Any; collectors send one
	if !strings.HasSuffix(string(textOf(detail, 1)), "/google.rpc.RetryInfo") {
		return 0, false
	}
	delay := textOf(textOf(detail, 2), 1) // a Duration
	for len(delay) > 0 {
		field, kind, n := protowire.ConsumeTag(delay)
		if n < 0 || kind != protowire.VarintType {
			break
		}
		v, size := protowire.ConsumeVarint(delay[n:])
		if size < 0 {
			break
		}
		switch field {
		case 1:
			after += time.Duration(min(v, 3600)) * time.Second
		case 2:
			after += time.Duration(min(v, 1e9))
		}
		delay = delay[n+size:]
	}
	return after, true
}

// shortened bounds a text of a collector.
func shortened(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
