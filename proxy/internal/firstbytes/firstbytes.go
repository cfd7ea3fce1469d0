// Package firstbytes recognises a client's protocol by the first bytes that it sends, and reads the properties that
// routes depend on. It looks at peeked bytes and consumes nothing, so they are relayed unchanged.
//
// A [Recogniser] is asked again and again, each time with all bytes so far, until it has nothing more to learn. Its
// results are [Facts]. If a property cannot be known, its verdict is [Doubt]. So bytes that a lenient server may take
// for HTTP never count as another protocol, even if a strict server refuses them. If there are two Host headers,
// neither counts.
package firstbytes

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/clienthello"
)

// A Protocol is a protocol that clients are recognised by.
type Protocol uint8

// The protocols, and two kinds of clients with bytes that show no protocol. Silence is for clients that wait for the
// server to speak first: this shows by time, not by bytes.
const (
	TLS      Protocol = iota
	HTTP1             // HTTP/1.0 and HTTP/1.1
	HTTP2             // with prior knowledge
	SSH               //
	Postgres          // version 3 of PostgreSQL's protocol
	Redis             // RESP, and some inline commands
	Silence

	// MalformedTLS is for clients with bytes that begin like TLS but are not a valid ClientHello. Whether they speak
	// TLS is in doubt.
	MalformedTLS

	Protocols // the number of protocols
)

// Names are the names of the protocols in a configuration.
var Names = [Protocols]string{"tls", "http1", "http2", "ssh", "postgres", "redis", "silence", "tls_malformed"}

// String returns the protocol's name in configurations, statuses and metrics.
func (p Protocol) String() string { return Names[p] }

// Parse returns the protocol with a name.
func Parse(name string) (p Protocol, ok bool) {
	i := slices.Index(Names[:], name)
	return Protocol(max(i, 0)), i >= 0
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

// A Verdict says what is known about a condition.
type Verdict uint8

// The verdicts. The zero value is Open.
const (
	Open  Verdict = iota // not known yet: more bytes may show it
	No                   // the condition is false
	Yes                  // the condition is true
	Doubt                // more bytes will not show it either
)

// And is Yes if both are Yes, and No if either is No, whatever the other is.
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

// Or is Yes if either is Yes, whatever the other is, and No if both are No.
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

// If returns Yes or No.
func If(is bool) Verdict {
	if is {
		return Yes
	}
	return No
}

// A Property is something that a client may have said. Its verdict is Yes if the client has said it, and No if it has
// not, or speaks another protocol.
type Property struct {
	Verdict Verdict
	Value   string
}

// Facts are what is known about a client by its bytes so far. In the zero value, for a client that nobody has looked
// at, everything is Open. Only the client's goroutine may use its Facts.
type Facts struct {
	// Hello is the ClientHello, if the client speaks TLS.
	Hello clienthello.Info
	// Host is the host of the first HTTP/1 request: without a port, in lower case, and without a dot at its end.
	Host Property
	// Path is the path of this request, as [CanonicalPath] returns it.
	Path Property
	// User and Database come from PostgreSQL's StartupMessage. Without a database in the message, Database is the
	// user's name, as in the server.
	User, Database Property
	// Request is the first message of a PostgreSQL client.
	Request PostgresRequest
	// Silent is set by the caller if the client should have said something by now, and has not.
	Silent bool
	// Why is the reason for the first doubt, or empty.
	Why string
	// HelloErr is why the client's ClientHello cannot be read, an error of package clienthello. It is nil if the
	// hello can be read, or if there is none.
	HelloErr error

	by       *Recogniser
	verdicts [Protocols]Verdict
	others   Set    // set by unless; empty: unless was not called
	open     Set    // protocols with something left to learn
	seen     int    // bytes
	scanned  int    // of the HTTP/1 header
	matched  uint64 // patterns that match
	failed   uint64 // patterns that do not match
}

// Seen returns how many bytes were looked at.
func (f *Facts) Seen() int { return f.seen }

// Judged returns how many of the bytes may have decided something, beside a valid hello.
func (f *Facts) Judged() int {
	if f.by == nil || f.verdicts[TLS] == Doubt {
		return f.seen
	}
	return min(f.seen, f.by.plain)
}

// Is says whether the client speaks a protocol. A protocol that the recogniser does not look for stays Open.
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

// Unread returns Silence or MalformedTLS if the client's first bytes cannot be read, because there are none, or no
// valid hello.
func (f *Facts) Unread() (p Protocol, ok bool) {
	switch {
	case f.Silent:
		return Silence, true
	case f.verdicts[TLS] == Doubt:
		return MalformedTLS, true
	}
	return 0, false
}

// Greeted notes a ClientHello that was already read.
func (f *Facts) Greeted(hello *clienthello.Info) { f.Hello, f.verdicts[TLS] = *hello, Yes }

// Recognised returns the protocol that the client certainly speaks.
func (f *Facts) Recognised() (p Protocol, ok bool) {
	for p := range Protocols {
		if f.Is(p) == Yes {
			return p, true
		}
	}
	return 0, false
}

// Matches says whether the bytes match a pattern of the recogniser that has looked at them.
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

// doubt notes why something will never be known.
func (f *Facts) doubt(why string) Verdict {
	if f.Why == "" {
		f.Why = why
	}
	return Doubt
}

func lowered(b []byte) string { return strings.ToLower(string(b)) }
