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
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unsafe"

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

	// ErrUnexpected is the error of a header from a peer that may not send one.
	ErrUnexpected = errors.New("a PROXY header is not accepted from this peer")

	// ErrTooLong is the error of a header that is longer than is accepted.
	ErrTooLong = errors.New("the PROXY header is too long")

	// ErrMalformed is the error of bytes that begin like a header, and are none.
	ErrMalformed = errors.New("the PROXY header is malformed")

	// ErrChecksum is the error of a header with a wrong CRC32C TLV.
	ErrChecksum = errors.New("the PROXY header's checksum is wrong")

	// ErrIncomplete is the error of [Policy.Parse] for an incomplete header.
	// [Policy.Length] returns the length needed.
	ErrIncomplete = errors.New("the PROXY header is incomplete")
)

// A Policy configures which peers must send a header, and in which versions. It is not changed
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
	return p == nil || len(p.Versions) == 0 || slices.Contains(p.Versions, version)
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
	// if the header does not contain them (LOCAL, UNKNOWN, unix sockets): then the addresses of the
	// socket itself count.
	Source, Destination netip.AddrPort

	// TLVs are the unparsed TLVs of version 2, read with [Find] and [All]. TLVs of LOCAL are
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
	switch {
	case len(b) == 0 && p.accepts(1):
		return minV1, nil
	case len(b) == 0:
		return fixed, nil
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

// begins reports whether b begins with all of prefix, or is the beginning of it.
func begins(b []byte, prefix string) bool {
	n := min(len(b), len(prefix))
	return string(b[:n]) == prefix[:n]
}

// Parse reads the header at the beginning of b, which is whole according to [Policy.Length],
// and returns its length. Parse does not read the bytes after it, and keeps nothing of b.
// The error is one of Length's, [ErrIncomplete] or [ErrChecksum]; into is then as after Reset.
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

// lengthV1 finds the end of the line at the beginning of b.
func lengthV1(b []byte) (need int, err error) {
	line := b[:min(len(b), MaxV1)]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		if end < minV1-1 || line[end-1] != '\r' {
			return 0, fmt.Errorf("%w: a line of version 1 that ends in %q", ErrMalformed, tail(line[:end+1]))
		}
		return end + 1, nil
	}
	if len(line) == MaxV1 {
		return 0, fmt.Errorf("%w: a line of version 1 with more than %d bytes", ErrTooLong, MaxV1)
	}
	need = len(b) + len("\r\n")
	if b[len(b)-1] == '\r' {
		need = len(b) + len("\n")
	}
	return max(need, minV1), nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-2):] }

// parseV1 parses a line of version 1, without its end.
func (i *Info) parseV1(line []byte) error {
	i.Version = 1
	kind, rest, more := bytes.Cut(line[len("PROXY "):], []byte(" "))
	switch string(kind) {
	case "UNKNOWN":
		return nil // the rest is to be ignored
	case "TCP4", "TCP6":
	default:
		return fmt.Errorf("%w: protocol %q is not TCP4, TCP6 or UNKNOWN", ErrMalformed, kind)
	}
	var fields [4][]byte
	for n := range fields {
		if !more {
			return fmt.Errorf("%w: %d fields after the protocol instead of 4", ErrMalformed, n)
		}
		fields[n], rest, more = bytes.Cut(rest, []byte(" "))
	}
	if more {
		return fmt.Errorf("%w: more than 4 fields after the protocol", ErrMalformed)
	}
	var err error
	if i.Source, err = addrPort(kind, fields[0], fields[2]); err != nil {
		return err
	}
	i.Destination, err = addrPort(kind, fields[1], fields[3])
	return err
}

