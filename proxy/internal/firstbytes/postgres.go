package firstbytes

import (
	"encoding/binary"

	"github.com/penstock/penstock/proxy/internal/postgres"
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

// minStartup is the length and the code, with which each message begins.
const minStartup = 8

// lookPostgres looks at the length and the code of the first message, and reads a StartupMessage if that is wanted. The longest messages are those
// that CockroachDB takes, of 16 MiB behind the length by default, so that the first byte is 0 or 1. Behind that the code alone says whether they are messages of
// PostgreSQL, since servers and poolers differ in the lengths that they take.
func lookPostgres(r *Recogniser, b []byte, f *Facts) (need int) {
	if f.verdicts[Postgres] == Open {
		switch {
		case b[0] > 1:
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
	fits := minStartup <= size && size <= postgres.Max
	switch version := code >> 16; {
	case version == 3 && fits:
		return Startup, Yes
	case code == postgres.CodeSSL && fits: // servers take any length
		return SSLRequest, Yes
	case code == postgres.CodeGSSENC && fits:
		return GSSENCRequest, Yes
	case code == postgres.CodeCancel && size > 12 && size <= postgres.MaxCancel:
		return CancelRequest, Yes
	case version == 1234 || 1 <= version && version <= 3:
		return 0, f.doubt("this version, request or length of a message of PostgreSQL is not read")
	}
	return 0, No
}

// startup reads the user and the database of a StartupMessage. Of a name that comes twice, or that the server would cut
// off, it is not known which one the server takes.
func (f *Facts) startup(b []byte) (need int) {
	if size := int(binary.BigEndian.Uint32(b)); len(b) < size {
		return size
	}
	m, err := postgres.Parse(b)
	if err != nil {
		why := f.doubt(err.Error())
		f.User.Verdict, f.Database.Verdict = why, why
		return 0
	}
	f.User, f.Database = Property{Yes, m.User}, Property{Yes, m.Database}
	return 0
}
