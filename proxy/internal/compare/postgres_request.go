package compare

import (
	"encoding/binary"
	"hash/maphash"
)

// Codes of PostgreSQL's messages without a type.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// maxStartup is the longest message without a type: the server's own bound is 10,000 bytes behind the length.
const maxStartup = 10_004

// maxPrepared is how many prepared statements of a session have a name.
const maxPrepared = 256

const preparedBytes = 48 // of an entry of the map, at most

// postgresRequests reads messages of a client of PostgreSQL. A request ends with a query, a
// Sync or a FunctionCall, and its name is the first word of its first statement.
type postgresRequests struct {
	s        *Session
	started  bool // the startup message has come
	header   [8]byte
	n        int   // bytes of the header that are there
	rest     int64 // of the message
	part     int   // of the message: ends of strings that have passed
	lost     bool  // bytes of the message were not seen
	word     sqlWord
	hash     maphash.Hash // of a statement's name
	letter   byte         // the first byte of a Close
	batch    name         // of the request that ends with the next Sync
	named    bool         // batch is set
	prepared map[uint64]name
}

func newPostgresRequests(s *Session) *postgresRequests {
	p := &postgresRequests{s: s}
	p.hash.SetSeed(seed)
	return p
}

func (p *postgresRequests) parse(b []byte) {
	for len(b) > 0 && p.s.requests != nil && p.s.reason == Going {
		size := 5
		if !p.started {
			size = 8
		}
		if p.n < size {
			n := copy(p.header[p.n:size], b)
			p.n, b = p.n+n, b[n:]
			if p.n == size && !p.begin() {
				p.s.forget()
				return
			}
		} else {
			n := int(min(int64(len(b)), p.rest))
			p.body(b[:n])
			p.rest, b = p.rest-int64(n), b[n:]
		}
		if p.n == size && p.rest == 0 {
			p.end()
		}
	}
}

func (p *postgresRequests) skip(n int) bool {
	if int64(n) > p.rest {
		return false
	}
	p.lost = true
	if p.rest -= int64(n); p.rest == 0 {
		p.end()
	}
	return true
}

// begin begins a message by its header, and reports whether it is one.
func (p *postgresRequests) begin() bool {
	p.part, p.lost, p.letter, p.word = 0, false, 0, sqlWord{}
	p.hash.Reset()
	if p.started {
		p.rest = int64(binary.BigEndian.Uint32(p.header[1:])) - 4
		return p.rest >= 0 && isLetter(p.header[0])
	}
	if p.header[0] == 0x16 { // a ClientHello
		p.s.stop(Encrypted)
	}
	length := int64(binary.BigEndian.Uint32(p.header[:]))
	p.rest = length - 8
	return length >= 8 && length <= maxStartup
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// body reads bytes of a message: the strings in which a statement has its name, or its text.
func (p *postgresRequests) body(b []byte) {
	if !p.started {
		return
	}
	switch p.header[0] {
	case 'Q':
		p.word.add(b)
	case 'P': // the statement's name, and its text
		if p.part == 0 {
			b = p.statement(b)
		}
		if p.part == 1 {
			p.word.add(b)
		}
	case 'B': // the portal's name, and the statement's
		if p.part == 0 {
			b = p.string(b)
		}
		if p.part == 1 {
			p.statement(b)
		}
	case 'C': // S or P, and a name
		if p.letter == 0 && len(b) > 0 {
			p.letter, b = b[0], b[1:]
		}
		if p.part == 0 {
			p.statement(b)
		}
	}
}

// string skips a string, and returns the bytes after it.
func (p *postgresRequests) string(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			p.part++
			return b[i+1:]
		}
	}
	return nil
}

// statement reads the name of a statement, and returns the bytes after it.
func (p *postgresRequests) statement(b []byte) []byte {
	rest := p.string(b)
	_, _ = p.hash.Write(b[:len(b)-len(rest)])
	return rest
}

