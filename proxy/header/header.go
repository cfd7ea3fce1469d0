// Package header reads and writes the header of the PROXY protocol, versions 1 and 2:
// what a proxy sends first, to tell whom it speaks for. The specification is HAProxy's
// doc/proxy-protocol.txt.
//
// Reading is done on bytes that were peeked at: [Policy.Length] says how many there
// must be, and then how many are the header and not a byte more, so that what follows
// is relayed as if there had been no header. Neither reading nor writing allocates,
// but for an [Info]'s TLVs when they are larger than any before.
package header

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/source"
)

const (
	// MaxV1 is the longest line of version 1.
	MaxV1 = 107

	// DefaultMax is the longest header that is accepted if the [Policy] does not say:
	// addresses, and TLVs of some KiB (a client's certificate, say). The protocol would
	// allow 65551.
	DefaultMax = 4 << 10
)

var (
	// ErrMissing is the error of bytes that do not begin like a header of a version
	// that is accepted.
	ErrMissing = errors.New("there is no PROXY header")

	// ErrVersion is the error of a header of a version that is not accepted.
	ErrVersion = errors.New("the PROXY header's version is not accepted")

	// ErrUnexpected is the error of a header of somebody of whom none is accepted.
	ErrUnexpected = errors.New("a PROXY header is not accepted from this peer")

	// ErrTooLong is the error of a header that is longer than is accepted.
	ErrTooLong = errors.New("the PROXY header is too long")

	// ErrMalformed is the error of bytes that begin like a header, and are none.
	ErrMalformed = errors.New("the PROXY header is malformed")

	// ErrChecksum is the error of a header whose CRC32C TLV is wrong.
	ErrChecksum = errors.New("the PROXY header's checksum is wrong")

	// ErrIncomplete is the error of [Policy.Parse] for a header of which something is
	// missing. [Policy.Length] says how much.
	ErrIncomplete = errors.New("the PROXY header is incomplete")
)

// A Policy says from whom which headers are accepted. It is not changed while in use;
// nil is the zero value.
type Policy struct {
	// Versions that are accepted, of 1 and 2; empty: both.
	Versions []int

	// From are those who speak for others: they must send a header, and are refused
	// if they do not. All others speak for themselves: nothing is expected of them,
	// and should a header come, it is not taken for one but is the client's own data,
	// passed on like any. That is what HAProxy does by
	// "tcp-request connection expect-proxy layer4 if { src ... }". Empty: everybody
	// must send one, as with HAProxy's accept-proxy and nginx's proxy_protocol.
	From *source.Set

	// Timeout is how long the header may take to come; 0: 3 s.
	Timeout time.Duration

	// Max is how long a header of version 2 may be; 0: DefaultMax.
	Max int
}

// Wait is how long the header may take to come.
func (p *Policy) Wait() time.Duration {
	if p == nil || p.Timeout <= 0 {
		return 3 * time.Second
	}
	return p.Timeout
}

// Expects tells whether a peer, which is the other end of the connection and not whom it
// speaks for, must send a header.
func (p *Policy) Expects(peer source.Source) bool {
	return p.Everybody() || p.From.Contains(peer)
}

// Everybody tells whether it is the same for all peers: they must send a header.
func (p *Policy) Everybody() bool { return p == nil || p.From.Len() == 0 }

// Check returns why a client whose header was read by another policy, or of whom none was
// expected, may not be taken by this one: nil if this one would have found the same.
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

// An Info is what a header says.
type Info struct {
	// Version is 1 or 2; 0: there was no header.
	Version int

	// Local is set if the proxy speaks for itself (a health check, say) and not for a
	// client: the command LOCAL of version 2.
	Local bool

	// Source and Destination are the client's connection's. They are not valid if the
	// header does not tell (LOCAL, UNKNOWN, unix sockets): then those of the socket
	// itself count.
	Source, Destination netip.AddrPort

	// TLVs are what version 2 adds, as they came, but for LOCAL, of which they are to be
	// ignored. [Find] and [All] read them. The
	// memory is the Info's own and is used again by the next [Policy.Parse] into it.
	TLVs []byte
}

// Known tells whether the header has told the addresses.
func (i *Info) Known() bool { return i.Source.IsValid() }

// Reset makes an Info that of no header, and keeps its memory.
func (i *Info) Reset() { *i = Info{TLVs: i.TLVs[:0]} }

// signature begins a header of version 2.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

const (
	fixed = 16 // of version 2: signature, version and command, family, length (2)
	minV1 = len("PROXY UNKNOWN\r\n")
)

// Length says how many bytes of what the peer sends first are the header, as far as b
// tells. The header is whole if they are no more than len(b); then they are exactly
// the header. Otherwise fewer make no sense for sure: who waits for that many is not
// woken for less. Errors are [ErrMissing], [ErrVersion], [ErrTooLong] and
// [ErrMalformed], as soon as b tells.
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

// begins tells whether b begins with all of prefix, or is the beginning of it.
func begins(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

// Parse reads the header at the beginning of b, of which [Policy.Length] has said that
// it is whole, and says how long it is. What follows it is not looked at, and nothing
// of b is kept. Errors are those of Length, [ErrIncomplete] and [ErrChecksum]; into is
// then as after Reset.
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
