package compare

import (
	"encoding/binary"
	"strings"
)

// firstUserOID is the first object identifier that is no part of PostgreSQL itself.
const firstUserOID = 16384

// parameterBytes is the longest name of a parameter that may have a mask of its own.
const parameterBytes = 64

// postgresAnswers reads messages of a server of PostgreSQL. An answer ends with ReadyForQuery. Lengths
// of messages and values are no part of the compared bytes.
type postgresAnswers struct {
	s     *Session
	side  int
	sinks [2]sink // of answers, of pushes
	cur   *sink   // that of the message

	startup bool // the answer is that to the startup message
	header  [5]byte
	n       int   // bytes of the header that are there
	rest    int64 // of the message
	read    func(p *postgresAnswers, b []byte) (int, error)

	step   int // in the message
	number [18]byte
	got    int   // bytes of the number that are there
	left   int   // columns, fields that are missing
	value  int64 // bytes of the column that are missing
	hide   bool  // the field is masked
	drop   bool  // the message is not compared

	parameter  [len("postgres.parameter_") + parameterBytes]byte
	parameterN int
}

func newPostgresAnswers(s *Session, side int) *postgresAnswers {
	return &postgresAnswers{s: s, side: side, sinks: [2]sink{newSink(s, &s.main, side), newSink(s, nil, side)}}
}

func (p *postgresAnswers) parse(b []byte) error {
	for len(b) > 0 && p.s.reason == Going {
		if p.n == 0 && !p.sinks[0].open {
			if done, err := p.encryption(b[0]); done || err != nil {
				b = b[1:]
				continue
			}
		}
		if p.n < len(p.header) {
			n := copy(p.header[p.n:], b)
			if p.n, b = p.n+n, b[n:]; p.n < len(p.header) {
				return nil
			}
			if err := p.begin(); err != nil {
				return err
			}
		}
		for len(b) > 0 && p.rest > 0 {
			n, err := p.read(p, b[:min(int64(len(b)), p.rest)])
			if err != nil {
				return err
			}
			p.rest, b = p.rest-int64(n), b[n:]
		}
		if p.rest == 0 {
			if err := p.end(); err != nil {
				return err
			}
		}
	}
	return nil
}

// eof leaves an answer open that has no end: after a fatal error there is none.
func (p *postgresAnswers) eof() {}

// encryption reads the answer to a request for encryption, if that is next.
func (p *postgresAnswers) encryption(c byte) (done bool, err error) {
	r, ok := p.s.peek(p.side)
	if !ok || r.kind != encryption || c == 'E' {
		return false, nil
	}
	p.s.next(p.side)
	o := &p.sinks[0]
	o.begin(r.name)
	o.mark([]byte{c})
	o.end()
	if c != 'N' && p.side == primary {
		p.s.stop(Encrypted)
	}
	return true, nil
}

// messages are the types of a server's messages.
const messages = "RSKZTtDCIEN123snAvVGHWdc"

// begin begins a message by its header.
func (p *postgresAnswers) begin() error {
	kind := p.header[0]
	p.rest = int64(binary.BigEndian.Uint32(p.header[1:])) - 4
	if p.rest < 0 || !strings.ContainsRune(messages, rune(kind)) {
		return unexpected("a message of a server has type %q and %d bytes", kind, p.rest)
	}
	p.step, p.got, p.left, p.value, p.hide, p.parameterN = 0, 0, 0, 0, false, 0
	p.route(kind)
	p.read = (*postgresAnswers).plain
	if p.drop = p.dropped(kind); p.drop {
		p.read = (*postgresAnswers).discard
		return nil
	}
	if p.cur == &p.sinks[1] {
		p.cur.f = p.s.pushes()
		p.cur.begin(p.s.report.name("push"))
	}
	switch {
	case kind == 'K' && p.masked("postgres.key_data"), kind == 'C' && p.masked("postgres.command_tag"):
		p.read = (*postgresAnswers).discard
	case kind == 'D':
		p.read = (*postgresAnswers).row
	case kind == 'T', kind == 't':
		p.read = (*postgresAnswers).description
	case kind == 'E', kind == 'N':
		p.read = (*postgresAnswers).fields
	case kind == 'S':
		p.read = (*postgresAnswers).status
	}
	p.cur.mark(p.header[:1])
	return nil
}

// route finds out whether a message is part of an answer. Notifications, and parameters that
// change after the startup, come at any time.
func (p *postgresAnswers) route(kind byte) {
	answer := &p.sinks[0]
	r, pending := p.s.peek(p.side)
	starting := answer.open && p.startup || !answer.open && r.kind == startup
	switch {
	case kind == 'A', kind == 'S' && !starting, kind == 'N' && !answer.open && !pending:
		p.cur = &p.sinks[1]
		p.cur.name = "push"
		return
	case !answer.open:
		p.s.next(p.side)
		p.startup = r.kind == startup
		answer.begin(r.name)
	}
	p.cur = answer
}

func (p *postgresAnswers) masked(field string) bool {
	return p.s.plan.masks.fieldText(field, p.cur.name)
}

// dropped reports whether messages of a type are not compared at all.
func (p *postgresAnswers) dropped(kind byte) bool {
	switch kind {
	case 'R':
		return p.masked("postgres.authentication")
	case 'N':
		return p.masked("postgres.notice")
	case 'S':
		return p.masked("postgres.parameter_status")
	}
	return false
}

