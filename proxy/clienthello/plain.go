package clienthello

import (
	"encoding/binary"

	"golang.org/x/crypto/cryptobyte"
)

// Extensions that crypto/tls reads (RFC 8446, 4.2; IANA's registry of them).
const (
	extServerName     = 0
	extStatusRequest  = 5
	extGroups         = 10
	extPointFormats   = 11
	extSignatures     = 13
	extALPN           = 16
	extTimestamps     = 18
	extMasterSecret   = 23
	extSessionTicket  = 35
	extPreSharedKey   = 41
	extEarlyData      = 42
	extVersions       = 43
	extCookie         = 44
	extPSKModes       = 45
	extCertificates   = 50 // signature_algorithms_cert
	extKeyShare       = 51
	extQUIC           = 57
	extEncryptedHello = 0xfe0d
	extRenegotiation  = 0xff01
)

const (
	hostName = 0 // the name type of a host: RFC 6066, 3

	// A hello with more of them is not plain.
	maxExtensions = 64
	maxName       = 255
	maxProtocols  = 8
)

// plain parses a hello of the usual kind: in one record, and with nothing in it that is
// malformed, encrypted or rare. For any other ok is false, and crypto/tls parses it. Tests
// compare both: whatever plain accepts, crypto/tls accepts as well, with the same result.
// plain allocates only its result, where crypto/tls allocates a connection, three copies of
// the message, and a list of each thing in it.
//
// b is exactly the hello, as long as [Length] returns.
func plain(b []byte) (info Info, ok bool) {
	if len(b) != recordHeader+int(binary.BigEndian.Uint16(b[3:])) {
		return info, false // in several records
	}
	s := cryptobyte.String(b[recordHeader+handshakeHeader:])
	var session, suites, compression, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) ||
		!s.ReadUint16LengthPrefixed(&suites) || len(suites)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&compression) ||
		!s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return info, false
	}
	var seen [maxExtensions]uint16
	for n := 0; !extensions.Empty(); n++ {
		var kind uint16
		var body cryptobyte.String
		if n == maxExtensions || !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) {
			return info, false
		}
		for _, other := range seen[:n] {
			if other == kind {
				return info, false
			}
		}
		seen[n] = kind
		if !info.extension(kind, body) || kind == extPreSharedKey && !extensions.Empty() {
			return info, false
		}
	}
	return info, true
}

// extension parses one of the extensions, and reports whether it is valid and usual.
func (i *Info) extension(kind uint16, body cryptobyte.String) bool {
	switch kind {
	case extServerName:
		return i.serverName(body)
	case extALPN:
		return i.protocols(body)
	case extGroups, extSignatures, extCertificates:
		list, ok := only16(body)
		return ok && len(list) > 0 && len(list)%2 == 0
	case extVersions:
		list, ok := only8(body)
		return ok && len(list) > 0 && len(list)%2 == 0
	case extPointFormats:
		list, ok := only8(body)
		return ok && len(list) > 0
	case extPSKModes, extRenegotiation:
		_, ok := only8(body)
		return ok
	case extStatusRequest:
		var ignored cryptobyte.String
		return body.Skip(1) && body.ReadUint16LengthPrefixed(&ignored) && body.ReadUint16LengthPrefixed(&ignored) && body.Empty()
	case extKeyShare:
		return keyShares(body)
	case extPreSharedKey:
		return preSharedKeys(body)
	case extMasterSecret, extTimestamps, extEarlyData:
		return body.Empty()
	case extEncryptedHello, extCookie, extQUIC:
		return false // rare
	default:
		return true // a session ticket, or an extension unknown to crypto/tls
	}
}

// serverName parses the name; there must be exactly one.
func (i *Info) serverName(body cryptobyte.String) bool {
	list, ok := only16(body)
	var kind uint8
	var name cryptobyte.String
	if !ok || !list.ReadUint8(&kind) || kind != hostName || !list.ReadUint16LengthPrefixed(&name) || !list.Empty() ||
		len(name) == 0 || len(name) > maxName || name[len(name)-1] == '.' {
		return false
	}
	var lower [maxName]byte
	for at, c := range name {
		switch {
		case c >= 0x80:
			return false
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		lower[at] = c
	}
	i.ServerName = string(lower[:len(name)])
	return true
}

// protocols parses the list of protocols.
func (i *Info) protocols(body cryptobyte.String) bool {
	list, ok := only16(body)
	if !ok || list.Empty() {
		return false
	}
	var buf [maxProtocols]string
	found := buf[:0]
	for !list.Empty() {
		var name cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&name) || name.Empty() || len(found) == len(buf) {
			return false
		}
		found = append(found, protocol(name))
	}
	i.ALPN = append(i.ALPN, found...)
	return true
}

// protocol returns a name, without an allocation for the most usual ones.
func protocol(name []byte) string {
	switch string(name) {
	case "h2":
		return "h2"
	case "http/1.1":
		return "http/1.1"
	default:
		return string(name)
	}
}

func keyShares(body cryptobyte.String) bool {
	list, ok := only16(body)
	for ok && !list.Empty() {
		var key cryptobyte.String
		ok = list.Skip(2) && list.ReadUint16LengthPrefixed(&key) && !key.Empty()
	}
	return ok
}

func preSharedKeys(body cryptobyte.String) bool {
	var identities, binders, one cryptobyte.String
	if !body.ReadUint16LengthPrefixed(&identities) || identities.Empty() ||
		!body.ReadUint16LengthPrefixed(&binders) || binders.Empty() || !body.Empty() {
		return false
	}
	for !identities.Empty() {
		if !identities.ReadUint16LengthPrefixed(&one) || one.Empty() || !identities.Skip(4) {
			return false
		}
	}
	for !binders.Empty() {
		if !binders.ReadUint8LengthPrefixed(&one) || one.Empty() {
			return false
		}
	}
	return true
}

// only8 returns the contents of b if b is exactly a length of one byte and as many bytes.
func only8(b cryptobyte.String) (body cryptobyte.String, ok bool) {
	ok = b.ReadUint8LengthPrefixed(&body) && b.Empty()
	return body, ok
}

// only16 is only8 with a length of two bytes.
func only16(b cryptobyte.String) (body cryptobyte.String, ok bool) {
	ok = b.ReadUint16LengthPrefixed(&body) && b.Empty()
	return body, ok
}
