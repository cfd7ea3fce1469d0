package postgres_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/penstock/penstock/proxy/internal/postgres"
)

// message is one with a code and a body.
func message(code uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(binary.BigEndian.AppendUint32(b, code), body...)
}

const (
	cancelCode, sslCode, gssCode = 80877102, 80877103, 80877104
	version30                    = 3 << 16
)

// startup is a startup message.
func startup(parameters ...string) []byte {
	return message(version30, strings.Join(parameters, "\x00")+"\x00\x00")
}

// TestMessages: each message is read, at a byte at a time, and no byte of what follows is.
func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want postgres.Message
	}{
		"SSLRequest":      {message(sslCode, ""), postgres.Message{Kind: postgres.SSLRequest, Len: 8}},
		"GSSENCRequest":   {message(gssCode, ""), postgres.Message{Kind: postgres.GSSENCRequest, Len: 8}},
		"CancelRequest":   {message(cancelCode, "12345678"), postgres.Message{Kind: postgres.CancelRequest, Len: 16}},
		"of version 3.2":  {message(cancelCode, "1234"+strings.Repeat("s", 32)), postgres.Message{Kind: postgres.CancelRequest, Len: 44}},
		"user":            {startup("user", "ann"), postgres.Message{Len: 18, User: "ann", Database: "ann"}},
		"user, database":  {startup("application_name", "psql", "user", "ann", "database", "shop"), postgres.Message{Len: 53, User: "ann", Database: "shop"}},
		"the longest":     {startup("user", "ann", "x", strings.Repeat("x", 9_983)), postgres.Message{Len: 10_004, User: "ann", Database: "ann"}},
		"an option empty": {startup("user", "ann", "options", ""), postgres.Message{Len: 27, User: "ann", Database: "ann"}},
		"other options":   {startup("user", "ann", "options", "-c search_path=database --default_transaction_read_only=on"), postgres.Message{User: "ann", Database: "ann"}},
		"of CockroachDB":  {startup("user", "ann", "options", "-c database=x"), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"with a dash":     {startup("user", "ann", "options", "--DataBase=x", "options", ""), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"escaped":         {startup("user", "ann", "options", `-cd%61ta%5cb\ase%3Dx`), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"replication":     {startup("user", "ann", "replication", "database"), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"no replication":  {startup("user", "ann", "replication", "off"), postgres.Message{User: "ann", Database: "ann"}},
		"physical":        {startup("user", "ann", "replication", "true"), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"then logical":    {startup("user", "ann", "replication", "ON", "replication", "database"), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
		"badly escaped":   {startup("user", "ann", "options", "%zz database=x%"), postgres.Message{User: "ann", Database: "ann", OtherDatabase: true}},
	} {
		for have := range len(c.b) {
			if n, err := postgres.Length(c.b[:have]); err != nil || n <= have || n > len(c.b) {
				t.Fatalf("%s: with %d of %d bytes: wait for %d, %v", name, have, len(c.b), n, err)
			}
		}
		c.want.Len = len(c.b)
		if got, err := postgres.Parse(append(c.b, "behind"...)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		rest := iotest.OneByteReader(strings.NewReader(string(c.b) + "behind"))
		got, b, err := postgres.Read(rest)
		if behind, _ := io.ReadAll(rest); err != nil || got != c.want || !bytes.Equal(b, c.b) || string(behind) != "behind" {
			t.Errorf("%s: read %+v, %v; %q is left", name, got, err, behind)
		}
	}
	if m, err := postgres.Parse([]byte{0x16, 3, 1}); err != nil || m.Kind != postgres.Hello {
		t.Errorf("a TLS record: %+v, %v", m, err)
	}
}

// TestNoMessages: other protocols are refused as early as can be, and lengths that servers would not take.
func TestNoMessages(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"HTTP":            {[]byte("G"), postgres.ErrNotPostgres},
		"SSH":             {[]byte("S"), postgres.ErrNotPostgres},
		"long":            {[]byte{0, 1}, postgres.ErrNotPostgres},
		"longer than Max": {message(version30, strings.Repeat("x", postgres.Max)), postgres.ErrNotPostgres},
		"version 2":       {message(2<<16, "user\x00ann\x00\x00"), postgres.ErrNotPostgres},
		"SSLRequest of 9": {message(sslCode, "x"), postgres.ErrNotPostgres},
		"cancel of 15":    {message(cancelCode, "1234567"), postgres.ErrNotPostgres},
		"cancel of 269":   {message(cancelCode, strings.Repeat("x", 261)), postgres.ErrNotPostgres},
		"no body":         {message(version30, ""), postgres.ErrNotPostgres},
		"no user":         {startup("database", "shop"), postgres.ErrMalformed},
		"no value":        {message(version30, "user\x00"), postgres.ErrMalformed},
		"no end":          {message(version30, "user\x00ann\x00"), postgres.ErrMalformed},
		"bytes behind":    {message(version30, "user\x00ann\x00\x00x"), postgres.ErrMalformed},
	} {
		if m, err := postgres.Parse(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, m, err, c.want)
		}
	}
}

// TestDoubt: a message whose names some servers would take otherwise is no error, but says so.
func TestDoubt(t *testing.T) {
	long := strings.Repeat("x", postgres.MaxName)
	for name, c := range map[string]struct {
		b              []byte
		user, database string
		why            string
	}{
		"two users":           {startup("user", "ann", "user", "eve"), "eve", "eve", "twice"},
		"a user twice":        {startup("user", "ann", "user", "ann"), "ann", "ann", "twice"},
		"an empty user first": {startup("user", "", "user", "eve"), "eve", "eve", "twice"},
		"two databases":       {startup("user", "ann", "database", "shop", "database", "x"), "ann", "x", "twice"},
		"an empty database":   {startup("user", "ann", "database", "shop", "database", ""), "ann", "ann", "twice"},
		"USER":                {startup("user", "ann", "USER", "root"), "ann", "ann", `"USER"`},
		"Database":            {startup("user", "ann", "Database", "shop"), "ann", "ann", `"Database"`},
		"OPTIONS":             {startup("user", "ann", "OPTIONS", "-c database=x"), "ann", "ann", `"OPTIONS"`},
		"Replication":         {startup("user", "ann", "Replication", "true"), "ann", "ann", `"Replication"`},
		"uſer":                {startup("user", "ann", "u\u017fer", "root"), "ann", "ann", `"uſer"`},
		"a name of 64 bytes":  {startup("user", long+"x"), long, long, "longer than 63 bytes"},
	} {
		m, err := postgres.Parse(c.b)
		if err != nil || m.User != c.user || m.Database != c.database || !strings.Contains(m.Doubt, c.why) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// TestAnswers: an S alone is an acceptance. Everything else is named in the error.
func TestAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"S": "", "N": "answered N", "E": "with an error", "Sx": "more bytes after its S", "H": `answered "H"`, "Ex": "with an error", "\x00": `answered "\x00"`, "NS": `answered "N"`,
	} {
		err := postgres.CheckAnswer([]byte(answer))
		if want == "" != (err == nil) || err != nil && (!errors.Is(err, postgres.ErrEndpoint) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", answer, err, want)
		}
	}
}

// FuzzParse: whatever comes, no more is waited for than a message may have, nothing that was refused is accepted with
// more bytes, and a message that is read once is read the same by both ways.
func FuzzParse(f *testing.F) {
	for _, b := range [][]byte{message(sslCode, ""), message(gssCode, ""), message(cancelCode, "12345678"), startup("user", "a", "database", "b"), {0x16, 3, 1}, []byte("GET / HTTP/1.1")} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var refused bool
		for have := 0; have <= len(b); have++ {
			n, err := postgres.Length(b[:have])
			if refused && err == nil {
				t.Fatalf("%q was refused, and is accepted with %d bytes", b, have)
			}
			if refused = err != nil; !refused && (n < 1 || n > postgres.Max) {
				t.Fatalf("%q: wait for %d bytes", b[:have], n)
			}
		}
		m, err := postgres.Parse(b)
		if len(m.User) > postgres.MaxName || len(m.Database) > postgres.MaxName || m.Len > len(b) {
			t.Fatalf("%q: %+v", b, m)
		}
		if m.Kind == postgres.Hello {
			return
		}
		if other, taken, again := postgres.Read(bytes.NewReader(b)); (err == nil) != (again == nil) || err == nil && (other != m || len(taken) != m.Len) {
			t.Fatalf("%q: %+v, %v, and read %+v, %v", b, m, err, other, again)
		}
	})
}
