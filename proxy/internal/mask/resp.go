package mask

import (
	"bytes"
	"fmt"
)

// Kinds of RESP, by the first byte of their line (https://redis.io/docs/latest/develop/reference/protocol-spec/).
const (
	respTexts = "+-"              // the line is a text
	respBulks = "$!=;"            // the line has the length of the text behind it
	respLines = "*:_#,(%~>|.\r\n" // the line is not masked
)

// respMost is the most bytes of a text, 512 MiB by default; proto-max-bulk-len may be more.
const respMost = 1 << 40

type respState uint8

const (
	respKind     respState = iota
	respLine               // to its end, which is not masked
	respText               // to its end
	respLength             // of a bulk
	respFormat             // of a verbatim string: 3 letters and a colon
	respBulk               // its text
	respBulkEnds           // \r\n
)

// A respFramer reads the values of a client or a server of Redis. Texts are bulks, simple strings, errors, and commands that are written as
// a line. Numbers are not: no client would understand a masked one.
type respFramer struct {
	fromClient bool
	state      respState
	kind       byte
	some       bool  // of the text or of the length has been read
	none       bool  // the length is that of no text
	left       int64 // bytes of the bulk, or the length so far
	have       uint8 // bytes of its end or format
}

func (f *respFramer) next(b []byte) (span, error) {
	switch f.state {
	case respKind:
		return f.begin(b[0])
	case respLine:
		n := bytes.IndexByte(b, '\n') + 1
		if n == 0 {
			return span{n: len(b)}, nil
		}
		f.state = respKind
		return span{n: n}, nil
	case respText:
		return f.line(b), nil
	case respLength:
		return f.length(b[0])
	case respFormat:
		if f.left--; f.left == 0 {
			f.state = respBulkEnds
		} else if f.have++; f.have == 4 {
			f.have, f.state = 0, respBulk
		}
		return span{n: 1}, nil
	case respBulk:
		n := int(min(int64(len(b)), f.left))
		f.left -= int64(n)
		s := span{n: n, text: true, first: !f.some, ends: f.left == 0}
		if f.some = true; s.ends {
			f.have, f.state = 0, respBulkEnds
		}
		return s, nil
	}
	if b[0] != "\r\n"[f.have] {
		return span{}, fmt.Errorf("%w: a text is longer than its length says", ErrUnframed)
	}
	if f.have++; f.have == 2 {
		f.state = respKind
	}
	return span{n: 1}, nil
}

// begin reads the first byte of a line.
func (f *respFramer) begin(c byte) (span, error) {
	*f = respFramer{fromClient: f.fromClient, kind: c}
	switch {
	case bytes.IndexByte([]byte(respTexts), c) >= 0:
		f.state = respText
	case bytes.IndexByte([]byte(respBulks), c) >= 0:
		f.state = respLength
	case c == '\n':
	case bytes.IndexByte([]byte(respLines), c) >= 0:
		f.state = respLine
	case c == recordHandshake:
		return span{}, fmt.Errorf("%w: TLS begins", ErrEncrypted)
	case f.fromClient:
		f.state = respText
		return span{}, nil
	default:
		return span{}, fmt.Errorf("%w: a line begins with %q", ErrUnframed, c)
	}
	return span{n: 1}, nil
}

// line reads a text to the end of its line.
func (f *respFramer) line(b []byte) span {
	n := bytes.IndexAny(b, "\r\n")
	s := span{n: n, text: true, first: !f.some, ends: n >= 0}
	if n < 0 {
		s.n = len(b)
	} else {
		f.state = respLine
	}
	f.some = true
	return s
}

// length reads a byte of the length of a bulk.
func (f *respFramer) length(c byte) (span, error) {
	switch {
	case isDigit(c):
		f.left, f.some = f.left*10+int64(c-'0'), true
		if f.left > respMost {
			return span{}, fmt.Errorf("%w: a text of more than 2^40 bytes", ErrUnframed)
		}
	case !f.some && !f.none && (c == '-' || c == '?'):
		f.none = true
	case c == '\r' && (f.some || f.none):
	case c == '\n' && (f.some || f.none):
		f.begun()
	default:
		return span{}, fmt.Errorf("%w: %q in the length of a text", ErrUnframed, c)
	}
	return span{n: 1}, nil
}

// begun is called when the length of a bulk has been read.
func (f *respFramer) begun() {
	f.some = false
	switch {
	case f.none || f.left == 0 && f.kind == ';':
		f.state = respKind
	case f.left == 0:
		f.state = respBulkEnds
	case f.kind == '=':
		f.state = respFormat
	default:
		f.state = respBulk
	}
}
