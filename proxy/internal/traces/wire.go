package traces

import (
	"math"

	"github.com/penstock/penstock/proxy/display"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of opentelemetry-proto v1 that are written, by message. Both transports carry the
// same ExportTraceServiceRequest (collector/trace/v1/trace_service.proto).
const (
	requestResourceSpans = 1

	resourceSpansResource, resourceSpansScopeSpans, resourceSpansSchema = 1, 2, 3

	resourceAttributes = 1

	scopeSpansScope, scopeSpansSpans, scopeSpansSchema = 1, 2, 3

	scopeName, scopeVersion = 1, 2

	spanTraceID, spanSpanID, spanTraceState, spanName, spanKind = 1, 2, 3, 5, 6
	spanStart, spanEnd, spanAttributes, spanEvents, spanStatus  = 7, 8, 9, 11, 15
	spanFlags                                                   = 16

	eventTime, eventName, eventAttributes = 1, 2, 3

	statusMessage, statusCode = 2, 3

	keyValueKey, keyValueValue = 1, 2

	valueString, valueBool, valueInt, valueDouble = 1, 2, 3, 4

	kindServer  = 2
	statusError = 2

	// flagsSampled are those of a sampled trace whose ID is random (W3C Trace Context, level 2),
	// with the statement that it has no parent elsewhere.
	flagsSampled = 0x01 | 0x02 | 0x100
)

// A message is a protobuf message that is being written.
type message struct{ b []byte }

func (m *message) bytes(field protowire.Number, v []byte) {
	m.b = protowire.AppendTag(m.b, field, protowire.BytesType)
	m.b = protowire.AppendBytes(m.b, v)
}

// string writes a text, unless it is empty, as valid UTF-8.
func (m *message) string(field protowire.Number, v string) {
	if v == "" {
		return
	}
	m.b = protowire.AppendTag(m.b, field, protowire.BytesType)
	m.b = protowire.AppendString(m.b, display.Text(v))
}

func (m *message) varint(field protowire.Number, v uint64) {
	m.b = protowire.AppendTag(m.b, field, protowire.VarintType)
	m.b = protowire.AppendVarint(m.b, v)
}

func (m *message) fixed64(field protowire.Number, v uint64) {
	m.b = protowire.AppendTag(m.b, field, protowire.Fixed64Type)
	m.b = protowire.AppendFixed64(m.b, v)
}

func (m *message) fixed32(field protowire.Number, v uint32) {
	m.b = protowire.AppendTag(m.b, field, protowire.Fixed32Type)
	m.b = protowire.AppendFixed32(m.b, v)
}

// lengthBytes is the size of the length of a message within a message. Its varint has zeros
// where a shorter one would do, which every reader accepts.
const lengthBytes = 4

// open begins a message within, and returns where it begins, for close.
func (m *message) open(field protowire.Number) int {
	m.b = protowire.AppendTag(m.b, field, protowire.BytesType)
	m.b = append(m.b, 0x80, 0x80, 0x80, 0x00)
	return len(m.b)
}

// close ends the message that begins there.
func (m *message) close(at int) {
	n := len(m.b) - at
	for i := range lengthBytes {
		b := byte(n>>(7*i)) & 0x7f
		if i < lengthBytes-1 {
			b |= 0x80
		}
		m.b[at-lengthBytes+i] = b
	}
}

// attributes writes attributes into a field of the message.
type attributes struct {
	*message
	field protowire.Number
}

func (a attributes) text(key, v string) {
	if v == "" {
		return
	}
	v = display.Text(v)
	a.begin(key, 1+protowire.SizeBytes(len(v)))
	a.string(valueString, v)
}

func (a attributes) integer(key string, v int64) {
	a.begin(key, 1+protowire.SizeVarint(uint64(v)))
	a.varint(valueInt, uint64(v))
}

func (a attributes) boolean(key string, v bool) {
	a.begin(key, 1+1)
	a.varint(valueBool, protowire.EncodeBool(v))
}

func (a attributes) number(key string, v float64) {
	a.begin(key, 1+8)
	a.fixed64(valueDouble, math.Float64bits(v))
}

// begin writes a key, and the head of its value, which takes so many bytes. Tags take one byte.
func (a attributes) begin(key string, value int) {
	a.b = protowire.AppendTag(a.b, a.field, protowire.BytesType)
	a.b = protowire.AppendVarint(a.b, uint64(1+protowire.SizeBytes(len(key))+1+protowire.SizeBytes(value)))
	a.string(keyValueKey, key)
	a.b = protowire.AppendTag(a.b, keyValueValue, protowire.BytesType)
	a.b = protowire.AppendVarint(a.b, uint64(value))
}
