package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"strconv"
)

// A Connection is the contents of a header that is sent.
type Connection struct {
	// Source and Destination are the addresses of the client's connection. Both are mapped
	// into IPv6 if only one is of IPv4. If one is not valid (a unix socket) neither is sent.
	Source, Destination netip.AddrPort

	// Local marks the proxy's own connection (a health check) instead of a client's. Version 1
	// has no such command: there the addresses are sent, as the specification advises (2.1),
	// since some receivers refuse UNKNOWN.
	Local bool

	// The fields below are sent by version 2 alone.

	Authority string // the host that the client asked for: SNI; empty: not sent
	ALPN      string // the protocol agreed upon with the client; empty: not sent
	UniqueID  []byte // of the connection, at most 128 bytes; empty: not sent
	TLS       *TLS   // the client's TLS connection, if TLS was terminated

	// TLVs are the TLVs of the client's header ([Info.TLVs]). They are passed on, except padding
	// and TLVs of a type that the fields above contain.
	TLVs []byte

	// Checksum adds a CRC32C of the header.
	Checksum bool
}

// Append appends the header of version 1 or 2 for c, and returns the extended slice. It
// allocates only if b lacks capacity. TLVs that would make the header longer than 65551 bytes
// are left out.
func Append(b []byte, version int, c *Connection) []byte {
	if version == 1 {
		return c.appendV1(b)
	}
	return c.appendV2(b)
}

// addresses returns both addresses as the same family, and whether they are sent.
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
	kind := "PROXY TCP6 "
	if src.Is4() {
		kind = "PROXY TCP4 "
	}
	b = append(src.AppendTo(append(b, kind...)), ' ')
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
	c.putTLVs(&w)
	if c.Checksum {
		put(&w, TypeCRC32C, "\x00\x00\x00\x00")
	}
	b = w.b
	binary.BigEndian.PutUint16(b[start+14:], uint16(len(b)-start-fixed))
	if c.Checksum {
		binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[start:], castagnoli))
	}
	return b
}

// appendAddresses appends everything between the signature and the TLVs, with a length of 0. If the addresses
// are not sent the command is LOCAL, which every receiver accepts: the addresses of the socket count.
func (c *Connection) appendAddresses(b []byte) []byte {
	src, dst, ok := c.addresses()
	if !ok || c.Local {
		return append(b, commandLocal, familyUnspec, 0, 0)
	}
	family := byte(familyTCP6)
	if src.Is4() {
		family = familyTCP4
	}
	b, _ = src.AppendBinary(append(b, commandProxy, family, 0, 0))
	b, _ = dst.AppendBinary(b)
	b = binary.BigEndian.AppendUint16(b, c.Source.Port())
	return binary.BigEndian.AppendUint16(b, c.Destination.Port())
}

// putTLVs appends the TLVs: c's own, then the ones that are passed on.
func (c *Connection) putTLVs(w *writer) {
	if c.ALPN != "" {
		put(w, TypeALPN, c.ALPN)
	}
	if c.Authority != "" {
		put(w, TypeAuthority, c.Authority)
	}
	if len(c.UniqueID) > 0 && len(c.UniqueID) <= 128 {
		put(w, TypeUniqueID, c.UniqueID)
	}
	if c.TLS != nil {
		c.TLS.put(w)
	}
	for t, value := range All(c.TLVs) {
		if !c.replaces(t) {
			put(w, t, value)
		}
	}
}

// replaces reports whether a received TLV of type t is replaced or dropped instead of passed on.
func (c *Connection) replaces(t Type) bool {
	switch t {
	case TypeCRC32C, TypeNoop:
		return true
	case TypeALPN: // of the TLS that ended here, as far as there is any
		return c.ALPN != "" || c.TLS != nil
	case TypeAuthority:
		return c.Authority != "" || c.TLS != nil
	case TypeUniqueID:
		return len(c.UniqueID) > 0
	case TypeSSL:
		return c.TLS != nil
	default:
		return false
	}
}

// A writer appends TLVs to the header that begins at start, as long as the length field can
// hold its length.
type writer struct {
	b     []byte
	start int
}

// room reports whether a value of n bytes still fits, and a checksum after it.
func (w *writer) room(n int) bool {
	const checksum = tlvHeader + 4
	return len(w.b)-w.start-fixed+tlvHeader+n+checksum <= 0xffff
}

func put[T string | []byte](w *writer, t Type, value T) {
	if n := len(value); t == TypeCRC32C || w.room(n) {
		w.b = append(append(w.b, byte(t), byte(n>>8), byte(n)), value...)
	}
}
