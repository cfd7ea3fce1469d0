package compare

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// headBytes is the largest head of a call, encoded and decoded.
	headBytes = 16 << 10
	// tableBytes is the most memory that package hpack uses for a table of 4 KiB (as HPACK counts).
	tableBytes = 28 << 10
	// pathBytes is the longest name of a method.
	pathBytes = 128
	// keptCalls is how many ended calls are remembered if requests are not read.
	keptCalls = 256
)

// A call is one stream of HTTP/2: the answers of both sides to one request.
type call struct {
	flow
	name  *tally
	sides [2]lengths // parsers of messages, which are parts of an answer
	ended [2]bool
}

const callBytes = int(unsafe.Sizeof(call{})) + 64 // with its place in the map

// calls are the open streams of a session.
type calls struct {
	s      *Session
	open   map[uint32]*call
	last   uint32   // the highest stream that a request has begun
	closed []uint32 // the streams that ended last, if requests are not read
}

func newCalls(s *Session) {
	s.calls = &calls{s: s, open: make(map[uint32]*call)}
	s.requests = newFrames(s, client)
	for side := range s.answers {
		s.answers[side] = newFrames(s, side)
	}
}

func (t *calls) add(stream uint32, name *tally) *call {
	if !t.s.purse.take(callBytes) {
		t.s.stop(Full)
		return nil
	}
	c := &call{flow: flow{s: t.s}, name: name}
	for side := range c.sides {
		c.sides[side] = lengths{Length: Length{Offset: 1, Width: 4}, out: sink{s: t.s, f: &c.flow, side: side}}
	}
	t.open[stream] = c
	return c
}

func (t *calls) close(stream uint32, c *call) {
	c.finish(false)
	for i := range c.sides {
		t.s.purse.give(cap(c.sides[i].out.window.b))
	}
	t.s.purse.give(callBytes)
	delete(t.open, stream)
	if t.s.requests == nil {
		t.closed = append(t.closed[max(0, len(t.closed)-keptCalls+1):], stream)
	}
}

func (t *calls) finish(complete bool) {
	for _, stream := range slices.Sorted(maps.Keys(t.open)) {
		t.open[stream].finish(complete)
	}
}

func (t *calls) request(stream uint32, fields []hpack.HeaderField) {
	i := slices.IndexFunc(fields, func(f hpack.HeaderField) bool { return f.Name == ":path" })
	if i >= 0 && stream > t.last {
		t.last = stream
		t.add(stream, t.s.methodName(fields[i].Value))
	}
}

// methodName returns the name that requests are counted under: the path, or /* if names are redacted and no mask
// names the path.
func (s *Session) methodName(path string) *tally {
	if s.plan.names[path] {
		return s.report.name(path, true)
	}
	for _, c := range path {
		if letter := c|0x20 >= 'a' && c|0x20 <= 'z'; len(path) > pathBytes || !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '/' {
			return s.report.other
		}
	}
	if s.plan.Redact {
		path = "/*"
	}
	return s.report.name(path, false)
}

// answer returns the call that a side's frame belongs to, and begins its answer. It returns nil if the call has
// ended, or is not compared.
func (t *calls) answer(stream uint32, side int) (*call, *sink) {
	c := t.open[stream]
	if c == nil && t.s.requests == nil && stream > t.last && !slices.Contains(t.closed, stream) {
		c = t.add(stream, t.s.report.unknown)
	}
	if c == nil || c.ended[side] {
		return nil, nil
	}
	o := &c.sides[side].out
	if !o.open {
		o.begin(c.name)
	}
	return c, o
}

func (t *calls) end(stream uint32, c *call, side int) {
	if t.s.reason != Going {
		return
	}
	c.ended[side] = true
	p := &c.sides[side]
	if p.n < p.Offset+p.Width {
		p.out.mark(p.header[:p.n]) // of a message that was cut off
	}
	p.out.end()
	if c.ended[1-side] {
		t.close(stream, c)
	}
}

// client is the side of the requests.
const client = 2

type frames struct {
	s       *Session
	side    int
	preface int               // bytes of the preface that have come; for a server, of its first frame
	header  http2.FrameHeader // of the last frame
	rest    int               // bytes of its data that are still to come
	padding int               // bytes to skip: padding, or the rest of a frame that is not compared
	buf     []byte            // the beginning of a frame, from earlier pieces
	decoder *hpack.Decoder
	fields  []hpack.HeaderField // fields of the head that is being decoded
	size    uint32              // size of these fields
}

func newFrames(s *Session, side int) *frames {
	p := &frames{s: s, side: side}
	p.decoder = hpack.NewDecoder(4<<10, func(f hpack.HeaderField) {
		if p.size += f.Size(); p.size <= headBytes {
			p.fields = append(p.fields, f)
		}
	})
	return p
}

// eof leaves calls without an end open.
func (p *frames) eof() {}

func (p *frames) head(stream uint32, fields []hpack.HeaderField, ends bool) {
	if p.side == client {
		p.s.calls.request(stream, fields)
		return
	}
	c, o := p.s.calls.answer(stream, p.side)
	if c == nil {
		return
	}
	for _, f := range fields {
		if p.s.plan.masks.field(f.Name, o.name) {
			f.Value = string(masked)
		}
		o.put([]byte(f.Name + ": " + f.Value + "\r\n"))
		o.unit()
	}
	o.mark([]byte("\r\n"))
	if ends {
		p.s.calls.end(stream, c, p.side)
	}
}

