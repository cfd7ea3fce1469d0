package firstbytes

import (
	"encoding/binary"

	"github.com/penstock/penstock/proxy/internal/postgres"
)

// A PostgresRequest is the first message of a PostgreSQL client. (PostgreSQL's documentation, "Message Formats".)
type PostgresRequest uint8

// The requests. The zero value is for clients of other protocols.
const (
	Startup       PostgresRequest = iota + 1 // StartupMessage of protocol version 3
	SSLRequest                               // asks for TLS; a StartupMessage follows the answer
	GSSENCRequest                            // asks for GSSAPI encryption; a StartupMessage follows the answer
	CancelRequest                            // cancels another session's query; it names no user
)

// minStartup is the size of the length and the code that each message begins with.
const minStartup = 8

// lookPostgres looks at the length and the code of the first message, and reads a StartupMessage if a route needs it.
// CockroachDB takes the longest messages, 16 MiB behind the length by default, so the first byte is 0 or 1. After
// such a byte only the code shows whether the client speaks PostgreSQL, since servers and poolers accept different
// lengths.
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
		return 0, f.doubt("the PostgreSQL message has an unsupported version, request or length")
	}
	return 0, No
}

// startup reads the user and the database of a StartupMessage. If a name comes twice, or the server would cut it off,
// it is not known which name the server takes.
func (f *Facts) startup(b []byte) (need int) {
	if size := int(binary.BigEndian.Uint32(b)); len(b) < size {
		return size
	}
	m, err := postgres.Parse(b)
	why := m.Doubt
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		doubt := f.doubt(why)
		f.User, f.Database = Property{doubt, m.User}, Property{doubt, m.Database}
		return 0
	}
	f.User, f.Database = Property{Yes, m.User}, Property{Yes, m.Database}
	if m.OtherDatabase {
		f.Database.Verdict = f.doubt("the startup message asks for replication, which may read all databases, or its options may name another one")
	}
	return 0
}
