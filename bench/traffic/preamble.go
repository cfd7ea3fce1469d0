package traffic

import (
	"bytes"
	"encoding/binary"
)

// The parts of a preamble, which may precede the request of a connection. One is the header
// of the PROXY protocol's version 2, from a proxy. The other is a TLS record by which the
// proxy routes the client, a ClientHello that is never answered.
const (
	proxySignature  = "\r\n\r\n\x00\r\nQUIT\n"
	proxyHeaderSize = len(proxySignature) + 4
	recordHandshake = 0x16
	recordHeader    = 5
)

// Preamble returns how many bytes of b come before the request. As long as more bytes
// could still change the answer, whole is false.
func Preamble(b []byte) (n int, whole bool) {
	if len(b) < len(proxySignature) && bytes.HasPrefix([]byte(proxySignature), b) && len(b) > 0 {
		return 0, false
	}
	if bytes.HasPrefix(b, []byte(proxySignature)) {
		if len(b) < proxyHeaderSize {
			return 0, false
		}
		n = proxyHeaderSize + int(binary.BigEndian.Uint16(b[proxyHeaderSize-2:]))
		if len(b) <= n {
			return min(n, len(b)), false // a record may follow
		}
	}
	rest := b[n:]
	switch {
	case len(rest) == 0 || rest[0] != recordHandshake:
		return n, true
	case len(rest) < recordHeader:
		return n, false
	}
	n += recordHeader + int(binary.BigEndian.Uint16(rest[recordHeader-2:]))
	return min(n, len(b)), n <= len(b)
}

// Plain reports whether content that begins with b differs from a preamble, and from every
// request.
func Plain(b []byte) bool {
	return Classify(b) == KindEcho && b[0] != recordHandshake && b[0] != proxySignature[0]
}