// addrPort parses an address and a port. The address is of IPv4 after TCP4; after TCP6 it may be of either
// family: if one side has IPv4, nginx writes that address as it is.
func addrPort(kind, host, port []byte) (netip.AddrPort, error) {
	a, ok := addr(host)
	if !ok || string(kind) == "TCP4" && !a.Is4() {
		return netip.AddrPort{}, fmt.Errorf("%w: %q is not an address of %s", ErrMalformed, host, kind)
	}
	n, err := strconv.ParseUint(string(port), 10, 16)
	if err != nil || len(port) > 1 && port[0] == '0' { // no leading zeros, as the specification says
		return netip.AddrPort{}, fmt.Errorf("%w: %q is not a port", ErrMalformed, port)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

const (
	commandLocal = 0x20 // version 2 in the upper half
	commandProxy = 0x21

	familyUnspec = 0x00
	familyTCP4   = 0x11
	familyUDP4   = 0x12
	familyTCP6   = 0x21
	familyUDP6   = 0x22
	familyUnix   = 0x31
	familyDgram  = 0x32
)

// lengthV2 reads the length field of the header at the beginning of b.
func (p *Policy) lengthV2(b []byte) (need int, err error) {
	if len(b) > 12 && b[12]&0xf0 != 0x20 {
		return 0, fmt.Errorf("%w: it is %d", ErrVersion, b[12]>>4)
	}
	if len(b) < fixed {
		return fixed, nil
	}
	need = fixed + int(binary.BigEndian.Uint16(b[14:]))
	if need > p.max() {
		return 0, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLong, need, p.max())
	}
	return need, nil
}

// parseV2 parses a header of version 2 that is all of b. Everything in a LOCAL header except
// its length is ignored: "The receiver must accept this connection as valid and must use the
// real connection endpoints and discard the protocol block including the family which is
// ignored" (the specification, 2.2).
func (i *Info) parseV2(b []byte) error {
	switch command := b[12]; command {
	case commandLocal:
		i.Version, i.Local = 2, true
		return nil
	case commandProxy:
		i.Version = 2
		return i.parseProxy(b)
	default:
		return fmt.Errorf("%w: command %d", ErrMalformed, command&0x0f)
	}
}

func (i *Info) parseProxy(b []byte) error {
	family, body := b[13], b[fixed:]
	size, ok := addressSize(family)
	switch {
	case !ok:
		return fmt.Errorf("%w: address family and transport %#02x", ErrMalformed, family)
	case len(body) < size:
		return fmt.Errorf("%w: %d bytes are too few for its addresses", ErrMalformed, len(b))
	}
	i.addresses(family, body)
	tlvs := body[size:]
	if err := check(tlvs); err != nil {
		if family == familyUnspec {
			return nil // addresses of an unknown kind, which the receiver "should ignore"
		}
		return err
	}
	if err := verify(b, tlvs); err != nil {
		return err
	}
	i.TLVs = append(i.TLVs, tlvs...)
	return nil
}

// addressSize returns the length of the addresses of a family. If only one of family and
// transport is unspecified, nothing defines that length, so such addresses are not read.
func addressSize(family byte) (size int, ok bool) {
	switch family {
	case familyUnspec:
		return 0, true
	case familyTCP4, familyUDP4:
		return 4 + 4 + 2 + 2, true
	case familyTCP6, familyUDP6:
		return 16 + 16 + 2 + 2, true
	case familyUnix, familyDgram:
		return 108 + 108, true
	default:
		return 0, false
	}
}

// addresses reads the addresses of a family. All their bytes are there. Addresses of other
// families than IP are of no use, and addresses of datagrams are of another protocol than this
// connection's. Then the client is the peer, as with UNSPEC. HAProxy (conn_recv_proxy) and
// nginx (ngx_proxy_protocol_v2_read) do the same.
func (i *Info) addresses(family byte, b []byte) {
	switch family {
	case familyTCP4:
		i.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[0:])), binary.BigEndian.Uint16(b[8:]))
		i.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:])), binary.BigEndian.Uint16(b[10:]))
	case familyTCP6:
		i.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[0:])).Unmap(), binary.BigEndian.Uint16(b[32:]))
		i.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[16:])).Unmap(), binary.BigEndian.Uint16(b[34:]))
	}
}

// addr parses an address without copying its text, which is a field of a buffer that is used
// again. netip.ParseAddr keeps only two parts of the text: the zone, and there is none
// here, and the text in its error, which is dropped.
func addr(text []byte) (a netip.Addr, ok bool) {
	if len(text) == 0 || bytes.IndexByte(text, '%') >= 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(unsafe.String(&text[0], len(text)))
	return a, err == nil
}