// end is the end of a message.
func (p *postgresRequests) end() {
	p.n = 0
	if !p.started {
		p.startup()
		return
	}
	switch p.header[0] {
	case 'Q':
		p.s.ask(request{name: p.word.name(p.s, p.lost)})
	case 'F':
		p.s.ask(request{name: p.s.report.name("FUNCTION")})
	case 'P':
		n := p.word.name(p.s, p.lost)
		p.in(n)
		if p.part > 0 {
			p.prepare(n)
		}
	case 'B':
		n, ok := p.prepared[p.hash.Sum64()]
		if !ok || p.part < 2 {
			n = unnamed
		}
		p.in(n)
	case 'C':
		if _, ok := p.prepared[p.hash.Sum64()]; ok && p.letter == 'S' && p.part > 0 {
			delete(p.prepared, p.hash.Sum64())
			p.s.purse.give(preparedBytes)
		}
	case 'S':
		if !p.named {
			p.batch = p.s.report.name("SYNC")
		}
		p.s.ask(request{name: p.batch})
		p.named = false
	}
}

// startup is the end of a message without a type.
func (p *postgresRequests) startup() {
	switch binary.BigEndian.Uint32(p.header[4:]) {
	case sslRequest:
		p.s.ask(request{name: p.s.report.name("SSLRequest"), kind: encryption})
	case gssRequest:
		p.s.ask(request{name: p.s.report.name("GSSENCRequest"), kind: encryption})
	case cancelRequest:
		p.s.forget() // it has no answer, and nothing follows
	default:
		p.started = true
		p.s.ask(request{name: p.s.report.name("startup"), kind: startup})
	}
}

// in says that the batch has a statement. A BEGIN that a driver puts before the first one of a
// transaction is not its name.
func (p *postgresRequests) in(n name) {
	if !p.named || p.s.report.text(p.batch) == "BEGIN" {
		p.batch, p.named = n, true
	}
}

// prepare remembers the name of a prepared statement.
func (p *postgresRequests) prepare(n name) {
	key := p.hash.Sum64()
	if _, ok := p.prepared[key]; !ok && (len(p.prepared) == maxPrepared || !p.s.purse.take(preparedBytes)) {
		return
	}
	if p.prepared == nil {
		p.prepared = make(map[uint64]name)
	}
	p.prepared[key] = n
}

// A sqlWord is the first word of a statement, after spaces, parentheses and comments.
type sqlWord struct {
	word
	done    bool
	before  byte // the byte before, where it may begin or end a comment
	line    bool // in a comment to the end of the line
	comment int  // comments that are open, in each other
}

func (w *sqlWord) add(b []byte) {
	for i, c := range b {
		switch {
		case w.done:
			return
		case w.line:
			w.line = c != '\n'
		case w.comment > 0 || w.before == '/' && c == '*':
			w.inComment(c)
		case w.n == 0 && w.before == '-' && c == '-':
			w.line, w.before = true, 0
		case w.n == 0 && !isLetter(c):
			w.before = c
			w.done = bytesOf(c, " \t\r\n\f\v(/-;") < 0
		case isLetter(c) || c == '_':
			w.word.add(b[i : i+1])
		default:
			w.done = true
		}
	}
}

// inComment reads a byte of comments, which lie in each other.
func (w *sqlWord) inComment(c byte) {
	switch {
	case w.before == '/' && c == '*':
		w.comment++
		c = 0
	case w.before == '*' && c == '/':
		w.comment--
		c = 0
	}
	w.before = c
}

func bytesOf(c byte, set string) int {
	for i := range len(set) {
		if set[i] == c {
			return i
		}
	}
	return -1
}

// name returns the name of the statement. That of a text that was not seen is not known.
func (w *sqlWord) name(s *Session, lost bool) name {
	switch text := w.text(); {
	case len(text) > 0 && (w.done || !lost):
		return s.command(text)
	case lost:
		return unnamed
	case w.n == 0 && !w.done:
		return s.report.name("EMPTY")
	}
	return other
}
