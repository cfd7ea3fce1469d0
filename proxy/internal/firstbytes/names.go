package firstbytes

import (
	"net/netip"
	"strings"
)

// CanonicalHost returns the host of a Host field's value or an authority: without its port, in lower case, and without a
// dot at its end. The verdict is No if there is none, and Doubt if it is not valid.
func CanonicalHost(s string) (host string, v Verdict) {
	if s == "" {
		return "", No
	}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		literal, port, ok := strings.Cut(rest, "]")
		addr, err := netip.ParseAddr(literal)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" || !isPort(port) {
			return "", Doubt
		}
		return "[" + addr.String() + "]", Yes
	}
	host = s
	if at := strings.IndexByte(s, ':'); at >= 0 {
		if !isPort(s[at:]) {
			return "", Doubt
		}
		host = s[:at]
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if len(host) > 253 {
		return "", Doubt
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return "", Doubt
		}
		for i := range len(label) {
			if c := label[i]; !isLetter(c) && !('0' <= c && c <= '9') && c != '-' && c != '_' {
				return "", Doubt
			}
		}
	}
	return host, Yes
}

// isPort reports whether s is empty, or a colon and a port, which may be missing.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) > len(":65535") {
		return false
	}
	for i := 1; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// CanonicalPath returns a request's path as routes compare it: its escapes (%41) decoded once, and otherwise byte for byte,
// so in its case. ok is false for a path that not all servers read alike: with a segment "." or ".."; an empty one that is not the last; a backslash or semicolon; a byte that is
// not printable ASCII, unless it is escaped; an escape of a slash, a percent sign or a control character, or that is none.
func CanonicalPath(raw string) (path string, ok bool) {
	if strings.IndexByte(raw, '%') >= 0 {
		if raw, ok = unescaped(raw); !ok {
			return "", false
		}
	} else if !isASCII(raw) {
		return "", false
	}
	if !strings.HasPrefix(raw, "/") || strings.ContainsAny(raw, "\\;#?") || strings.Contains(raw, "//") {
		return "", false
	}
	for segment := range strings.SplitSeq(raw[1:], "/") {
		if segment == "." || segment == ".." {
			return "", false
		}
	}
	return raw, true
}

// unescaped decodes the escapes of a path.
func unescaped(raw string) (path string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '%' {
			if c <= ' ' || c >= 0x7f {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(raw) {
			return "", false
		}
		hi, lo := hexDigit(raw[i+1]), hexDigit(raw[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		c = byte(hi<<4 | lo)
		if c < ' ' || c == 0x7f || c == '/' || c == '%' {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
