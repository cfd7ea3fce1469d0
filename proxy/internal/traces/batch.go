package traces

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
)

// maxRequest is how many bytes a request has at most, before its last span: collectors take up to
// 4 MiB (the default of gRPC).
const maxRequest = 3 << 20

// scope is the name of the instrumentation.
const scope = "github.com/penstock/penstock/proxy"

// A batch is a request that is built once, and sent until it is settled.
type batch struct {
	message
	spans   int
	packed  bytes.Buffer // compressed
	framed  []byte       // with gRPC's prefix
	zip     *gzip.Writer
	mayHave bool // the collector may have it: a request was sent, and had no answer
}

// build fills the batch with spans from the beginning of a list, and returns the rest.
func (b *batch) build(s *Settings, list *span, e *Exporter) (rest *span) {
	b.b, b.spans, b.mayHave = b.b[:0], 0, false
	whole := b.open(requestResourceSpans)
	b.b = append(b.b, s.head...)
	spans := b.open(resourceSpansScopeSpans)
	at := b.open(scopeSpansScope)
	b.string(scopeName, scope)
	b.string(scopeVersion, s.Version)
	b.close(at)
	for list != nil && b.spans < s.Batch && len(b.b) < maxRequest {
		next := list.next
		state := ""
		if by := e.samplers[list.record.Sampler].Load(); by != nil {
			state = by.state
		}
		appendSpan(&b.message, list, state)
		e.give(list)
		list = next
		b.spans++
	}
	b.string(scopeSpansSchema, schema)
	b.close(spans)
	b.close(whole)
	return list
}

// body returns the request's bytes, which are valid until the next call.
func (b *batch) body(s *Settings) ([]byte, error) {
	data := b.b
	if s.Gzip {
		b.packed.Reset()
		if b.zip == nil {
			b.zip = gzip.NewWriter(&b.packed)
		} else {
			b.zip.Reset(&b.packed)
		}
		if _, err := b.zip.Write(data); err != nil {
			return nil, err
		}
		if err := b.zip.Close(); err != nil {
			return nil, err
		}
		data = b.packed.Bytes()
	}
	if s.Protocol != GRPC {
		return data, nil
	}
	flag := byte(0)
	if s.Gzip {
		flag = 1
	}
	b.framed = append(b.framed[:0], flag, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b.framed[1:], uint32(len(data)))
	b.framed = append(b.framed, data...)
	return b.framed, nil
}
