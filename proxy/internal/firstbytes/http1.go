package firstbytes

import (
	"bytes"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxHead is the longest header of an HTTP/1 request that is read, including the request line.
const MaxHead = 8 << 10

// lookHTTP1 reads the request line, and the header if a route needs the host.
func lookHTTP1(r *Recogniser, b []byte, f *Facts) (need int) {
	b = b[:min(len(b), MaxHead)]
	if f.verdicts[HTTP1] == Open {
		end, need := f.requestLine(r, b)
		if f.verdicts[HTTP1] != Yes {
			return need
		}
		f.scanned = end
		if !r.wants.Host {
			return 0
		}
	}
	return f.head(b)
}

// requestLine reads the first line, and returns where the header begins. Servers differ in the lines that they
// accept: some skip white space before the line, split it at any white space, or accept any bytes as a method. So
// only a complete line can show that the client does not speak HTTP/1. A byte that no well-formed line has decides
// earlier: the line is in doubt, unless the bytes turn out to be one of the other protocols that are looked for.
func (f *Facts) requestLine(r *Recogniser, b []byte) (end, need int) {
	if isSpace(b[0]) {
		f.verdicts[HTTP1] = f.doubt("there is white space before the first request")
		return 0, 0
	}
	for at := f.scanned; at < len(b); at++ {
		switch c := b[at]; {
		case c == '\r' && at+1 == len(b) && at+1 < MaxHead:
			f.scanned = at
			return 0, len(b) + 1
		case c == '\r' && at+1 < len(b) && b[at+1] == '\n':
			end = at + 2
			f.firstLine(b[:end])
			return end, 0
		case c == '\r' || c == '\n':
			f.verdicts[HTTP1] = f.doubt("the first line ends in a bare line feed or carriage return")
			return 0, 0
		case c < ' ' && c != '\t' || c == 0x7f:
			f.unless(r.binary)
			return 0, 0
		}
	}
	if len(b) >= MaxHead {
		f.verdicts[HTTP1] = f.doubt("the first line is too long")
		return 0, 0
	}
	f.scanned = len(b)
	return 0, len(b) + 1
}

// isSpace reports whether a server may skip c before a request, or accept it as a separator in the first line.
// (Python's str.split, in Latin-1.)
func isSpace(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r' || 0x1c <= c && c <= 0x1f || c == 0x85 || c == 0xa0
}

// unless leaves HTTP/1 open until it is known whether the client speaks one of the other protocols. If so, the client
// does not speak HTTP/1. Otherwise HTTP/1 is in doubt.
func (f *Facts) unless(others Set) { f.others = others | SetOf(Silence) }

// settle decides what unless has noted.
func (f *Facts) settle() {
	if f.others == 0 || f.verdicts[HTTP1] != Open {
		return
	}
	v := No
	for p := range Silence {
		if f.others.Has(p) {
			v = v.Or(f.verdicts[p])
		}
	}
	switch v {
	case Yes:
		f.verdicts[HTTP1] = No
	case No, Doubt:
		f.verdicts[HTTP1] = f.doubt("the first line is malformed, or binary")
	}
}

// firstLine judges a complete line, which ends in CR LF.
func (f *Facts) firstLine(line []byte) {
	if q, ok := parseLine(line); ok {
		f.Path, f.verdicts[HTTP1] = f.pathOf(&q), Yes
		return
	}
	first := 0
	for !isSpace(line[first]) {
		first++
	}
	switch {
	case string(line) == "PRI * HTTP/2.0\r\n":
		f.unless(SetOf(HTTP2))
	case looksLikeHTTP(line), bytes.ContainsAny(line[first:], "/\\"), slices.Contains(simpleMethods, lowered(line[:first])):
		f.verdicts[HTTP1] = f.doubt("the first line is malformed")
	default:
		f.verdicts[HTTP1] = No
	}
}

// simpleMethods are the methods of requests without a version. The target of such a request may lack a slash.
var simpleMethods = []string{"get", "head", "post"}

// looksLikeHTTP reports whether a line names the protocol.
func looksLikeHTTP(line []byte) bool { return strings.Contains(lowered(line), "http/") }

// A requestTarget is the target in a request line, in its parts: RFC 9112, 3.2.
type requestTarget struct {
	authority string // "" if the target names no host
	path      string // with a query; "" if there is none
	valid     bool   // the target has one of the four forms
}

// parseLine reads a request line, and reports whether it is well-formed: RFC 9112, 3.
func parseLine(line []byte) (q requestTarget, ok bool) {
	text, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok {
		return q, false
	}
	method, rest, _ := strings.Cut(text, " ")
	target, version, _ := strings.Cut(rest, " ")
	if target == "" || !isToken([]byte(method)) || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return q, false
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] >= 0x7f {
			return q, false
		}
	}
	return parseTarget(target, strings.EqualFold(method, "CONNECT")), true
}

