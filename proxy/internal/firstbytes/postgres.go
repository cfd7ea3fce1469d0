package firstbytes

import (
	"bytes"
	"encoding/binary"
)

// A PostgresRequest is the first message of a client of PostgreSQL. (PostgreSQL's documentation, "Message Formats".)
type PostgresRequest uint8

// Requests. The zero value is that of clients of other protocols.
const (
	Startup       PostgresRequest = iota + 1 // StartupMessage of version 3
	SSLRequest                               // asks for TLS; a StartupMessage follows the answer
	GSSENCRequest                            // asks for GSSAPI encryption; the same
	CancelRequest                            // cancels another session's query; it names no user
)

const (
	minStartup = 8
	maxStartup = 4 + 10_000 // MAX_STARTUP_PACKET_LENGTH of libpq/pqcomm.h, which does not count the length itself
	maxCancel  = 12 + 256
	// maxName is the longest name that the server does not cut off (NAMEDATALEN - 1).
	maxName = 63

	codeCancel = 1234<<16 | 5678
	codeSSL    = 1234<<16 | 5679
	codeGSSENC = 1234<<16 | 5680
)

// lookPostgres looks at the length and the code of the first message, and reads a StartupMessage if that is wanted. Messages have less than
// 16 MiB with any server, so that the first byte is zero. Behind that the code alone says whether they are messages of PostgreSQL, since servers and poolers
// differ in the lengths that they take.
func lookPostgres(r *Recogniser, b []byte, f *Facts) (need int) {
	if f.verdicts[Postgres] == Open {
		switch {
		case b[0] != 0:
			f.verdicts[Postgres] = No
			return 0
		case len(b) < minStartup:
			return minStartup
		}
		f.Request, f.verdicts[Postgres] = postgresRequest(int(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint32(b[4:]), f)
	}
	switch {
	case f.verdicts[Postgres] == Doubt:
		f.User.Verdict, f.Database.Verdict = Doubt, Doubt
	case f.verdicts[Postgres] == No:
	case f.Request == CancelRequest:
		f.User.Verdict, f.Database.Verdict = No, No
	case f.Request != Startup:
		f.User.Verdict = f.doubt("the client asks for encryption before it names its user")
		f.Database.Verdict = Doubt
	case r.wants.Startup:
		return f.startup(b)
	}
	return 0
}

// postgresRequest says which message it is, by its length and code.
func postgresRequest(size int, code uint32, f *Facts) (PostgresRequest, Verdict) {
	fits := minStartup <= size && size <= maxStartup
	switch version := code >> 16; {
	case version == 3 && fits:
		return Startup, Yes
	case code == codeSSL && fits: // servers take any length
		return SSLRequest, Yes
	case code == codeGSSENC && fits:
		return GSSENCRequest, Yes
	case code == codeCancel && size > 12 && size <= maxCancel:
		return CancelRequest, Yes
	case version == 1234 || 1 <= version && version <= 3:
		return 0, f.doubt("this version, request or length of a message of PostgreSQL is not read")
	}
	return 0, No
}

// startup reads the user and the database of a StartupMessage. Of a name that comes twice, or that the server would cut
// off, it is not known which one the server takes.
func (f *Facts) startup(b []byte) (need int) {
	size := int(binary.BigEndian.Uint32(b))
	if len(b) < size {
		return size
	}
	rest := b[minStartup:size]
	for len(rest) > 0 && rest[0] != 0 {
		key, after, ok := bytes.Cut(rest, []byte{0})
		value, more, ends := bytes.Cut(after, []byte{0})
		if !ok || !ends {
			break
		}
		rest = more
		switch string(key) {
		case "user":
			f.once(&f.User, value)
		case "database":
			f.once(&f.Database, value)
		}
	}
	if len(rest) != 1 || f.User.Verdict == Open || f.User.Verdict == No {
		why := f.doubt("the StartupMessage is malformed")
		f.User, f.Database = Property{Verdict: why}, Property{Verdict: why}
		return 0
	}
	if f.Database.Verdict == Open || f.Database.Verdict == No {
		f.Database = f.User
	}
	return 0
}

// once notes a value of a StartupMessage.
func (f *Facts) once(p *Property, value []byte) {
	switch {
	case p.Verdict == Doubt:
	case p.Verdict != Open:
		*p = Property{Verdict: f.doubt("the StartupMessage has a name twice")}
	case len(value) > maxName:
		*p = Property{Verdict: f.doubt("a name in the StartupMessage is longer than 63 bytes")}
	case len(value) == 0:
		p.Verdict = No
	default:
		*p = Property{Verdict: Yes, Value: string(value)}
	}
}
