package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/relay/driver"
)

// A server of TLS 1.3 may ask for a second hello, by a HelloRetryRequest, and OpenSSL takes the name from the second hello.
// The client must not change the name (RFC 8446, 4.1.2), but may try it, to reach the endpoint of another name. So if a
// hello was read and TLS does not end here, the following bytes of the client stay in its socket until the endpoint has
// answered. After a HelloRetryRequest the second hello must ask for the same name and protocols, and the bytes behind it
// wait for the next answer in turn: a server without state (SSL_stateless) may ask any number of times. After any other
// answer all bytes pass.

// ErrSecondHello is the error of a client that sends a second hello with another name or other protocols, or something
// other than a hello.
var ErrSecondHello = errors.New("the endpoint asked for a second TLS ClientHello, and the client changed the name or the protocols")

type firstHello struct {
	size int // including the headers of its records; 0: no hello was read
	asks asked
}

// asked is a digest of the name and the protocols for which a hello asks.
type asked [sha256.Size]byte

func askedBy(hello *clienthello.Info) asked {
	var room [512]byte
	b := append(append(room[:0], hello.ServerName...), 0)
	for _, protocol := range hello.ALPN {
		b = append(append(b, byte(len(protocol))), protocol...)
	}
	return sha256.Sum256(b)
}

// greeted notes the hello at the beginning of b, parsed as hello.
func (c *Client) greeted(b []byte, hello *clienthello.Info) {
	if n, err := clienthello.Length(b); err == nil && n <= len(b) {
		c.hello = firstHello{n, askedBy(hello)}
	}
}

// upTo returns the part of b, bytes of the client, that an endpoint may get before it has answered.
func (h *firstHello) upTo(b []byte) []byte {
	if h.size > 0 && len(b) > h.size {
		return b[:h.size]
	}
	return b
}

// gate returns the gate for the bytes of a client, and how many more pass freely. The endpoint has the first moved bytes
// already. The gate is nil if no hello was read. It takes over the memory that is charged for the client's bytes.
func (h *firstHello) gate(w *worker, moved int, charged *int32) (driver.Gate, int) {
	if h.size == 0 {
		return nil, 0
	}
	g := &helloGate{worker: w, asks: h.asks, charged: *charged}
	*charged = 0
	return g, h.size - moved
}

// A helloGate decides which bytes of a client pass.
type helloGate struct {
	worker  *worker
	asks    asked
	state   helloState
	answer  helloAnswer
	second  []byte // the bytes of an incomplete further hello that have passed
	need    int    // length of second at which the next look is worth it
	charged int32  // its part of the group's PrereadMemory
}

type helloState uint8

const (
	unanswered helloState = iota // the last hello has no answer yet
	retried                      // the endpoint has asked for a further hello
	passed
)

func (g *helloGate) Answered(b []byte) driver.GateVerdict {
	switch g.answer.read(b) {
	case answerOpen:
		return driver.GateHears
	case answerRetry:
		g.state = retried
		return driver.GateLooks
	}
	g.state = passed
	return driver.GateOpens
}

func (g *helloGate) Pass(fd int, ahead []byte, ended bool) (n int, took []byte, err error) {
	switch {
	case g.state == passed:
		return driver.GateOpen, nil, nil
	case g.state == unanswered && (!ended || len(ahead) > 0):
		return 0, nil, nil
	}
	b := ahead
	if len(b) == 0 {
		b = g.worker.firstBytes()
		n, err := peekAt(fd, b)
		switch {
		case err == syscall.EAGAIN:
			return 0, nil, nil
		case err != nil:
			return 0, nil, err
		case n == 0:
			return driver.GateOpen, nil, nil // the end of file passes
		}
		b = b[:n]
	}
	if g.state == unanswered {
		return 0, nil, nil
	}
	if n, err = g.look(b); err == nil && len(ahead) == 0 {
		took = bytes.Clone(b[:min(n, len(b))])
		err = consume(fd, b[:len(took)], sys.MSG_TRUNC)
	}
	return n, took, err
}

