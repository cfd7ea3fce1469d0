package compare

import "bytes"

// maxDepth is how deep aggregates of an answer may lie in each other.
const maxDepth = 32

// maxElements is the most elements of an aggregate.
const maxElements = 1 << 32

// A level is an aggregate that has not ended.
type level struct {
	left      int64 // elements that are missing
	attribute bool  // it is no element itself: one follows it
}

// respAnswers reads replies and pushes of RESP2 and RESP3. Lengths of strings are no part of the
// compared bytes, so that masked bytes may have any; numbers of elements are.
type respAnswers struct {
	s     *Session
	side  int
	sinks [2]sink // of replies, of pushes
	cur   *sink   // that of the message; nil until it is known
	line  number
	kind  byte  // of the element that is read; 0 between two
	text  bool  // within the string of the element
	rest  int64 // bytes of it, and of its line's end
	inner bool  // within a message

	levels  [maxDepth]level
	depth   int
	monitor bool   // everything is a push
	acks    uint16 // pushes that have confirmed the command that is next

	// The begin of a message until it is known where it goes: its structure, then its first
	// string.
	begin           [2 * wordBytes]byte
	marked, started int // ends of both in begin
}

func (p *respAnswers) parse(b []byte) error {
	for len(b) > 0 && p.s.reason == Going {
		var err error
		switch {
		case p.kind == 0:
			err = p.element(b[0])
		case p.text:
			b, err = p.body(b)
		case isSimple(p.kind):
			b = p.simple(b)
		default:
			n, done, e := p.line.add(b)
			if err = e; done {
				err = p.number()
			}
			b = b[n:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eof leaves an answer open that has no end.
func (p *respAnswers) eof() {}

// isSimple reports whether an element is a line.
func isSimple(kind byte) bool { return bytes.IndexByte([]byte("+-:_#,("), kind) >= 0 }

// element begins an element, and with the first one a message.
func (p *respAnswers) element(kind byte) error {
	if !isSimple(kind) && bytes.IndexByte([]byte("$!=*~%|>"), kind) < 0 || kind == '>' && p.inner {
		return unexpected("an element of an answer begins with %q", kind)
	}
	p.kind = kind
	if !p.inner {
		p.inner, p.cur, p.marked, p.started = true, nil, 0, 0
		if kind == '>' || kind == '*' && p.s.subscribed {
			return nil
		}
	} else if p.cur != nil || kind == '$' {
		return nil
	}
	p.decide()
	return nil
}

// confirmation is the first string of the pushes that confirm a subscription, or its end.
var confirmation = map[string]bool{
	"subscribe": true, "unsubscribe": true, "psubscribe": true, "punsubscribe": true, "ssubscribe": true, "sunsubscribe": true,
}

// decide finds out where a message goes, by its begin.
func (p *respAnswers) decide() {
	if p.cur != nil {
		return
	}
	word := p.begin[p.marked:p.started]
	confirms := confirmation[string(word)]
	if r, ok := p.s.peek(p.side); confirms && ok && r.kind == subscribe {
		if p.acks++; p.acks >= r.n {
			p.acks = 0
			p.s.next(p.side)
		}
	}
	if confirms || p.monitor || p.marked > 0 && p.begin[0] == '>' ||
		string(word) == "message" || string(word) == "pmessage" || string(word) == "smessage" {
		p.cur = &p.sinks[1]
		p.cur.f = p.s.pushes()
		p.cur.begin(p.s.report.name("push"))
	} else {
		p.cur = &p.sinks[0]
		p.reply()
	}
	p.cur.mark(p.begin[:p.marked])
	p.cur.put(word)
}

// reply begins the answer to the next command.
func (p *respAnswers) reply() {
	r := p.s.next(p.side)
	switch r.kind {
	case monitor:
		p.monitor = true
	case opaque:
		p.s.stop(Opaque)
		return
	case subscribe:
		p.acks = 0 // it has failed
	}
	p.cur.begin(r.name)
}

// mark is structure of the message.
func (p *respAnswers) mark(b []byte) {
	if p.cur != nil {
		p.cur.mark(b)
		return
	}
	p.marked += copy(p.begin[p.marked:], b)
	p.started = p.marked
}

// simple reads a line.
func (p *respAnswers) simple(b []byte) []byte {
	n := bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		p.cur.put(b)
		return nil
	}
	p.cur.put(b[:n])
	p.cur.unit()
	p.end()
	return b[n:]
}

// number is the end of a line with the length of a string, or a number of elements.
func (p *respAnswers) number() error {
	text := p.line
	line := text.b[:text.n]
	n, err := p.line.value()
	isString := p.kind == '$' || p.kind == '!' || p.kind == '='
	switch {
	case err != nil || n < -1:
		return unexpected("an element has no length: %v", err)
	case n == -1:
		p.decide()
		p.mark(line)
		p.end()
		return nil
	case isString:
		if n > wordBytes {
			p.decide()
		}
		p.mark(line[:1])
		p.text, p.rest = true, n+2
		return nil
	}
	p.mark(line)
	return p.aggregate(n)
}

// aggregate begins an aggregate of n elements.
func (p *respAnswers) aggregate(n int64) error {
	attribute := p.kind == '|'
	if p.kind == '%' || attribute {
		n *= 2
	}
	if p.depth == maxDepth || n > maxElements {
		return unexpected("an answer has more than %d levels, or %d elements", maxDepth, int64(maxElements))
	}
	p.levels[p.depth] = level{left: n, attribute: attribute}
	p.depth++
	p.kind = 0
	if n == 0 {
		p.decide()
		p.close()
	}
	return nil
}

// body reads bytes of a string, and its line's end.
func (p *respAnswers) body(b []byte) ([]byte, error) {
	if n := min(int64(len(b)), p.rest-2); n > 0 {
		if p.cur == nil {
			p.started += copy(p.begin[p.started:], b[:n])
		} else {
			p.cur.put(b[:n])
		}
		p.rest -= n
		return b[n:], nil
	}
	if b[0] != "\n\r"[p.rest-1] {
		return nil, unexpected("a string is longer than its length")
	}
	if p.rest--; p.rest == 0 {
		p.decide()
		p.cur.unit()
		p.cur.mark([]byte("\r\n"))
		p.text = false
		p.end()
	}
	return b[1:], nil
}

// end is the end of an element that is no aggregate.
func (p *respAnswers) end() {
	p.kind = 0
	if p.depth == 0 {
		p.message()
		return
	}
	p.levels[p.depth-1].left--
	p.close()
}

// close ends the aggregates that have all their elements, and with the outermost one the message.
func (p *respAnswers) close() {
	for p.depth > 0 && p.levels[p.depth-1].left == 0 {
		attribute := p.levels[p.depth-1].attribute
		p.depth--
		switch {
		case attribute:
			return
		case p.depth == 0:
			p.message()
			return
		}
		p.levels[p.depth-1].left--
	}
}

func (p *respAnswers) message() {
	p.inner = false
	p.cur.end()
}
