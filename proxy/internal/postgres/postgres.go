// Package postgres reads the first messages of a client of PostgreSQL: requests for encryption, requests to cancel, and
// the startup message (PostgreSQL, "Message Formats", version 3; src/include/libpq/pqcomm.h).
package postgres

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Kind is the kind of a message.
type Kind uint8

const (
	// Startup asks for a session: with a user, a database and other parameters.
	Startup Kind = iota
	// SSLRequest asks for TLS. The answer is a byte: Accepted or Declined.
	SSLRequest
	// GSSENCRequest asks for encryption by GSSAPI. The answer is the same.
	GSSENCRequest
	// CancelRequest asks for the end of a query of another session. There is no answer.
	CancelRequest
	// Hello is no message of PostgreSQL but a TLS record: a client that begins TLS without asking (PostgreSQL 17,
	// sslnegotiation=direct).
	Hello
)

// The answers to an [SSLRequest] and a [GSSENCRequest].
const (
	Accepted = 'S'
	Declined = 'N'
)

// Protocol is the application protocol of TLS that a client without an [SSLRequest] must offer (src/include/libpq/pqcomm.h,
// PG_ALPN_PROTOCOL).
const Protocol = "postgresql"

// The codes of requests, in place of a version.
const (
	CodeCancel = 1234<<16 | 5678
	CodeSSL    = 1234<<16 | 5679
	CodeGSSENC = 1234<<16 | 5680
)

const (
	major       = 3
	requestSize = 8
	// A CancelRequest has a secret of 4 bytes up to version 3.0, and of up to 256 later.
	minCancel       = 16
	recordHandshake = 0x16
)

// MaxCancel is the longest CancelRequest.
const MaxCancel = 12 + 256

// Max is the longest startup message that servers take. MAX_STARTUP_PACKET_LENGTH does not count the 4 bytes of the
// length itself. No other message is longer.
const Max = 10_000 + 4

// MaxName is how many bytes of a user's or a database's name a server knows (NAMEDATALEN is 64, with a zero at the end).
// Servers cut longer names.
const MaxName = 63

// Reasons to refuse a client.
var (
	// ErrNotPostgres: its first bytes are no message of PostgreSQL.
	ErrNotPostgres = errors.New("the client does not speak PostgreSQL: it did not begin with a message of version 3")
	// ErrMalformed: its startup message cannot be read.
	ErrMalformed = errors.New("malformed startup message of PostgreSQL")
	// ErrEarly: it has sent bytes behind a request for encryption, before the answer: they are not the client's, or are
	// not meant to be read in the clear.
	ErrEarly = errors.New("the client sent more bytes after its request for encryption, before the answer")
	// ErrAgain: it has asked for the same encryption twice.
	ErrAgain = errors.New("the client asked for encryption a second time")
)

// A Message is the first message of a client.
type Message struct {
	Kind Kind
	// Len is its length in bytes; of a Hello it is 0.
	Len int
	// User and Database are the names in a Startup. The database is the user's name if the client has named none.
	User, Database string
	// Doubt says why servers may take other names, or is "".
	Doubt string
	// OtherDatabase says that it may read another database: it asks for replication, which may copy all of them, or its
	// options may name another one, which CockroachDB takes.
	OtherDatabase bool
}

// Length returns how many bytes there must be before it is worth looking again: the length of the message once that is
// known. The error is [ErrNotPostgres] as soon as the bytes cannot become a message.
func Length(b []byte) (int, error) {
	if len(b) > 0 && b[0] == recordHandshake {
		return 1, nil
	}
	for i := range min(len(b), 2) {
		if limit := [2]byte{0, Max >> 8}[i]; b[i] > limit {
			return 0, ErrNotPostgres
		}
	}
	if len(b) < requestSize {
		return requestSize, nil
	}
	return lengthOf(binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]))
}

// lengthOf checks the length of a message by its code.
func lengthOf(length, code uint32) (int, error) {
	n := int(length)
	ok := false
	switch {
	case code == CodeSSL || code == CodeGSSENC:
		ok = n == requestSize
	case code == CodeCancel:
		ok = n >= minCancel && n <= MaxCancel
	case code>>16 == major:
		ok = n > requestSize && n <= Max
	}
	if !ok {
		return 0, ErrNotPostgres
	}
	return n, nil
}