// look returns how many of the client's next bytes may pass: all bytes of an incomplete hello,
// because no server takes a name from it, and the rest of a hello with the right name.
func (g *helloGate) look(b []byte) (n int, err error) {
	gone := len(g.second)
	all := b
	if gone > 0 {
		g.second = append(g.second, b...)
		all = g.second
	}
	switch kind := all[0]; {
	case kind == recordHandshake:
	case kind < recordChange || kind > recordData:
		return 0, fmt.Errorf("%w: it begins with byte %d", ErrSecondHello, kind)
	case len(all) < recordHeader:
		return g.keep(all, len(b), recordHeader)
	default: // refused early data, which the server drops, a change of the cipher before it, or an alert
		size := int(binary.BigEndian.Uint16(all[3:]))
		if all[1] != 3 || size > maxCiphertext {
			return 0, fmt.Errorf("%w: a record of type %d, version %d and %d bytes", ErrSecondHello, kind, all[1], size)
		}
		g.second = g.second[:0]
		return recordHeader + size - gone, nil
	}
	if len(all) < g.need {
		return g.keep(all, len(b), g.need)
	}
	need, err := clienthello.Length(all)
	if err == nil && need > len(all) {
		return g.keep(all, len(b), need)
	}
	var hello clienthello.Info
	if err == nil {
		hello, err = clienthello.Parse(all[:need])
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrSecondHello, err)
	case askedBy(&hello) != g.asks:
		return 0, fmt.Errorf("%w: its name is %q", ErrSecondHello, hello.ServerName)
	}
	g.state, g.second, g.need = unanswered, g.second[:0], 0
	return need - gone, nil
}

// keep keeps all bytes of the further hello so far; the last n of them pass now.
func (g *helloGate) keep(all []byte, n, need int) (int, error) {
	if len(g.second) == 0 {
		g.second = append(g.second, all...)
	}
	g.need = need
	return n, g.worker.group.charge(&g.charged, cap(g.second)-maxKept)
}

func (g *helloGate) Close() {
	g.second = nil
	g.worker.group.uncharge(&g.charged)
}

// Records of TLS (RFC 8446, 5.1 and 5.2).
const (
	recordHeader    = 5
	recordChange    = 20
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	maxCiphertext   = 1<<14 + 256
)

// A helloAnswer reads the beginning of an endpoint's answer to a hello.
type helloAnswer struct {
	header [recordHeader]byte // of the present record
	have   int                // bytes of header
	left   int                // bytes of the record to come
	rest   int                // bytes of a HelloRetryRequest to come
	seen   int                // bytes of the present handshake message
	begin  [answerBegin]byte  // of the handshake message
}

// answerBegin is the beginning of a ServerHello: type, length (3), version (2), random.
const answerBegin = 1 + 3 + 2 + 32

type helloVerdict uint8

const (
	answerOpen  helloVerdict = iota // more is needed
	answerRetry                     // the endpoint asks for a second hello
	answerOther                     // the endpoint does not
)

// read reads the next bytes; none: the end. It skips records of other types than handshake, such as a warning.
func (a *helloAnswer) read(b []byte) (v helloVerdict) {
	if len(b) == 0 {
		return answerOther // an incomplete answer asks for nothing
	}
	for len(b) > 0 {
		if a.left == 0 {
			n := copy(a.header[a.have:], b)
			b = b[n:]
			if a.have += n; a.header[0] < recordChange || a.header[0] > recordData+1 || a.have > 1 && a.header[1] != 3 {
				return answerOther // this is not TLS
			}
			if a.have < recordHeader {
				return v
			}
			a.have, a.left = 0, int(binary.BigEndian.Uint16(a.header[3:]))
			continue
		}
		n := min(len(b), a.left)
		if a.header[0] == recordHandshake {
			if a.rest > 0 {
				n = min(n, a.rest)
				a.rest -= n
			} else {
				n = copy(a.begin[a.seen:], b[:n])
				a.seen += n
			}
		}
		if b, a.left = b[n:], a.left-n; a.seen < answerBegin {
			continue
		}
		if v = a.whole(); v == answerOther {
			return v
		}
		a.seen, a.rest = 0, max(0, 4+int(a.begin[1])<<16+int(a.begin[2])<<8+int(a.begin[3])-answerBegin)
	}
	return v
}

// whole decides by the complete beginning of a handshake message.
func (a *helloAnswer) whole() helloVerdict {
	const serverHello = 2
	if a.begin[0] == serverHello && [32]byte(a.begin[6:]) == retryRandom {
		return answerRetry
	}
	return answerOther
}

// retryRandom is the random that marks a ServerHello as a HelloRetryRequest: the SHA-256 of this name (RFC 8446, 4.1.3).
var retryRandom = sha256.Sum256([]byte("HelloRetryRequest"))