func (p *frames) data(b []byte) {
	if p.side == client {
		return
	}
	c, _ := p.s.calls.answer(p.header.StreamID, p.side)
	if c == nil {
		return
	}
	_ = c.sides[p.side].parse(b) // cannot fail: any four bytes are a length
	if p.rest == 0 && p.header.Flags.Has(http2.FlagDataEndStream) {
		p.s.calls.end(p.header.StreamID, c, p.side)
	}
}

// reset takes a reset. If the client resets, the answer stays unsettled. A server's error code is compared after the
// bytes of its answer.
func (p *frames) reset(stream uint32, code http2.ErrCode) {
	if p.side == client {
		if c := p.s.calls.open[stream]; c != nil {
			p.s.calls.close(stream, c)
		}
		return
	}
	if c, o := p.s.calls.answer(stream, p.side); c != nil {
		o.unit()
		o.mark([]byte(code.String()))
		p.s.calls.end(stream, c, p.side)
	}
}

type framer struct {
	*http2.Framer
	in bytes.Reader
}

var framers = sync.Pool{New: func() any {
	f := new(framer)
	f.Framer = http2.NewFramer(nil, &f.in)
	f.AllowIllegalReads = true // the frames come from several connections
	return f
}}

const frameHeaderBytes = 9

func (p *frames) parse(b []byte) error {
	if p.side == client && p.preface < len(http2.ClientPreface) {
		n := min(len(b), len(http2.ClientPreface)-p.preface)
		if string(b[:n]) != http2.ClientPreface[p.preface:p.preface+n] {
			return fmt.Errorf("the gRPC client does not begin with the HTTP/2 preface")
		}
		p.preface, b = p.preface+n, b[n:]
	}
	if before := len(p.buf); before > 0 {
		b = append(p.buf, b...)
		p.buf = nil
		p.s.purse.give(before)
	}
	f := framers.Get().(*framer)
	defer framers.Put(f)
	for len(b) > 0 && p.s.reason == Going {
		n, err := p.step(f, b)
		if err != nil {
			return err
		}
		if b = b[n:]; n == 0 { // the rest of the frame is still to come
			if !p.s.purse.take(len(b)) {
				p.s.stop(Full)
				return nil
			}
			p.buf = bytes.Clone(b)
			return nil
		}
	}
	return nil
}

// step takes bytes of one frame, and returns how many, or 0 if it needs more.
func (p *frames) step(f *framer, b []byte) (n int, err error) {
	if n := min(len(b), p.rest); n > 0 {
		p.rest -= n
		p.data(b[:n])
		return n, nil
	}
	if n := min(len(b), p.padding); n > 0 {
		p.padding -= n
		return n, nil
	}
	if len(b) < frameHeaderBytes {
		return 0, nil
	}
	f.in.Reset(b)
	if p.header, err = f.ReadFrameHeader(); err != nil {
		return 0, err
	}
	if p.preface == 0 && p.header.Type != http2.FrameSettings {
		return 0, fmt.Errorf("the gRPC server begins with %v", p.header.Type)
	}
	p.preface = max(p.preface, 1)
	switch p.header.Type {
	case http2.FrameData:
		return p.beginData(b)
	case http2.FrameHeaders, http2.FrameRSTStream:
		n = frameHeaderBytes + int(p.header.Length)
		if n > headBytes {
			p.s.stop(Full)
		}
		if n > len(b) {
			return 0, nil
		}
		frame, err := f.ReadFrameForHeader(p.header)
		if err != nil {
			return 0, err
		}
		return n, p.take(frame)
	case http2.FrameContinuation: // part of a long head
		p.s.stop(Full)
	case http2.FramePushPromise:
		return 0, fmt.Errorf("the gRPC server sent a push promise")
	}
	p.padding = int(p.header.Length)
	return frameHeaderBytes, nil
}

func (p *frames) beginData(b []byte) (n int, err error) {
	n = frameHeaderBytes
	if p.header.Flags.Has(http2.FlagDataPadded) {
		if n++; len(b) < n {
			return 0, nil
		}
		p.padding = int(b[frameHeaderBytes])
	}
	p.rest = int(p.header.Length) - (n - frameHeaderBytes) - p.padding
	if p.rest < 0 || p.header.StreamID == 0 {
		return 0, fmt.Errorf("data of %d bytes with %d bytes of padding for stream %d", p.header.Length, p.padding, p.header.StreamID)
	}
	if p.rest == 0 {
		p.data(nil)
	}
	return n, nil
}

func (p *frames) take(frame http2.Frame) error {
	switch frame := frame.(type) {
	case *http2.RSTStreamFrame:
		p.reset(frame.StreamID, frame.ErrCode)
	case *http2.HeadersFrame:
		p.fields, p.size = nil, 0
		if _, err := p.decoder.Write(frame.HeaderBlockFragment()); err != nil {
			return err
		}
		if p.size > headBytes || !frame.HeadersEnded() {
			p.s.stop(Full)
			return nil
		}
		if err := p.decoder.Close(); err != nil {
			return err
		}
		p.head(frame.StreamID, p.fields, frame.StreamEnded())
		p.fields = nil
	}
	return nil
}

// skip skips n bytes of the present frame's data or padding. It returns false if there are fewer.
func (p *frames) skip(n int) bool {
	if len(p.buf) > 0 || n > p.rest+p.padding {
		return false
	}
	d := min(n, p.rest)
	p.rest, p.padding = p.rest-d, p.padding-(n-d)
	return true
}
