package mask

import (
	"errors"
	"fmt"
	"strings"
)

// Framing is the protocol of a stream, which says where its texts are: each is masked by itself, and nothing else is changed.
type Framing uint8

// The framings.
const (
	// Bytes: none. The stream is one text, so a match may begin or end in a byte that is none of a text.
	Bytes Framing = iota
	// Postgres is PostgreSQL's protocol, version 3.
	Postgres
	// RESP is that of Redis, versions 2 and 3.
	RESP
)

var framingNames = [...]string{"bytes", "postgres", "resp"}

// String returns the framing in one word.
func (f Framing) String() string {
	if int(f) < len(framingNames) {
		return framingNames[f]
	}
	return fmt.Sprintf("framing(%d)", uint8(f))
}

// Errors of [Masker.Rewrite], which end the session: its bytes cannot be masked.
var (
	// ErrFraming is wrapped by that of ParseFraming.
	ErrFraming = errors.New("unknown framing")
	// ErrEncrypted: TLS, SSH or GSSAPI encryption begins in the stream.
	ErrEncrypted = errors.New("the bytes to be masked are encrypted")
	// ErrUnframed: the bytes are none of the protocol of the stream's framing, or of a part of it that is not read here, such as replication.
	ErrUnframed = errors.New("the bytes to be masked are not of the framing")
)

// ParseFraming returns the framing of that name.
func ParseFraming(name string) (Framing, error) {
	for f, n := range framingNames {
		if n == name {
			return Framing(f), nil
		}
	}
	return 0, fmt.Errorf("%w %q: write %s", ErrFraming, name, strings.Join(framingNames[:], ", "))
}

// A span is some of the next bytes of a stream.
type span struct {
	n     int  // 0: nothing but that a text ends, or that a message does
	text  bool // they are of a text; else of the protocol
	first bool // the text begins with them, and does not go on with an earlier one
	ends  bool // they are the last ones of it, or there are no more
}

// A framer reads a stream of a protocol. Its state is of fixed size.
type framer interface {
	// next returns what b begins with, which is not empty. It is called until all bytes are of a span, so few in a row have none.
	next(b []byte) (span, error)
}

func newFramer(f Framing, fromClient bool) framer {
	switch f {
	case Postgres:
		return &postgresFramer{fromClient: fromClient}
	case RESP:
		return &respFramer{fromClient: fromClient}
	}
	return nil
}

// rewriteFramed is Rewrite of a stream whose texts are masked one by one. What is held back is the end of one that goes on.
func (m *Masker) rewriteFramed(b []byte, from, at int) (to int, err error) {
	lo := from // of the text, the first byte that has not been let go
	to = at - m.n
	for i := at; i < len(b); {
		s, err := m.framer.next(b[i:])
		if err != nil {
			return 0, err
		}
		end := i + s.n
		switch {
		case !s.text:
			lo, to = end, end
		default:
			if s.first {
				m.reset()
			}
			if to = m.pass(b[:end], lo, i, s.ends); s.ends {
				lo = end
			}
		}
		i = end
	}
	return to, nil
}

// reset has the next bytes be those of a new text.
func (m *Masker) reset() {
	for i := range m.stages {
		m.stages[i].reset()
	}
}

func (s *cardScanner) reset()    { s.after, s.ended = afterOther, false }
func (s *emailScanner) reset()   { *s = emailScanner{} }
func (s *tokenScanner) reset()   { *s = tokenScanner{} }
func (s *patternScanner) reset() { s.now = s.now[:0] }
