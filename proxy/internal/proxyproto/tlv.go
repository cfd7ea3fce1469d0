package proxyproto

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
)

// A Type is the type of a TLV. The names are the specification's, 2.2.
type Type byte

const (
	TypeALPN      Type = 0x01 // the protocol spoken in the connection
	TypeAuthority Type = 0x02 // the host that the client asked for: SNI
	TypeCRC32C    Type = 0x03 // of the whole header
	TypeNoop      Type = 0x04 // padding
	TypeUniqueID  Type = 0x05 // of the connection, up to 128 bytes
	TypeSSL       Type = 0x20 // the client's TLS connection; holds TLVs of its own
)

const tlvHeader = 3 // type, length (2)

// check checks that raw consists of whole TLVs only.
func check(raw []byte) error {
	for len(raw) > 0 {
		if len(raw) < tlvHeader || len(raw) < tlvHeader+int(binary.BigEndian.Uint16(raw[1:])) {
			return fmt.Errorf("%w: a TLV is longer than the header", ErrMalformed)
		}
		raw = raw[tlvHeader+int(binary.BigEndian.Uint16(raw[1:])):]
	}
	return nil
}

// All iterates over TLVs as they are in [Info.TLVs]. The values are borrowed from raw.
func All(raw []byte) iter.Seq2[Type, []byte] {
	return func(yield func(Type, []byte) bool) {
		for len(raw) >= tlvHeader {
			end := tlvHeader + int(binary.BigEndian.Uint16(raw[1:]))
			if end > len(raw) || !yield(Type(raw[0]), raw[tlvHeader:end]) {
				return
			}
			raw = raw[end:]
		}
	}
}

// Find returns the value of the first TLV of a type, borrowed from raw.
func Find(raw []byte, t Type) (value []byte, ok bool) {
	for each, value := range All(raw) {
		if each == t {
			return value, true
		}
	}
	return nil, false
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeros      [4]byte
)

// verify checks the header b against the checksum in tlvs, which are its end, if there is one.
// The checksum is computed with zeros in its own place.
func verify(b, tlvs []byte) error {
	value, ok := Find(tlvs, TypeCRC32C)
	if !ok {
		return nil
	}
	if len(value) != 4 {
		return fmt.Errorf("%w: a CRC32C of %d bytes", ErrMalformed, len(value))
	}
	at := len(b) - len(tlvs) + cap(tlvs) - cap(value)
	sum := crc32.Update(0, castagnoli, b[:at])
	sum = crc32.Update(sum, castagnoli, zeros[:])
	sum = crc32.Update(sum, castagnoli, b[at+4:])
	if sum != binary.BigEndian.Uint32(value) {
		return ErrChecksum
	}
	return nil
}
