// Package proxyproto reads and writes the header of the PROXY protocol, versions 1 and 2: the
// first bytes that a proxy sends, with the addresses of the client for which it connects. The
// specification is HAProxy's doc/proxy-protocol.txt.
//
// Reading works on peeked bytes. [Policy.Length] returns how many there must be, and then the
// exact length of the header. So the bytes after it are relayed as if there had been no
// header. Neither reading nor writing allocates, except for an [Info]'s TLVs when they are
// larger than any before.
package proxyproto

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
)

const (
	// MaxV1 is the longest line of version 1.
	MaxV1 = 107

	// DefaultMax is the longest header that is accepted if the [Policy] does not set Max:
	// addresses, and TLVs of some KiB (a client's certificate, say). The protocol would allow
	// 65551.
	DefaultMax = 4 << 10
)

var (
	// ErrMissing is the error of bytes that do not begin like a header of a version
	// that is accepted.
	ErrMissing = errors.New("there is no PROXY header")

	// ErrVersion is the error of a header of a version that is not accepted.
	ErrVersion = errors.New("the PROXY header's version is not accepted")

	// ErrUnexpected is the error of a header of a peer from which none is accepted.
	ErrUnexpected = errors.New("a PROXY header is not accepted from this peer")

	// ErrTooLong is the error of a header that is longer than is accepted.
	ErrTooLong = errors.New("the PROXY header is too long")

	// ErrMalformed is the error of bytes that begin like a header, and are none.
	ErrMalformed = errors.New("the PROXY header is malformed")

	// ErrChecksum is the error of a header with a wrong CRC32C TLV.
	ErrChecksum = errors.New("the PROXY header's checksum is wrong")

	// ErrIncomplete is the error of [Policy.Parse] for a header of which a part is missing.
	// [Policy.Length] returns the length needed.
	ErrIncomplete = errors.New("the PROXY header is incomplete")
)

// A Policy configures which peers must send a header, and of which versions. It is not changed
// while in use; nil is the zero value.
type Policy struct {
	// Versions are the accepted versions, of 1 and 2; empty: both.
	Versions []int

	// From are the proxies: they must send a header, and are refused if they do not. All other
	// peers are clients: no header is expected of them. If one sends a header, it is not
	// parsed, but passed on like any of the client's own data. That is HAProxy's "tcp-request
	// connection expect-proxy layer4 if { src ... }". Empty: every peer must send one, as with
	// HAProxy's accept-proxy and nginx's proxy_protocol.
	From *source.Set

	// Timeout limits the wait for the header; 0: 3 s.
	Timeout time.Duration

	// Max is the longest accepted header of version 2; 0: DefaultMax.
	Max int
}

// Wait returns the time limit for the header.
func (p *Policy) Wait() time.Duration {
	if p == nil || p.Timeout <= 0 {
		return 3 * time.Second
	}
	return p.Timeout
}

// Expects reports whether a peer must send a header. The peer is the other end of the
// connection, not the client in the header.
func (p *Policy) Expects(peer source.Source) bool {
	return p.Everybody() || p.From.Contains(peer)
}

// Everybody reports whether all peers must send a header.
func (p *Policy) Everybody() bool { return p == nil || p.From.Len() == 0 }

// Check returns the error for which this policy refuses a client after another policy has read
// its header, or has expected none. It returns nil if this policy would have found the same.
func (p *Policy) Check(peer source.Source, has *Info) error {
	switch expects := p.Expects(peer); {
	case expects && has.Version == 0:
		return ErrMissing
	case !expects && has.Version != 0:
		return ErrUnexpected
	case has.Version != 0 && !p.accepts(has.Version):
		return ErrVersion
	}
	return nil
}

func (p *Policy) accepts(version int) bool {
	if p == nil || len(p.Versions) == 0 {
		return true
	}
	for _, v := range p.Versions {
		if v == version {
			return true
		}
	}
	return false
}

func (p *Policy) max() int {
	if p == nil || p.Max <= 0 {
		return DefaultMax
	}
	return p.Max
}

// An Info is the contents of a received header.
type Info struct {
	// Version is 1 or 2; 0: there was no header.
	Version int

	// Local is set for the proxy's own connections (a health check, say): the command LOCAL of
	// version 2.
	Local bool

	// Source and Destination are the addresses of the client's connection. They are not valid
	// if the header does not contain them (LOCAL, UNKNOWN, unix sockets): then those of the
	// socket itself count.
	Source, Destination netip.AddrPort

	// TLVs are the unparsed TLVs of version 2, read with [Find] and [All]. Those of LOCAL are
	// to be ignored, and are not here. The memory is the Info's own and is used again by the
	// next [Policy.Parse] into it.
	TLVs []byte
}

// Known reports whether the header contains the addresses.
func (i *Info) Known() bool { return i.Source.IsValid() }

// Reset sets i to the Info of no header, and keeps its memory.
func (i *Info) Reset() { *i = Info{TLVs: i.TLVs[:0]} }

// signature begins a header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

const (
	fixed = 16 // of version 2: signature, version and command, family, length (2)
	minV1 = len("PROXY UNKNOWN\r\n")
)

// Length returns the header's length, as far as b shows it. If that is at most len(b), the
// header is whole and exactly that long. Otherwise fewer bytes are certainly not enough, so
// that a caller that waits for that many does not wake too early. Errors are [ErrMissing],
// [ErrVersion], [ErrTooLong] and [ErrMalformed], as soon as b shows them.
func (p *Policy) Length(b []byte) (need int, err error) {
	if len(b) == 0 {
		return p.shortest(), nil
	}
	switch {
	case begins(b, signature):
		if !p.accepts(2) {
			return 0, fmt.Errorf("%w: it is 2", ErrVersion)
		}
		return p.lengthV2(b)
	case begins(b, "PROXY "):
		if !p.accepts(1) {
			return 0, fmt.Errorf("%w: it is 1", ErrVersion)
		}
		return lengthV1(b)
	default:
		return 0, ErrMissing
	}
}

func (p *Policy) shortest() int {
	if p.accepts(1) {
		return minV1
	}
	return fixed
}

// begins reports whether b begins with all of prefix, or is the beginning of it.
func begins(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

// Parse reads the header at the beginning of b, which is whole according to [Policy.Length],
// and returns its length. Parse does not read the bytes after it, and keeps nothing of b.
// Errors are those of Length, [ErrIncomplete] and [ErrChecksum]; into is then as after Reset.
func (p *Policy) Parse(b []byte, into *Info) (n int, err error) {
	into.Reset()
	if n, err = p.Length(b); err != nil {
		return 0, err
	}
	if n > len(b) {
		return 0, fmt.Errorf("%w: %d bytes of at least %d", ErrIncomplete, len(b), n)
	}
	if b[0] == signature[0] {
		err = into.parseV2(b[:n])
	} else {
		err = into.parseV1(b[:n-len("\r\n")])
	}
	if err != nil {
		into.Reset()
		return 0, err
	}
	return n, nil
}