// Parse reads the message at the beginning of b. [Length] has said that it is whole. Names are copied.
func Parse(b []byte) (Message, error) {
	n, err := Length(b)
	switch {
	case err != nil:
		return Message{}, err
	case n > len(b):
		return Message{}, ErrNotPostgres
	case b[0] == recordHandshake:
		return Message{Kind: Hello}, nil
	}
	m := Message{Len: n}
	switch binary.BigEndian.Uint32(b[4:]) {
	case CodeSSL:
		m.Kind = SSLRequest
	case CodeGSSENC:
		m.Kind = GSSENCRequest
	case CodeCancel:
		m.Kind = CancelRequest
	default:
		err = m.parameters(b[requestSize:n])
	}
	return m, err
}

// parameters reads the parameters of a startup message: names and values in turn, each with a zero at its end, and a zero
// behind the last.
func (m *Message) parameters(b []byte) error {
	var user, database []byte
	var users, databases int
	otherCase := ""
	for len(b) > 0 && b[0] != 0 {
		name, rest, ok := bytes.Cut(b, []byte{0})
		value, rest, closed := bytes.Cut(rest, []byte{0})
		if !ok || !closed {
			return fmt.Errorf("%w: a parameter has no end", ErrMalformed)
		}
		switch string(name) {
		case "user":
			user = value
			users++
		case "database":
			database = value
			databases++
		case "options":
			m.OtherDatabase = m.OtherDatabase || setsDatabase(value)
		case "replication":
			m.OtherDatabase = m.OtherDatabase || !slices.Contains(noReplication, string(value))
		default:
			if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, string(name)) }) {
				otherCase = string(name)
			}
		}
		b = rest
	}
	if len(database) == 0 {
		database = user
	}
	switch {
	case len(b) != 1:
		return fmt.Errorf("%w: its end is missing, or bytes follow its end", ErrMalformed)
	case len(user) == 0:
		return fmt.Errorf("%w: it has no user", ErrMalformed)
	case otherCase != "": // PostgreSQL does not know it, CockroachDB takes it
		m.Doubt = fmt.Sprintf("the startup message names the parameter %q, which is in lower case", otherCase)
	case users > 1 || databases > 1: // servers take the last one, poolers may take another
		m.Doubt = "the startup message names its user or its database twice"
	case len(user) > MaxName || len(database) > MaxName:
		m.Doubt = fmt.Sprintf("a name in the startup message is longer than %d bytes", MaxName)
	}
	m.User, m.Database = string(user[:min(len(user), MaxName)]), string(database[:min(len(database), MaxName)])
	return nil
}

// names are the parameters that are no settings of a session.
var names = []string{"user", "database", "options", "replication"}

// noReplication are the values of "replication" that mean none (src/backend/utils/adt/bool.c), without
// abbreviations, which no client sends. With any other value, also "database", a role of replication may copy all
// databases (BASE_BACKUP).
var noReplication = []string{"false", "off", "no", "0"}

// setsDatabase reports whether the options of a startup message may set the database: as CockroachDB reads them,
// with the escapes of URLs, then backslashes, in upper or lower case.
func setsDatabase(options []byte) bool {
	var plain []byte
	for i := 0; i < len(options); i++ {
		c := options[i]
		if c == '%' && i+2 < len(options) {
			var b [1]byte
			if _, err := hex.Decode(b[:], options[i+1:i+3]); err == nil {
				c, i = b[0], i+2
			}
		}
		if c != '\\' {
			plain = append(plain, c)
		}
	}
	return bytes.Contains(bytes.ToLower(plain), []byte("database="))
}

// Request is an SSLRequest, as a client sends it.
var Request = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, requestSize), CodeSSL)

// Refusal returns a message that ends a client's session before it began: an ErrorResponse of severity FATAL. code is an
// SQLSTATE.
func Refusal(code, text string) []byte {
	b := []byte{'E', 0, 0, 0, 0}
	for _, field := range [...]struct {
		kind byte
		text string
	}{{'S', "FATAL"}, {'V', "FATAL"}, {'C', code}, {'M', text}} {
		b = append(append(append(b, field.kind), field.text...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-1))
	return b
}

// SQLSTATEs of refusals, as servers have them (src/backend/utils/errcodes.txt).
const (
	NotAuthorized      = "28000"       // invalid_authorization_specification
	NoEncryption       = NotAuthorized // of a client that has to be encrypted
	Rejected           = "08004"       // sqlserver_rejected_establishment_of_sqlconnection
	TooManyConnections = "53300"       // too_many_connections
	ProtocolViolation  = "08P01"       // protocol_violation
	CannotConnectNow   = "57P03"       // cannot_connect_now: libpq tries its next host
)
