// Package clienthello reads a TLS ClientHello: the name that the client wants to reach, and
// the protocols it speaks. It reads peeked bytes and consumes nothing, so that they are
// relayed unchanged.
//
// [Length] reads nothing but the length fields of records and handshake, and returns how many
// bytes are needed before the next look. [Parse] then parses the message, once, so that a
// client that sends a byte at a time costs one parse, like any other.
//
// Whatever name a TLS server may read in a client's first bytes is the name that Parse returns, or
// there is an error other than [ErrNotTLS]: so bytes that only a lenient server takes for TLS are [ErrMalformed], and
// a hello of two names is, too. Extensions that say nothing about the name are left to the server.
// A second hello, which a server asks for (HelloRetryRequest), has to be read as the first one was, and to ask for the same: OpenSSL's
// server takes its name. One within another protocol (STARTTLS) is not read. An encrypted hello (ECH, RFC 9849) is identified by its outer name, the
// only one in it that can be read.
package clienthello

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxHello is the largest ClientHello, with its handshake header, that is read.
	MaxHello = 64 << 10

	// Max is the largest result of [Length]: the most bytes of a hello with the headers of its
	// records, which may be as many as fit.
	Max = 2 * MaxHello
)

const (
	recordHeader    = 5       // type, version (2), length (2): RFC 8446, 5.1
	handshakeHeader = 4       // type, length (3): RFC 8446, 4
	maxRecord       = 1 << 14 // of a record's plaintext: RFC 8446, 5.1

	typeHandshake   = 22
	typeClientHello = 1

	// The types of records (RFC 8446, 5.1; RFC 6520), and the first version of one that no server takes for TLS:
	// crypto/tls accepts lower ones, and drops a warning before the hello.
	firstType    = 20
	lastType     = 24
	firstVersion = 0x10

	// minHello is the smallest body of a ClientHello: version, random, and the
	// shortest session id, cipher suites and compression methods.
	minHello = 2 + 32 + 1 + 2 + 2 + 1 + 1
)

var (
	// ErrNotTLS is the error of bytes that do not begin like a TLS client's.
	ErrNotTLS = errors.New("this is not TLS")

	// ErrTooLong is the error of a ClientHello that is larger than MaxHello, or, with its
	// records, than Max.
	ErrTooLong = errors.New("the TLS ClientHello is too long")

	// ErrMalformed is the error of bytes that begin like TLS, and are none.
	ErrMalformed = errors.New("the TLS ClientHello is malformed")

	// ErrIncomplete is the error of [Parse] for a hello of which a part is missing. [Length]
	// returns the length needed.
	ErrIncomplete = errors.New("the TLS ClientHello is incomplete")
)

// An Info is the contents of a ClientHello.
type Info struct {
	// ServerName is the host that the client wants (SNI), in lower case and without the dot at
	// its end that some clients send; empty if there is none. It has labels of letters, digits, - and _.
	ServerName string

	// ALPN lists the protocols that the client speaks, the preferred one first.
	ALPN []string
}

// Length returns how many bytes are needed in all, from the client's first on, as far as the
// length fields in b show it. If that is at most len(b), the hello is whole. Otherwise it has at least
// need bytes: a caller that waits for need bytes does not wake too early. Such a caller calls twice for a
// hello in one record, and about log(length)/log(6/5) times for one in many. The result is never more than
// [Max].
//
// Errors are [ErrNotTLS], [ErrTooLong] and [ErrMalformed], as soon as b shows them.
func Length(b []byte) (need int, err error) {
	var w recordReader
	for {
		if err := checkRecord(b, w.at); err != nil {
			return 0, err
		}
		if len(b) < w.at+recordHeader {
			break
		}
		if err := w.record(b); err != nil {
			return 0, err
		}
		switch {
		case w.at > Max:
			return 0, fmt.Errorf("%w: with its records it has more than %d bytes", ErrTooLong, Max)
		case w.total > 0 && w.seen == w.total:
			return w.at, nil
		case w.total > 0 && w.seen > w.total:
			return 0, fmt.Errorf("%w: another message follows in the same record", ErrMalformed)
		}
	}
	switch {
	case len(b) > 0 && b[0]&0x80 != 0:
		return len(b) + 1, nil // which may show that this is not TLS
	case len(b) == 1 && b[0] != typeHandshake:
		return 2, nil // likewise
	}
	if need = w.need(); need > Max {
		return 0, fmt.Errorf("%w: with its records it has more than %d bytes", ErrTooLong, Max)
	}
	return need, nil
}

