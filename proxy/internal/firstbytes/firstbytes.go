// Package firstbytes recognises a client's protocol by the first bytes that it sends, and reads there the
// properties that routes depend on. It reads peeked bytes and consumes nothing, so that they are relayed unchanged.
//
// A [Recogniser] is asked again and again, each time with all bytes so far, until it has nothing more to learn. Its
// results are [Facts]. A property that cannot be learned is a [Doubt], a verdict of its own: bytes that a lenient server
// may take for HTTP, though a strict one refuses them, are never said to be none, and of two Host headers neither counts.
package firstbytes

import (
	"strings"

	"github.com/penstock/penstock/proxy/clienthello"
)

// A Protocol is one that clients are recognised by.
type Protocol uint8

// Protocols that bytes show, and two others. Silence is that of clients that wait for the server to speak first: no byte shows it, but time.
const (
	TLS      Protocol = iota
	HTTP1             // HTTP/1.0 and HTTP/1.1
	HTTP2             // with prior knowledge
	SSH               //
	Postgres          // version 3 of PostgreSQL's protocol
	Redis             // RESP, and some inline commands
	Silence

	// MalformedTLS is that of clients whose bytes begin as TLS and show no valid ClientHello. TLS is in doubt then.
	MalformedTLS

	Protocols // how many there are
)

var names = [Protocols]string{"tls", "http1", "http2", "ssh", "postgres", "redis", "silence", "tls_malformed"}

// String is its name in configurations, statuses and metrics.
func (p Protocol) String() string { return names[p] }

// Parse returns the protocol of a name.
func Parse(name string) (p Protocol, ok bool) {
	for i, each := range names {
		if each == name {
			return Protocol(i), true
		}
	}
	return 0, false
}

// A Set is a set of protocols.
type Set uint8

// SetOf returns the set of some protocols.
func SetOf(list ...Protocol) (s Set) {
	for _, p := range list {
		s |= 1 << p
	}
	return s
}

// Has reports whether p is in the set.
func (s Set) Has(p Protocol) bool { return s&(1<<p) != 0 }

// A Verdict is the present knowledge of a condition.
type Verdict uint8

// Verdicts. The zero value is Open.
const (
	Open  Verdict = iota // not known yet: more bytes may show it
	No                   // it is not so
	Yes                  // it is so
	Doubt                // it will not be known, however the bytes go on
)

// And is Yes if both are, and No if one is, whichever verdict the other has.
func (v Verdict) And(o Verdict) Verdict {
	switch {
	case v == No || o == No:
		return No
	case v == Yes:
		return o
	case o == Yes || v == Doubt:
		return v
	}
	return o
}

// Or is Yes if one is, whichever verdict the other has, and No if both are.
func (v Verdict) Or(o Verdict) Verdict {
	switch {
	case v == Yes || o == Yes:
		return Yes
	case v == No:
		return o
	case o == No || v == Open:
		return v
	}
	return o
}

// If is Yes or No.
func If(is bool) Verdict {
	if is {
		return Yes
	}
	return No
}

// A Property is something that a client has said. Its verdict is Yes if it has, and No if it has not, or speaks another
// protocol.
type Property struct {
	Verdict Verdict
	Value   string
}

// Facts are the results of looking at a client's bytes so far. The zero value is those of a client that was not looked at, of which
// everything is Open. They belong to their client's goroutine.
type Facts struct {
	// Hello is the ClientHello, if the client speaks TLS.
	Hello clienthello.Info
	// Host is the host of the first request of HTTP/1: without its port, in lower case, and without a dot at its end.
	Host Property
	// Path is the path of that request, as [CanonicalPath] returns it.
	Path Property
	// User and Database are those of PostgreSQL's StartupMessage. The database is that of the user's name if it names none,
	// as with the server.
	User, Database Property
	// Request is the first message of a client of PostgreSQL.
	Request PostgresRequest
	// Silent is set by the caller if the client was to have said something by now, and has not.
	Silent bool
	// Why is the reason of the first doubt; empty: there is none.
	Why string
	// HelloErr is why the client's ClientHello cannot be read, an error of package clienthello; nil: it can, or there is none.
	HelloErr error

	by       *Recogniser
	verdicts [Protocols]Verdict
	others   Set    // see unless; not empty: it was noted
	open     Set    // protocols of which there is more to learn
	seen     int    // bytes
	scanned  int    // of the header of HTTP/1
	matched  uint64 // patterns that match
	failed   uint64 // patterns that do not
}

// Seen is how many bytes were looked at.
func (f *Facts) Seen() int { return f.seen }

// Is says whether the client speaks a protocol. One that the recogniser does not look for stays Open.
func (f *Facts) Is(p Protocol) Verdict {
	switch p {
	case Silence:
		switch {
		case f.Silent:
			return Yes
		case f.seen > 0:
			return No
		}
		return Open
	case MalformedTLS:
		switch f.verdicts[TLS] {
		case Doubt:
			return Yes
		case Open:
			return Open
		}
		return No
	}
	return f.verdicts[p]
}

// Unread returns the protocol of clients whose first bytes cannot be read: those who send none, or no valid hello.
func (f *Facts) Unread() (p Protocol, ok bool) {
	switch {
	case f.Silent:
		return Silence, true
	case f.verdicts[TLS] == Doubt:
		return MalformedTLS, true
	}
	return 0, false
}

// Greeted notes a ClientHello that was read already.
func (f *Facts) Greeted(hello *clienthello.Info) { f.Hello, f.verdicts[TLS] = *hello, Yes }

// Recognised returns the protocol that the client is known to speak.
func (f *Facts) Recognised() (p Protocol, ok bool) {
	for p := range Protocols {
		if f.Is(p) == Yes {
			return p, true
		}
	}
	return 0, false
}

// Matches says whether the bytes match a pattern of a recogniser, the one that has looked at them.
func (f *Facts) Matches(r *Recogniser, pattern int) Verdict {
	switch bit := uint64(1) << pattern; {
	case f.by != r:
		return Open
	case f.matched&bit != 0:
		return Yes
	case f.failed&bit != 0:
		return No
	}
	return Open
}

// doubt notes why something will not be known.
func (f *Facts) doubt(why string) Verdict {
	if f.Why == "" {
		f.Why = why
	}
	return Doubt
}

// lowered returns b in lower case.
func lowered(b []byte) string { return strings.ToLower(string(b)) }
