package clienthello

import "encoding/binary"

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
	s := unread(b[recordHeader+handshakeHeader:])
	var session, suites, compression, extensions unread
	if !s.skip(2+32) || !s.vector8(&session) || !s.vector16(&suites) || len(suites)%2 != 0 ||
		!s.vector8(&compression) || !s.vector16(&extensions) || len(s) > 0 {
		return info, false
	}
	var seen [maxExtensions]uint16
	for n := 0; len(extensions) > 0; n++ {
		var body unread
		if n == maxExtensions || len(extensions) < 2 {
			return info, false
		}
		kind := binary.BigEndian.Uint16(extensions)
		if extensions = extensions[2:]; !extensions.vector16(&body) {
			return info, false
		}
		for _, other := range seen[:n] {
			if other == kind {
				return info, false
			}
		}
		seen[n] = kind
		if !info.extension(kind, body) || kind == extPreSharedKey && len(extensions) > 0 {
			return info, false
		}
	}
	return info, true
}

// extension parses one of the extensions, and reports whether it is valid and usual.
func (i *Info) extension(kind uint16, body unread) bool {
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
		var ignored unread
		return body.skip(1) && body.vector16(&ignored) && body.vector16(&ignored) && len(body) == 0
	case extKeyShare:
		return keyShares(body)
	case extPreSharedKey:
		return preSharedKeys(body)
	case extMasterSecret, extTimestamps, extEarlyData:
		return len(body) == 0
	case extEncryptedHello, extCookie, extQUIC:
		return false // rare
	default:
		return true // a session ticket, or an extension unknown to crypto/tls
	}
}

// serverName parses the name; there must be exactly one.
func (i *Info) serverName(body unread) bool {
	list, ok := only16(body)
	var name unread
	if !ok || len(list) == 0 || list[0] != hostName {
		return false
	}
	if list = list[1:]; !list.vector16(&name) || len(list) > 0 || len(name) == 0 || len(name) > maxName || name[len(name)-1] == '.' {
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
func (i *Info) protocols(body unread) bool {
	list, ok := only16(body)
	if !ok || len(list) == 0 {
		return false
	}
	var buf [maxProtocols]string
	found := buf[:0]
	for len(list) > 0 {
		var name unread
		if !list.vector8(&name) || len(name) == 0 || len(found) == len(buf) {
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

func keyShares(body unread) bool {
	list, ok := only16(body)
	for ok && len(list) > 0 {
		var key unread
		ok = list.skip(2) && list.vector16(&key) && len(key) > 0
	}
	return ok
}

func preSharedKeys(body unread) bool {
	var identities, binders, one unread
	if !body.vector16(&identities) || len(identities) == 0 || !body.vector16(&binders) || len(binders) == 0 || len(body) > 0 {
		return false
	}
	for len(identities) > 0 {
		if !identities.vector16(&one) || len(one) == 0 || !identities.skip(4) {
			return false
		}
	}
	for len(binders) > 0 {
		if !binders.vector8(&one) || len(one) == 0 {
			return false
		}
	}
	return true
}

// only8 returns the contents of b if b is exactly a vector whose length has one byte.
func only8(b unread) (body unread, ok bool) {
	ok = b.vector8(&body) && len(b) == 0
	return body, ok
}

// only16 is only8 with a length of two bytes.
func only16(b unread) (body unread, ok bool) {
	ok = b.vector16(&body) && len(b) == 0
	return body, ok
}

// unread is the rest of a message. Its methods are small enough to be inlined, which those of cryptobyte are not:
// which takes more than a third of the time off a hello (BenchmarkParse).
type unread []byte

// skip leaves n bytes out, and reports whether there are as many.
func (u *unread) skip(n int) bool {
	if len(*u) < n {
		return false
	}
	*u = (*u)[n:]
	return true
}

// vector8 takes a vector (RFC 8446, 3.4) whose length has one byte.
func (u *unread) vector8(body *unread) bool {
	b := *u
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return false
	}
	end := 1 + int(b[0])
	*body, *u = b[1:end], b[end:]
	return true
}

// vector16 takes one whose length has two bytes.
func (u *unread) vector16(body *unread) bool {
	b := *u
	if len(b) < 2 {
		return false
	}
	end := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < end {
		return false
	}
	*body, *u = b[2:end], b[end:]
	return true
}
