package header

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"strconv"
)

// A Connection is what is told of one to those it is sent on to.
type Connection struct {
	// Source and Destination are the client's connection's: where it came from, and
	// where it wanted to go. Both are mapped into IPv6 if only one is of IPv4. If one
	// is not valid (a unix socket) neither is told.
	Source, Destination netip.AddrPort

	// Local: this is no client's connection, but the proxy's own (a health check). Version
	// 1 has no such command: there the addresses are told, as the specification advises
	// (2.1), since some receivers refuse UNKNOWN.
	Local bool

	// Version 2 alone tells what follows.

	Authority string // the host that the client asked for: SNI; empty: not told
	ALPN      string // the protocol agreed upon with the client; empty: not told
	UniqueID  []byte // of the connection, at most 128 bytes; empty: not told
	TLS       *TLS   // how the client came, if TLS was terminated

	// TLVs came in the client's header, and are passed on ([Info.TLVs]), but for
	// those of a type that is told by the fields above, and for padding.
	TLVs []byte

	// Checksum adds a CRC32C of the header.
	Checksum bool
}

// Append appends the header of version 1 or 2 that tells of c, and returns the longer
// slice. It allocates only if b has not room for it. TLVs that would make it longer
// than 65551 bytes are left out.
func Append(b []byte, version int, c *Connection) []byte {
	if version == 1 {
		return c.appendV1(b)
	}
	return c.appendV2(b)
}

// addresses returns both addresses as the same family, if they are told.
func (c *Connection) addresses() (src, dst netip.Addr, ok bool) {
	src, dst = c.Source.Addr().Unmap().WithZone(""), c.Destination.Addr().Unmap().WithZone("")
	if !src.IsValid() || !dst.IsValid() {
		return src, dst, false
	}
	if src.Is4() != dst.Is4() {
		src, dst = netip.AddrFrom16(src.As16()), netip.AddrFrom16(dst.As16())
	}
	return src, dst, true
}

func (c *Connection) appendV1(b []byte) []byte {
	src, dst, ok := c.addresses()
	if !ok {
		return append(b, "PROXY UNKNOWN\r\n"...)
	}
	if src.Is4() {
		b = append(b, "PROXY TCP4 "...)
	} else {
		b = append(b, "PROXY TCP6 "...)
	}
	b = append(src.AppendTo(b), ' ')
	b = append(dst.AppendTo(b), ' ')
	b = append(strconv.AppendUint(b, uint64(c.Source.Port()), 10), ' ')
	b = strconv.AppendUint(b, uint64(c.Destination.Port()), 10)
	return append(b, "\r\n"...)
}

func (c *Connection) appendV2(b []byte) []byte {
	start := len(b)
	b = append(b, signature...)
	b = c.appendAddresses(b)
	w := writer{b: b, start: start}
	c.tell(&w)
	if c.Checksum {
		w.put(TypeCRC32C, "\x00\x00\x00\x00")
	}
	b = w.b
	binary.BigEndian.PutUint16(b[start+14:], uint16(len(b)-start-fixed))
	if c.Checksum {
		binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[start:], castagnoli))
	}
	return b
}

// appendAddresses appends all between the signature and the TLVs, with a length of 0.
// Where addresses are not told the command is LOCAL, which every receiver accepts:
// those of the socket count.
func (c *Connection) appendAddresses(b []byte) []byte {
	src, dst, ok := c.addresses()
	switch {
	case !ok || c.Local:
		return append(b, commandLocal, familyUnspec, 0, 0)
	case src.Is4():
		b = append(b, commandProxy, familyTCP4, 0, 0)
		s, d := src.As4(), dst.As4()
		b = append(append(b, s[:]...), d[:]...)
	default:
		b = append(b, commandProxy, familyTCP6, 0, 0)
		s, d := src.As16(), dst.As16()
		b = append(append(b, s[:]...), d[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, c.Source.Port())
	return binary.BigEndian.AppendUint16(b, c.Destination.Port())
}

// tell appends the TLVs: ours, then those passed on.
func (c *Connection) tell(w *writer) {
	if c.ALPN != "" {
		w.put(TypeALPN, c.ALPN)
	}
	if c.Authority != "" {
		w.put(TypeAuthority, c.Authority)
	}
	if len(c.UniqueID) > 0 && len(c.UniqueID) <= 128 {
		w.putBytes(TypeUniqueID, c.UniqueID)
	}
	if c.TLS != nil {
		c.TLS.put(w)
	}
	for t, value := range All(c.TLVs) {
		if !c.tells(t) {
			w.putBytes(t, value)
		}
	}
}

// tells whether a TLV of a type that came is not passed on.
func (c *Connection) tells(t Type) bool {
	switch t {
	case TypeCRC32C, TypeNoop:
		return true
	case TypeALPN:
		return c.ALPN != ""
	case TypeAuthority:
		return c.Authority != ""
	case TypeUniqueID:
		return len(c.UniqueID) > 0
	case TypeSSL:
		return c.TLS != nil
	default:
		return false
	}
}

// A writer appends TLVs to the header that begins at start, as long as its length can
// be told.
type writer struct {
	b     []byte
	start int
}

// room tells whether a value of n bytes still fits, and a checksum after it.
func (w *writer) room(n int) bool {
	const checksum = tlvHeader + 4
	return len(w.b)-w.start-fixed+tlvHeader+n+checksum <= 0xffff
}

func (w *writer) put(t Type, value string) {
	if t == TypeCRC32C || w.room(len(value)) {
		w.b = append(w.begin(t, len(value)), value...)
	}
}

func (w *writer) putBytes(t Type, value []byte) {
	if w.room(len(value)) {
		w.b = append(w.begin(t, len(value)), value...)
	}
}

func (w *writer) begin(t Type, n int) []byte {
	return append(w.b, byte(t), byte(n>>8), byte(n))
}
