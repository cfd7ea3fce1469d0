package compare

import "bytes"

// http1Requests reads requests of HTTP/1.
type http1Requests struct {
	s      *Session
	line   text
	first  bool // the line that is read is the first of a head
	inBody bool
	body
	request
}

func newHTTP1Requests(s *Session) *http1Requests { return &http1Requests{s: s, first: true} }

func (p *http1Requests) parse(b []byte) {
	for len(b) > 0 && p.s.requests != nil && p.s.reason == Going && !p.s.tunnel {
		n, err := 0, error(nil)
		if p.inBody {
			var done bool
			_, n, done, err = p.body.read(p.s, b)
			p.inBody = !done
		} else {
			n, err = p.head(b)
		}
		if err != nil {
			p.s.forget()
			return
		}
		b = b[n:]
	}
}

// head reads bytes of a head.
func (p *http1Requests) head(b []byte) (n int, err error) {
	n, done, err := p.line.add(p.s, b)
	if !done || err != nil {
		return n, err
	}
	defer p.line.next(p.s)
	line := trim(p.line.b)
	if p.first {
		if len(line) == 0 {
			return n, nil // empty lines before a request are allowed
		}
		p.first = false
		p.body.begin()
		return n, p.start(line)
	}
	if len(line) > 0 {
		var buf [wordBytes]byte
		name, value, ok := field(buf[:0], line)
		if !ok {
			return n, unexpected("a line of a head has no name")
		}
		return n, p.body.header(name, value)
	}
	p.first = true
	p.inBody = p.body.start(noBody)
	p.s.ask(p.request)
	if p.kind == connect {
		p.s.forget() // a tunnel begins, or not
	}
	return n, nil
}

// start reads the first line of a request.
func (p *http1Requests) start(line []byte) error {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	target, version, found := bytes.Cut(rest, []byte(" "))
	if !ok || !found || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return unexpected("a request begins with %q", line)
	}
	p.request = request{name: p.s.pathName(method, target)}
	switch string(method) {
	case "HEAD":
		p.kind = head
	case "CONNECT":
		p.kind = connect
	}
	return nil
}

func (p *http1Requests) skip(n int) bool {
	switch {
	case p.s.tunnel:
		return true
	case !p.inBody || int64(n) > p.rest || p.mode == chunked && p.stage != chunkData:
		return false
	}
	p.rest -= int64(n)
	if p.rest == 0 && p.mode == chunked {
		p.stage = chunkEnd
	}
	p.inBody = p.rest > 0 || p.mode == chunked
	return true
}

// http1Answers reads responses of HTTP/1. Chunks are no part of the compared bytes.
type http1Answers struct {
	s      *Session
	side   int
	out    sink
	line   text
	first  bool
	inBody bool
	status int
	body
	request
}

func newHTTP1Answers(s *Session, side int) *http1Answers {
	return &http1Answers{s: s, side: side, out: newSink(s, &s.main, side), first: true}
}

func (p *http1Answers) parse(b []byte) error {
	for len(b) > 0 && p.s.reason == Going {
		if !p.out.open {
			p.request = p.s.next(p.side)
			p.out.begin(p.request.name)
		}
		if p.inBody {
			data, n, done, err := p.body.read(p.s, b)
			if err != nil {
				return err
			}
			p.out.put(data)
			if b = b[n:]; done {
				p.end()
			}
			continue
		}
		n, done, err := p.line.add(p.s, b)
		if err != nil {
			return err
		}
		if b = b[n:]; done {
			err = p.headLine(p.line.b)
			p.line.next(p.s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eof is the end of a body that has no other.
func (p *http1Answers) eof() {
	if p.out.open && p.inBody && p.mode == untilClose {
		p.end()
	}
}

func (p *http1Answers) end() {
	p.first, p.inBody = true, false
	p.out.end()
}

// headLine takes a line of the head.
func (p *http1Answers) headLine(line []byte) error {
	if p.first {
		p.first = false
		p.body.begin()
		return p.statusLine(line)
	}
	if len(trim(line)) == 0 {
		p.out.put(line)
		p.out.unit()
		return p.headEnd()
	}
	var buf [2 * wordBytes]byte
	prefix := append(buf[:0], "http1."...)
	name, value, ok := field(prefix, line)
	if !ok {
		return unexpected("a line of a head has no name")
	}
	p.out.line(line, name)
	return p.body.header(bytes.TrimPrefix(name, prefix), value)
}

// line puts a line of a head, without its value if the field is masked.
func (o *sink) line(line, field []byte) {
	if o.s.plan.masks.field(field, o.name) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		o.put(name)
		o.put([]byte(": *\r\n"))
	} else {
		o.put(line)
	}
	o.unit()
}

// statusLine reads the first line of a response.
func (p *http1Answers) statusLine(line []byte) error {
	version, rest, ok := bytes.Cut(trim(line), []byte(" "))
	code, err := decimal(rest[:min(3, len(rest))])
	if !ok || err != nil || !bytes.HasPrefix(version, []byte("HTTP/1.")) || code < 100 || len(rest) > 3 && rest[3] != ' ' {
		return unexpected("a response begins with %q", line[:min(len(line), wordBytes)])
	}
	p.status = int(code)
	p.out.put(line)
	p.out.unit()
	return nil
}

// headEnd begins the body, if there is one.
func (p *http1Answers) headEnd() error {
	tunnel := p.status == 101 || p.kind == connect && p.status/100 == 2
	switch {
	case tunnel:
		p.s.tunnel = p.s.tunnel || p.side == primary
		p.mode, p.inBody = untilClose, true
	case p.status/100 == 1:
		p.first = true // the response goes on with the next head
	case p.kind == head || p.status == 204 || p.status == 304:
		p.end()
	case p.request.name == unnamed && p.s.requests == nil && p.size != 0:
		p.s.stop(Unknown) // the request may have been a HEAD
	case p.body.start(untilClose):
		p.inBody = true
	default:
		p.end()
	}
	return nil
}
