package clienthello

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
)

const (
	extServerName = 0  // RFC 6066, 3
	extALPN       = 16 // RFC 7301, 3.1
	hostName      = 0  // the name type of a host

	maxExtensions = 256
	maxName       = 255 // TLSEXT_MAXLEN_host_name of OpenSSL
	maxProtocols  = 1024
)

// Parse parses the ClientHello at the beginning of b, which is whole according to [Length]. It
// does not read the bytes after it. Errors are those of Length, ErrIncomplete, and
// ErrMalformed if its name and protocols cannot be read for sure.
func Parse(b []byte) (Info, error) {
	need, err := Length(b)
	if err != nil {
		return Info{}, err
	}
	if need > len(b) {
		return Info{}, fmt.Errorf("%w: %d bytes of at least %d", ErrIncomplete, len(b), need)
	}
	var info Info
	if why := info.read(message(b[:need])); why != "" {
		return Info{}, fmt.Errorf("%w: %s", ErrMalformed, why)
	}
	return info, nil
}

// message returns the handshake message in records: a part of b if there is one record.
func message(b []byte) []byte {
	size := int(binary.BigEndian.Uint16(b[3:]))
	if len(b) == recordHeader+size {
		return b[recordHeader:]
	}
	whole := make([]byte, 0, len(b))
	for len(b) > 0 {
		end := recordHeader + int(binary.BigEndian.Uint16(b[3:]))
		whole, b = append(whole, b[recordHeader:end]...), b[end:]
	}
	return whole
}

// read reads a message, and returns what is wrong with it.
func (i *Info) read(message cryptobyte.String) (why string) {
	var session, suites, compression, extensions cryptobyte.String
	if !message.Skip(handshakeHeader+2+32) || !message.ReadUint8LengthPrefixed(&session) ||
		!message.ReadUint16LengthPrefixed(&suites) || len(suites)%2 != 0 || !message.ReadUint8LengthPrefixed(&compression) {
		return "it ends early"
	}
	if message.Empty() {
		return "" // of a client that knows no extensions
	}
	if !message.ReadUint16LengthPrefixed(&extensions) || !message.Empty() {
		return "its extensions do not end with it"
	}
	var seen [maxExtensions]uint16
	for n := 0; !extensions.Empty(); n++ {
		var kind uint16
		var body cryptobyte.String
		if n == len(seen) {
			return "it has too many extensions"
		}
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) {
			return "an extension ends early"
		}
		for _, other := range seen[:n] {
			if other == kind {
				return "an extension comes twice"
			}
		}
		seen[n] = kind
		switch {
		case kind == extServerName && !i.serverName(body):
			return "its server name cannot be read"
		case kind == extALPN && !i.protocols(body):
			return "its protocols cannot be read"
		}
	}
	return ""
}

// serverName parses the name; there must be exactly one. Servers compare names without regard to case, and some drop a
// dot at the end. Names outside of DNS have unknown results: nginx takes a.example:443 for a.example, and HAProxy
// .a.example for one of *.a.example.
func (i *Info) serverName(body cryptobyte.String) bool {
	list, ok := only16(body)
	var kind uint8
	var name cryptobyte.String
	if !ok || !list.ReadUint8(&kind) || kind != hostName || !list.ReadUint16LengthPrefixed(&name) || !list.Empty() || len(name) > maxName {
		return false
	}
	name = bytes.TrimSuffix(name, []byte{'.'})
	var lower [maxName]byte
	last := byte('.')
	for at, c := range name {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '.' && last == '.':
			return false
		case c != '.' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z'):
			return false
		}
		lower[at], last = c, c
	}
	if last == '.' {
		return false
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
	var buf [8]string // as many as most clients have
	found := buf[:0]
	for !list.Empty() {
		var name cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&name) || name.Empty() || len(found) == maxProtocols {
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

// only16 returns the contents of b if b is exactly a length of two bytes and as many bytes.
func only16(b cryptobyte.String) (body cryptobyte.String, ok bool) {
	ok = b.ReadUint16LengthPrefixed(&body) && b.Empty()
	return body, ok
}