// plain reads a message that is one unit.
func (p *postgresAnswers) plain(b []byte) (int, error) {
	p.cur.put(b)
	return len(b), nil
}

// discard skips a message.
func (p *postgresAnswers) discard(b []byte) (int, error) { return len(b), nil }

// fixed reads a number of n bytes, and reports whether it is there.
func (p *postgresAnswers) fixed(b []byte, n int) (int, bool) {
	m := copy(p.number[p.got:n], b)
	if p.got += m; p.got < n {
		return m, false
	}
	p.got = 0
	return m, true
}

// row reads a DataRow. Each column is a unit.
func (p *postgresAnswers) row(b []byte) (n int, err error) {
	switch p.step {
	case 0:
		n, done := p.fixed(b, 2)
		if done {
			p.left, p.step = int(binary.BigEndian.Uint16(p.number[:])), 1
			p.cur.mark(p.number[:2])
		}
		return n, nil
	case 1:
		n, done := p.fixed(b, 4)
		if !done {
			return n, nil
		}
		p.value = int64(int32(binary.BigEndian.Uint32(p.number[:])))
		p.left--
		switch {
		case p.left < 0 || p.value < -1 || p.value > p.rest-int64(n):
			return 0, unexpected("a row is shorter than its columns")
		case p.value == -1:
			p.cur.mark([]byte{0xff})
		case p.value == 0:
			p.column()
		default:
			p.step = 2
		}
		return n, nil
	}
	n = int(min(int64(len(b)), p.value))
	p.cur.put(b[:n])
	if p.value -= int64(n); p.value == 0 {
		p.column()
		p.step = 1
	}
	return n, nil
}

func (p *postgresAnswers) column() {
	p.cur.unit()
	p.cur.mark([]byte{0})
}

// description reads a RowDescription or a ParameterDescription.
func (p *postgresAnswers) description(b []byte) (n int, err error) {
	row := p.header[0] == 'T'
	switch {
	case p.step == 0:
		n, done := p.fixed(b, 2)
		if done {
			p.step = 1
			p.cur.mark(p.number[:2])
		}
		return n, nil
	case p.step == 1 && row: // the column's name
		n, done := cString(b)
		p.cur.put(b[:n])
		if done {
			p.cur.unit()
			p.step = 2
		}
		return n, nil
	case !row:
		n, done := p.fixed(b, 4)
		if done {
			p.oid(p.number[:4], firstUserOID)
			p.cur.mark(p.number[:4])
		}
		return n, nil
	}
	n, done := p.fixed(b, 18) // table, column, type, its size and modifier, format
	if done {
		p.oid(p.number[:4], 0)
		p.oid(p.number[6:10], firstUserOID)
		p.cur.mark(p.number[:18])
		p.step = 1
	}
	return n, nil
}

// oid hides an object identifier, from a first one on.
func (p *postgresAnswers) oid(b []byte, first uint32) {
	if n := binary.BigEndian.Uint32(b); n >= first && n != 0 && p.masked("postgres.oid") {
		binary.BigEndian.PutUint32(b, firstUserOID)
	}
}

// cString returns the number of bytes up to the end of a string, and whether that is there.
func cString(b []byte) (n int, done bool) {
	for i, c := range b {
		if c == 0 {
			return i + 1, true
		}
	}
	return len(b), false
}

// fields reads an ErrorResponse or a NoticeResponse: letters, and a string for each.
func (p *postgresAnswers) fields(b []byte) (n int, err error) {
	if p.step == 0 {
		switch b[0] {
		case 'F', 'L', 'R':
			p.hide = p.masked("postgres.error_location")
		case 'M', 'D', 'H':
			p.hide = p.masked("postgres.error_text")
		default:
			p.hide = false
		}
		if !p.hide {
			p.cur.put(b[:1])
		}
		if p.step = 1; b[0] == 0 {
			p.step = 0
		}
		return 1, nil
	}
	n, done := cString(b)
	if !p.hide {
		p.cur.put(b[:n])
	}
	if done {
		p.step = 0
		p.cur.unit()
	}
	return n, nil
}

// status reads a ParameterStatus: a name and a value.
func (p *postgresAnswers) status(b []byte) (n int, err error) {
	n, done := cString(b)
	switch {
	case p.step == 0:
		p.cur.mark(b[:n])
		const prefix = len("postgres.parameter_")
		if p.parameterN == 0 {
			p.parameterN = copy(p.parameter[:], "postgres.parameter_")
		}
		for _, c := range b[:n] {
			if c != 0 && p.parameterN < len(p.parameter) {
				if c >= 'A' && c <= 'Z' {
					c += 'a' - 'A'
				}
				p.parameter[p.parameterN] = c
				p.parameterN++
			}
		}
		if done {
			p.step = 1
			name := p.parameter[:p.parameterN]
			p.hide = p.s.plan.masks.field(name, p.cur.name) || string(name[prefix:]) == "server_version" && p.masked("postgres.server_version")
		}
	case !p.hide:
		p.cur.put(b[:n])
	}
	return n, nil
}

// end is the end of a message.
func (p *postgresAnswers) end() error {
	p.n = 0
	switch kind := p.header[0]; {
	case p.drop:
	case p.got > 0 || kind == 'D' && (p.step != 1 || p.left != 0):
		return unexpected("a message of type %q is shorter than its parts", kind)
	case p.cur == &p.sinks[1], kind == 'Z':
		p.cur.end()
	default:
		p.cur.unit()
	}
	return nil
}