func parseTarget(target string, connect bool) (q requestTarget) {
	scheme, rest, absolute := strings.Cut(target, "://")
	switch {
	case target == "*":
		q.valid = true
	case target[0] == '/':
		q.path, q.valid = target, true
	case connect:
		q.authority, q.valid = target, !strings.ContainsAny(target, "/?#")
	case absolute && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		end := strings.IndexAny(rest+"/", "/?#")
		q.authority, q.path, q.valid = rest[:end], rest[end:], end > 0
		if q.path == "" {
			q.path = "/"
		} // http://h?/x has no path by RFC 3986, and the path /x by HAProxy: it stays in doubt
	}
	return q
}

func (f *Facts) pathOf(q *requestTarget) Property {
	raw, _, _ := strings.Cut(q.path, "?")
	path, ok := CanonicalPath(raw)
	switch {
	case !q.valid:
		return Property{Verdict: f.doubt("the target of the request is malformed")}
	case q.path == "":
		return Property{Verdict: No}
	case !ok:
		return Property{Verdict: f.doubt("servers may interpret the path differently")}
	}
	return Property{Yes, path}
}

// head waits for the end of the header, and reads the host. If only some servers accept a line end, the host is in
// doubt.
func (f *Facts) head(b []byte) (need int) {
	for at := f.scanned; at < len(b); at++ {
		c := b[at]
		switch {
		case c == '\n' && b[at-1] != '\r', c != '\n' && b[at-1] == '\r', c == 0:
			f.Host.Verdict = f.doubt("the header has a bare line feed, a bare carriage return or a zero byte")
			return 0
		case c == '\n' && b[at-2] == '\n': // at least the request line comes before
			f.Host = f.hostOf(b[:at-1])
			return 0
		}
	}
	f.scanned = len(b)
	if len(b) >= MaxHead {
		f.Host.Verdict = f.doubt("the header is too long")
		return 0
	}
	return len(b) + 1
}

// hostOf returns the host that a complete header names: in its request line, in its only Host field, or in both if
// they agree.
func (f *Facts) hostOf(head []byte) Property {
	line, fields, _ := bytes.Cut(head, []byte("\n"))
	host, why := hostField(fields)
	if why != "" {
		return Property{Verdict: f.doubt(why)}
	}
	q, _ := parseLine(append(bytes.Clone(line), '\n'))
	if !q.valid {
		return Property{Verdict: f.doubt("the target of the request is malformed")}
	}
	if q.authority != "" {
		named, v := CanonicalHost(q.authority)
		if v != Yes || host.Verdict == Yes && host.Value != named {
			return Property{Verdict: f.doubt("the request names two hosts, or no valid host")}
		}
		return Property{Yes, named}
	}
	return host
}

// hostField returns the only Host field, or says why the host is not known.
func hostField(fields []byte) (host Property, why string) {
	host.Verdict = No
	seen := false
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		if len(line) == 0 {
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !isToken(name) || !isText(value) {
			return host, "a field of the header is malformed"
		}
		if !strings.EqualFold(string(name), "Host") {
			continue
		}
		if seen {
			return host, "the request has two Host fields"
		}
		seen = true
		host.Value, host.Verdict = CanonicalHost(string(bytes.Trim(value, " \t")))
		if host.Verdict == Doubt {
			return host, "the Host field is malformed"
		}
	}
	return host, ""
}

// isToken reports whether b is a valid field name: RFC 9110, 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		if !isLetter(c) && !('0' <= c && c <= '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return len(b) > 0
}

// isText reports whether b may be a field's value.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// CanonicalHost returns the host of a Host field or an authority: without a port, in lower case, and without a dot at
// its end. The verdict is No if there is no host, and Doubt if it is not valid.
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

// isPort reports whether s is empty, or a colon and a port. The port may be missing.
func isPort(s string) bool {
	digits, colon := strings.CutPrefix(s, ":")
	_, err := strconv.ParseUint(digits, 10, 32)
	return colon && len(digits) <= len("65535") && (digits == "" || err == nil) || s == ""
}

// CanonicalPath returns a request's path in the form that routes compare: escapes (%41) are decoded once, and
// everything else, including case, stays as it is. ok is false for a path that servers read in different ways: a path
// with a segment "." or "..", an empty segment before the last, a backslash or semicolon, a byte that is not
// printable ASCII and not escaped, an invalid escape, or an escaped slash, percent sign or control character.
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

func unescaped(raw string) (path string, ok bool) {
	path, err := url.PathUnescape(raw)
	if err != nil || !isASCII(raw) || strings.Count(path, "/") != strings.Count(raw, "/") || strings.Contains(path, "%") {
		return "", false
	}
	for i := range len(path) {
		if path[i] < ' ' || path[i] == 0x7f {
			return "", false
		}
	}
	return path, true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
