// Package hello reads what a TLS client says first: which name it wants to reach,
// and which protocols it speaks. It is given bytes that were peeked at, and consumes
// nothing, so that what follows is relayed as if nobody had looked.
//
// [Length] reads nothing but the length fields of records and handshake, and says how
// many bytes there must be before it is worth looking again; [Parse] then reads the
// message, once, so that a client that sends a byte at a time costs one parse, like any
// other. The parser of crypto/tls has the last word: what is read without it is only what
// it reads in the same way, and that is most hellos.
//
// An encrypted hello (ECH, RFC 9849) is told by its outer name, the only one in it
// that can be read.
package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxHello is the largest ClientHello, with its handshake header, that is read.
	MaxHello = 16 << 10

	// MaxRecords is how many records it may be cut into. One is usual, two or three
	// are what clients do that want to be overlooked.
	MaxRecords = 16

	// Max is the most that [Length] asks for.
	Max = MaxHello + MaxRecords*recordHeader
)

const (
	recordHeader    = 5       // type, version (2), length (2): RFC 8446, 5.1
	handshakeHeader = 4       // type, length (3): RFC 8446, 4
	maxRecord       = 1 << 14 // of a record's plaintext: RFC 8446, 5.1

	typeHandshake   = 22
	typeClientHello = 1

	// minHello is the smallest body of a ClientHello: version, random, and the
	// shortest session id, cipher suites and compression methods.
	minHello = 2 + 32 + 1 + 2 + 2 + 1 + 1
)

var (
	// ErrNotTLS is the error of bytes that do not begin like a TLS client's.
	ErrNotTLS = errors.New("this is not TLS")

	// ErrTooLong is the error of a ClientHello that is larger than MaxHello, or is
	// cut into more than MaxRecords.
	ErrTooLong = errors.New("the TLS ClientHello is too long")

	// ErrMalformed is the error of bytes that begin like TLS, and are none.
	ErrMalformed = errors.New("the TLS ClientHello is malformed")

	// ErrIncomplete is the error of [Parse] for a hello of which something is
	// missing. [Length] says how much.
	ErrIncomplete = errors.New("the TLS ClientHello is incomplete")
)

// An Info is what a ClientHello says.
type Info struct {
	// ServerName is the host that the client wants (SNI), in lower case; empty if it
	// does not say. One with a dot at its end is malformed (RFC 6066, 3). Nothing else
	// is known of it: it may hold any byte.
	ServerName string

	// ALPN lists the protocols that the client speaks, the preferred one first.
	ALPN []string

	// Full says that crypto/tls had to read it, because it was not plain.
	Full bool
}

// Length says how many bytes of what the client sends first are needed, in all, as far
// as the length fields in b tell. The hello is whole if they are no more than len(b).
// Otherwise fewer make no sense for sure: who waits for that many is not woken for
// less, and asks twice for a hello in one record, and never more than MaxRecords+3 times.
// It never asks for more than [Max].
//
// Errors are [ErrNotTLS], [ErrTooLong] and [ErrMalformed], as soon as b tells.
func Length(b []byte) (need int, err error) {
	var w walk
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
		case w.total > 0 && w.seen == w.total:
			return w.at, nil
		case w.total > 0 && w.seen > w.total:
			return 0, fmt.Errorf("%w: something else follows in its record", ErrMalformed)
		case w.count == MaxRecords:
			return 0, fmt.Errorf("%w: more than %d records", ErrTooLong, MaxRecords)
		}
	}
	return w.need(), nil
}

// A walk goes over the records at the beginning of some bytes.
type walk struct {
	at    int // where the next record begins
	count int // of the records before that
	seen  int // bytes of handshake in them
	total int // bytes of the hello; 0: not known yet
	first int // where its length is complete, if that is in one of them; or 0
	head  [handshakeHeader]byte
}

// record goes over the record at w.at, whose header is there.
func (w *walk) record(b []byte) error {
	size := int(binary.BigEndian.Uint16(b[w.at+3:]))
	if size == 0 || size > maxRecord {
		return fmt.Errorf("%w: a record of %d bytes", ErrMalformed, size)
	}
	w.count++
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

// message looks at the first have bytes of the handshake's header.
func (w *walk) message(have int) error {
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

// need says how many bytes there must be for more to be known, of a hello that is not
// over with the records before.
func (w *walk) need() int {
	switch {
	case w.total > 0:
		return w.at + recordHeader + w.total - w.seen
	case w.first > 0:
		return w.first
	default:
		return w.at + recordHeader + handshakeHeader - w.seen
	}
}

// checkRecord looks at what there is of the header of the record at b[at:].
func checkRecord(b []byte, at int) error {
	// The major version is 3 in all of TLS; the minor one means nothing here
	// (RFC 8446, 5.1).
	bad := len(b) > at && b[at] != typeHandshake || len(b) > at+1 && b[at+1] != 3
	if bad && at == 0 {
		return ErrNotTLS
	}
	if bad {
		return fmt.Errorf("%w: another record in the middle of it", ErrMalformed)
	}
	return nil
}
