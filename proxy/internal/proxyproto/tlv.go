package proxyproto

import (
	"crypto/tls"
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

// verify checks the header b against the checksum in tlvs, the end of the header, if there is
// a checksum. The checksum is computed with zeros in its own place.
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

// A TLS describes the TLS connection of a client, as the TLV of type SSL and the TLVs within it do (the
// specification, 2.2.6).
type TLS struct {
	Version string // "TLSv1.3"
	Cipher  string // "TLS_AES_128_GCM_SHA256"

	// CommonName is of the verified certificate that the client has shown in this session or
	// in the session that this one resumes. Certificate is set if there is such a certificate, and Resumed in the second case.
	Certificate bool
	Resumed     bool
	CommonName  string
}

// The bits of the field client, and the types within.
const (
	clientSSL      = 0x01
	clientCertConn = 0x02
	clientCertSess = 0x04

	subtypeVersion    = 0x21
	subtypeCommonName = 0x22
	subtypeCipher     = 0x23
)

// TLSOf describes a terminated connection.
func TLSOf(cs *tls.ConnectionState) *TLS {
	t := &TLS{Cipher: tls.CipherSuiteName(cs.CipherSuite)}
	switch cs.Version {
	case tls.VersionTLS10:
		t.Version = "TLSv1"
	case tls.VersionTLS11:
		t.Version = "TLSv1.1"
	case tls.VersionTLS12:
		t.Version = "TLSv1.2"
	default:
		t.Version = "TLSv1.3"
	}
	if len(cs.PeerCertificates) > 0 {
		t.Certificate, t.Resumed = true, cs.DidResume
		t.CommonName = cs.PeerCertificates[0].Subject.CommonName
	}
	return t
}

func (t *TLS) put(w *writer) {
	size := 5 + 3*tlvHeader + len(t.Version) + len(t.Cipher) + len(t.CommonName)
	if !w.room(size) {
		return
	}
	at := len(w.b)
	client, verify := byte(clientSSL), uint32(1) // 0: a certificate was shown and verified
	if t.Certificate {
		client, verify = clientSSL|clientCertSess, 0
		if !t.Resumed {
			client |= clientCertConn
		}
	}
	w.b = append(w.b, byte(TypeSSL), 0, 0, client)
	w.b = binary.BigEndian.AppendUint32(w.b, verify)
	put(w, subtypeVersion, t.Version)
	if t.CommonName != "" {
		put(w, subtypeCommonName, t.CommonName)
	}
	if t.Cipher != "" {
		put(w, subtypeCipher, t.Cipher)
	}
	binary.BigEndian.PutUint16(w.b[at+1:], uint16(len(w.b)-at-tlvHeader))
}
