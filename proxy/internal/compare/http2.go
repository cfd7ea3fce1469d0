package compare

import (
	"bytes"
	"maps"
	"slices"
	"unsafe"
)

// preface is the first bytes of a client of HTTP/2.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// scratchBytes is the memory in which a field of a head is decoded at first.
const scratchBytes = 1 << 10

// A stream2 is a stream of HTTP/2: one answer.
type stream2 struct {
	flow
	sinks [2]sink
	name  name
	grpc  [2]grpcMessages
	ended [2]bool
}

const stream2Bytes = int(unsafe.Sizeof(stream2{})) + 64 // with its place in the map

// streams are the open streams of a session.
type streams struct {
	s       *Session
	grpc    bool
	open    map[uint32]*stream2
	highest uint32   // of the client's streams, as its requests have begun them
	closed  [2]idSet // the halves of the numbers of streams that have ended, of those that no request of the client has begun; even and odd ones
}

// get returns a stream, and begins it if it is new. It returns nil for one that has ended, and
// without memory.
func (t *streams) get(id uint32, n name) *stream2 {
	if m := t.open[id]; m != nil {
		return m
	}
	if id&1 == 1 && id <= t.highest && t.s.requests != nil || t.closed[id&1].has(id/2) { // without requests any may be new
		return nil
	}
	if !t.s.purse.take(stream2Bytes) {
		t.s.stop(Full)
		return nil
	}
	m := &stream2{name: n}
	m.init(t.s)
	for side := range m.sinks {
		m.sinks[side] = newSink(t.s, &m.flow, side)
	}
	if t.open == nil {
		t.open = make(map[uint32]*stream2)
	}
	t.open[id] = m
	return m
}

// close gives the memory of a stream back.
func (t *streams) close(id uint32, m *stream2) {
	m.finish(false)
	for i := range m.sinks {
		t.s.purse.give(cap(m.sinks[i].window.b))
	}
	t.s.purse.give(stream2Bytes)
	delete(t.open, id)
	if (id&1 == 0 || id > t.highest || t.s.requests == nil) && !t.closed[id&1].add(id/2, &t.s.purse) {
		t.s.stop(Full)
	}
}

// finish settles all streams.
func (t *streams) finish(complete bool) {
	for _, id := range slices.Sorted(maps.Keys(t.open)) {
		t.open[id].finish(complete)
	}
}

// newHTTP2 makes the parsers of a session of HTTP/2, or of gRPC.
func newHTTP2(grpc bool) framing {
	return func(s *Session) {
		s.streams = &streams{s: s, grpc: grpc}
		if s.purse.take(scratchBytes) {
			s.scratch = make([]byte, 0, scratchBytes)
		}
		q := &http2Requests{s: s, streams: s.streams}
		q.head = newHeadDecoder(s, q.field)
		s.requests = q
		for side := range s.answers {
			a := &http2Answers{s: s, streams: s.streams, side: side}
			a.head = newHeadDecoder(s, a.field)
			s.answers[side] = a
		}
	}
}

// http2Requests reads the frames of a client.
type http2Requests struct {
	s       *Session
	streams *streams
	preface int // bytes of it that have come
	frames
	head   headDecoder
	method word
	path   [2 * wordBytes]byte
	pathN  int // more than path has if it is too long
}

func (p *http2Requests) parse(b []byte) {
	n := min(len(b), len(preface)-p.preface)
	if string(b[:n]) != preface[p.preface:p.preface+n] {
		p.s.forget()
		return
	}
	p.preface += n
	if err := p.read(b[n:], p); err != nil {
		p.s.forget()
	}
}

func (p *http2Requests) skip(n int) bool { return p.frames.skip(n, p) }

func (p *http2Requests) begin(*frames) error {
	p.method.n, p.pathN = 0, 0
	return nil
}

func (p *http2Requests) fragment(b []byte) error { return p.head.write(b) }

func (p *http2Requests) field(name, value []byte) {
	switch string(name) {
	case ":method":
		p.method.add(value)
	case ":path":
		value, _, _ = bytes.Cut(value, []byte("?"))
		p.pathN = copy(p.path[:], value)
		if len(value) > len(p.path) {
			p.pathN = 0
		}
	}
}

func (p *http2Requests) data(*frames, []byte) error { return nil }

