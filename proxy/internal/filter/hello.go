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
	last  [helloLength - 1]byte // the last bytes of the stream so far
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
	var across [2 * len(h.last)]byte // a record may begin before b
	n := copy(across[:], h.last[:])
	n += copy(across[n:], b)
	if hasRecord(across[:n]) || hasRecord(b) {
		return true
	}
	if keep := b[max(0, len(b)-len(h.last)):]; len(keep) > 0 {
		copy(h.last[:], h.last[len(keep):])
		copy(h.last[len(h.last)-len(keep):], keep)
	}
	return false
}

// hasRecord reports whether b has the beginning of the first record of TLS. Such beginnings may overlap.
func hasRecord(b []byte) bool {
	for {
		i := bytes.IndexByte(b, recordHandshake)
		if i < 0 || len(b)-i < helloLength {
			return false
		}
		if r := b[i:]; r[1] == 3 && r[2] <= 4 && r[3] <= 0x41 && (r[5] == 1 || r[5] == 2) && r[6] == 0 { // a record has at most 2^14 bytes
			return true
		}
		b = b[i+1:]
	}
}