// A recordReader iterates over the records at the beginning of a slice.
type recordReader struct {
	at    int // where the next record begins
	seen  int // bytes of handshake in those before
	total int // bytes of the hello; 0: not known yet
	first int // end of the handshake's header, if a record before at contains it; or 0
	head  [handshakeHeader]byte
}

// record reads the record at w.at. Its header is in b.
func (w *recordReader) record(b []byte) error {
	size := int(binary.BigEndian.Uint16(b[w.at+3:]))
	if size == 0 || size > maxRecord {
		return fmt.Errorf("%w: a record of %d bytes", ErrMalformed, size)
	}
	start := w.at + recordHeader
	w.at = start + size
	if w.total > 0 {
		w.seen += size
		return nil
	}
	have := w.seen
	if have < handshakeHeader {
		have += copy(w.head[have:], b[start:min(w.at, len(b))])
	}
	if w.seen += size; w.seen >= handshakeHeader {
		w.first = w.at - w.seen + handshakeHeader
	}
	return w.message(have)
}

// message checks the first have bytes of the handshake's header.
func (w *recordReader) message(have int) error {
	if have > 0 && w.head[0] != typeClientHello {
		return fmt.Errorf("%w: handshake message %d where a ClientHello should be", ErrMalformed, w.head[0])
	}
	if have < handshakeHeader {
		return nil
	}
	body := int(w.head[1])<<16 | int(w.head[2])<<8 | int(w.head[3])
	if w.total = handshakeHeader + body; w.total > MaxHello {
		return fmt.Errorf("%w: %d bytes, and not at most %d", ErrTooLong, w.total, MaxHello)
	}
	if body < minHello {
		return fmt.Errorf("%w: %d bytes are too few", ErrMalformed, body)
	}
	return nil
}

// need returns how many bytes are needed for the next step, for a hello that does not end with
// the records before.
func (w *recordReader) need() int {
	switch {
	case w.total > 0:
		return w.at + recordHeader + w.total - w.seen
	case w.first > 0:
		return w.first
	default:
		return w.at + recordHeader + handshakeHeader - w.seen
	}
}

// oldForm reports whether a client may begin with a ClientHello for TLS in the form of SSL 2 (RFC 5246, E.2), to which servers of
// OpenSSL still answer. It has no name.
func oldForm(b []byte) bool {
	return b[0]&0x80 != 0 && (len(b) < 3 || b[2] == 1) && (len(b) < 4 || b[3] == 3)
}

// checkRecord checks the header of the record at b[at:], as far as b holds it. The major version is 3 in all of TLS; the
// minor one means nothing here (RFC 8446, 5.1). What some server might take for the beginning of TLS is not said to be none.
func checkRecord(b []byte, at int) error {
	switch b = b[min(at, len(b)):]; {
	case len(b) == 0:
	case at == 0 && oldForm(b):
		if len(b) > 3 {
			return fmt.Errorf("%w: it has the form of SSL 2", ErrMalformed)
		}
	case at == 0 && (b[0] < firstType || b[0] > lastType || len(b) > 1 && b[0] != typeHandshake && b[1] >= firstVersion):
		return ErrNotTLS
	case len(b) == 1 && at == 0:
	case b[0] != typeHandshake:
		return fmt.Errorf("%w: a record of type %d where a ClientHello should be", ErrMalformed, b[0])
	case len(b) > 1 && b[1] != 3:
		return fmt.Errorf("%w: a record of version %d", ErrMalformed, b[1])
	}
	return nil
}