// end is the end of a frame: a request begins with its head, and a reset ends its stream.
func (p *http2Requests) end(f *frames) error {
	switch f.kind {
	case frameData:
	case frameReset:
		if m := p.streams.open[f.stream]; m != nil {
			p.streams.close(f.stream, m)
		}
	default:
		if err := p.head.end(); err != nil {
			return err
		}
		if p.method.n > 0 && p.streams.get(f.stream, p.requestName()) != nil && f.stream&1 == 1 {
			p.streams.highest = max(p.streams.highest, f.stream)
		}
	}
	return nil
}

func (p *http2Requests) requestName() name {
	path := p.path[:p.pathN]
	if !p.streams.grpc {
		return p.s.pathName(p.method.text(), path)
	}
	return p.s.methodName(path)
}

// http2Answers reads the frames of a server.
type http2Answers struct {
	s       *Session
	streams *streams
	side    int
	frames
	head headDecoder
	out  *sink // of the frame's stream; nil if that is not compared
}

func (p *http2Answers) parse(b []byte) error { return p.read(b, p) }

// eof leaves streams open that have no end.
func (p *http2Answers) eof() {}

// begin finds the stream of a frame, and begins its answer.
func (p *http2Answers) begin(f *frames) error {
	p.out = nil
	id, n := f.stream, unnamed
	if f.kind == framePush {
		id, n = f.promise, p.s.report.name("push")
	}
	m := p.streams.get(id, n)
	if m == nil || m.ended[p.side] || p.s.reason != Going {
		return nil
	}
	p.out = &m.sinks[p.side]
	if !p.out.open {
		p.out.begin(m.name)
	}
	if f.kind == frameReset {
		p.out.unit() // its code comes after the bytes before it
	}
	return nil
}

func (p *http2Answers) fragment(b []byte) error { return p.head.write(b) }

// field takes a field of a head.
func (p *http2Answers) field(name, value []byte) {
	if p.out == nil {
		return
	}
	p.out.put(name)
	p.out.put([]byte(": "))
	var buf [2 * wordBytes]byte
	key := append(append(buf[:0], p.s.plan.framing...), '.')
	if len(key)+len(name) > len(buf) || !p.s.plan.masks.field(append(key, name...), p.out.name) {
		p.out.put(value)
	} else {
		p.out.put(masked)
	}
	p.out.put([]byte("\r\n"))
	p.out.unit()
}

// data takes bytes of a stream.
func (p *http2Answers) data(f *frames, b []byte) error {
	switch {
	case p.out == nil:
	case f.kind == frameReset:
		p.out.mark(b)
	case p.streams.grpc:
		if m := p.streams.open[f.stream]; m != nil {
			m.grpc[p.side].put(p.out, b)
		}
	default:
		p.out.put(b)
	}
	return nil
}

// end is the end of a frame.
func (p *http2Answers) end(f *frames) error {
	if f.kind != frameData && f.kind != frameReset {
		if err := p.head.end(); err != nil {
			return err
		}
		if p.out != nil {
			p.out.mark([]byte("\r\n"))
		}
	}
	m := p.streams.open[f.stream]
	if p.out == nil || m == nil || f.kind == framePush || !f.endsStream() || p.s.reason != Going {
		return nil
	}
	m.ended[p.side] = true
	m.grpc[p.side].cut(p.out)
	p.out.end()
	if m.ended[1-p.side] {
		p.streams.close(f.stream, m)
	}
	return nil
}

// grpcMessages reads the messages of a stream of gRPC. Each is a unit, and its length is no part of
// the compared bytes.
type grpcMessages struct {
	header [5]byte
	n      int    // bytes of the header that are there
	rest   uint64 // of the message
}

func (g *grpcMessages) put(o *sink, b []byte) {
	for len(b) > 0 {
		if g.n < len(g.header) {
			n := copy(g.header[g.n:], b)
			if g.n, b = g.n+n, b[n:]; g.n < len(g.header) {
				return
			}
			o.mark(g.header[:1]) // whether it is compressed
			for _, c := range g.header[1:] {
				g.rest = g.rest<<8 | uint64(c)
			}
		}
		n := min(uint64(len(b)), g.rest)
		o.put(b[:n])
		b = b[n:]
		if g.rest -= n; g.rest == 0 {
			o.unit()
			g.n = 0
		}
	}
}

// cut is the end of the stream: the begin of a message is compared too.
func (g *grpcMessages) cut(o *sink) {
	if g.n < len(g.header) {
		o.mark(g.header[:g.n])
	}
}
