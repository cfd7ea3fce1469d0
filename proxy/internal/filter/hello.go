package filter

import "bytes"

// encryptedWithin is how many bytes of a stream are searched for the beginning of TLS. Protocols that switch to TLS
// do so early.
const encryptedWithin = 16 << 10

// helloLength is how many bytes of a TLS record show that it is the first: its type, version and length, and the type
// and the first byte of the length of a ClientHello or ServerHello (RFC 8446, 5.1 and 4).
const helloLength = 7

// recordHandshake is the type of the first record.
const recordHandshake = 0x16

// sshBegins is the beginning of SSH (RFC 4253, 4.2).
const sshBegins = "SSH-"

// A hello looks for the beginning of TLS or SSH in the first bytes of a stream. The zero value is for the start of a
// stream.
type hello struct {
	seen  int // bytes of the stream, at most encryptedWithin
	first [len(sshBegins)]byte
	tls   int // bytes that match the first record of TLS so far
}

// begins reports whether TLS or SSH begins in b, the next bytes of the stream.
func (h *hello) begins(b []byte) bool {
	if h.seen >= encryptedWithin {
		return false
	}
	if h.seen < len(h.first) {
		n := copy(h.first[h.seen:], b)
		if h.seen+n == len(h.first) && string(h.first[:]) == sshBegins {
			return true
		}
	}
	b = b[:min(len(b), encryptedWithin-h.seen)]
	h.seen += len(b)
	for i := 0; i < len(b); i++ {
		if h.tls == 0 {
			n := bytes.IndexByte(b[i:], recordHandshake)
			if n < 0 {
				break
			}
			i += n
		}
		if h.record(b[i]) {
			return true
		}
	}
	return false
}

// record takes one more byte of a possible record, and reports whether it is the first record of TLS.
func (h *hello) record(c byte) bool {
	ok := true
	switch h.tls {
	case 1:
		ok = c == 3
	case 2:
		ok = c <= 4
	case 3:
		ok = c <= 0x41 // a record has at most 2^14 bytes
	case 5:
		ok = c == 1 || c == 2
	case 6:
		ok = c == 0
	}
	switch {
	case ok:
		h.tls++
	case c == recordHandshake:
		h.tls = 1
	default:
		h.tls = 0
	}
	if h.tls == helloLength {
		h.tls = 0
		return true
	}
	return false
}
