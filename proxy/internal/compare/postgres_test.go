package compare

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"pgregory.net/rapid"
)

// encode returns messages as pgproto3 writes them.
func encode[M pgproto3.Message](t rapid.TB, messages ...M) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func back(t rapid.TB, m ...pgproto3.BackendMessage) []byte   { t.Helper(); return encode(t, m...) }
func front(t rapid.TB, m ...pgproto3.FrontendMessage) []byte { t.Helper(); return encode(t, m...) }

// A statement is a text, its name in reports, and the tag of its answer.
type statement struct{ text, name, tag string }

var statements = []statement{
	{"SELECT 1", "SELECT", "SELECT 1"},
	{"  -- a comment\n/* one /* in */ another */ (select 1)", "SELECT", "SELECT 1"},
	{"insert into t values (1)", "INSERT", "INSERT 0 1"},
	{"Update t SET a = 1", "UPDATE", "UPDATE 7"},
	{"with x as (select 1) table x", "WITH", "SELECT 1"},
}

// ask draws a request, simple or extended.
func (s statement) ask(t *rapid.T) []byte {
	switch rapid.IntRange(0, 2).Draw(t, "protocol") {
	case 0:
		return front(t, &pgproto3.Query{String: s.text})
	case 1:
		return front(t, &pgproto3.Parse{Query: s.text}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	}
	return front(t, &pgproto3.Parse{Query: "BEGIN"}, &pgproto3.Bind{}, &pgproto3.Execute{},
		&pgproto3.Parse{Name: s.name, Query: s.text}, &pgproto3.Bind{PreparedStatement: s.name, Parameters: [][]byte{[]byte("1")}}, &pgproto3.Execute{}, &pgproto3.Sync{})
}

// answer draws an answer.
func (s statement) answer(t *rapid.T) (list []pgproto3.BackendMessage) {
	if rapid.Bool().Draw(t, "fails") {
		return append(list, &pgproto3.ErrorResponse{Severity: "ERROR", Code: "42P01", Message: "no such table", File: "parse.c", Line: 7, Routine: "f"}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
	if rapid.Bool().Draw(t, "rows") {
		columns := rapid.IntRange(0, 4).Draw(t, "columns")
		d := &pgproto3.RowDescription{}
		for i := range columns {
			d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: fmt.Appendf(nil, "c%d", i), TableOID: 20000, DataTypeOID: 25, DataTypeSize: -1})
		}
		list = append(list, d)
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			row := &pgproto3.DataRow{}
			for range columns {
				value := []byte(nil)
				if rapid.Bool().Draw(t, "not null") {
					value = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value")...)
				}
				row.Values = append(row.Values, value)
			}
			list = append(list, row)
		}
	}
	return append(list, &pgproto3.CommandComplete{CommandTag: []byte(s.tag)}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// greeting is the begin of a session; the version, the key and the salt are another server's each time.
func greeting(t rapid.TB, n byte) []byte {
	return back(t, &pgproto3.AuthenticationMD5Password{Salt: [4]byte{n}}, &pgproto3.AuthenticationOk{},
		&pgproto3.ParameterStatus{Name: "server_version", Value: strings.Repeat("1", int(n))}, &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"},
		&pgproto3.BackendKeyData{ProcessID: uint32(n), SecretKey: []byte{n, 0, 0, 1}}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
}

func login(t rapid.TB) []byte {
	return front(t, &pgproto3.SSLRequest{}, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}},
		&pgproto3.PasswordMessage{Password: "p"})
}

// TestPostgres: requests of both protocols have the kinds of their statements, and a server of
// another version is equal but for a row that differs.
func TestPostgres(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := wire{request: login(t), primary: append([]byte("N"), greeting(t, 3)...), shadow: append([]byte("N"), greeting(t, 9)...)}
		want := map[string]Figures{"startup": {Equal: 1}, "SSLRequest": {Equal: 1}}
		n := rapid.IntRange(1, 8).Draw(t, "requests")
		odd := rapid.IntRange(0, n-1).Draw(t, "odd")
		for i := range n {
			s := rapid.SampledFrom(statements).Draw(t, "statement")
			w.request = append(w.request, s.ask(t)...)
			answer := back(t, s.answer(t)...)
			w.primary = append(w.primary, answer...)
			w.primary = append(w.primary, back(t, &pgproto3.NotificationResponse{PID: 1, Channel: "c"})...)
			f := want[s.name]
			if f.Equal++; i == odd {
				f.Equal, f.Different = f.Equal-1, 1
				answer = append(back(t, &pgproto3.NoticeResponse{Severity: "NOTICE", Message: "hm"}), answer...)
			}
			want[s.name] = f
			w.shadow = append(w.shadow, back(t, &pgproto3.NotificationResponse{PID: 1, Channel: "c"})...)
			w.shadow = append(w.shadow, answer...)
		}
		want["push"] = Figures{Equal: uint64(n)}
		got := play(t, Config{Framing: Postgres}, w, drawn(t), true)
		for name, f := range want {
			if count(got, name) != f {
				t.Fatalf("%s: %+v, want %+v", name, count(got, name), f)
			}
		}
		if len(got.Names) != len(want) {
			t.Fatalf("%+v", got.Names)
		}
		if got = play(t, Config{Framing: Postgres, Mask: []Mask{{Field: "postgres.answer", Name: "Startup"}}}, w, drawn(t), true); count(got, "startup") != (Figures{Masked: 1}) {
			t.Fatalf("%+v", got)
		}
		if got = play(t, Config{Framing: Postgres, Mask: []Mask{{Field: "postgres.notice"}}}, w, drawn(t), true); got.Different != 0 {
			t.Fatalf("%+v", got)
		}
	})
}

// TestPostgresFields: each field that differs between two servers is masked by its name, and differs
// without.
func TestPostgresFields(t *testing.T) {
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	for _, c := range []struct {
		field           string
		primary, shadow pgproto3.BackendMessage
	}{
		{"error_location", &pgproto3.ErrorResponse{Message: "m", Line: 1}, &pgproto3.ErrorResponse{Message: "m", Line: 22}},
		{"error_text", &pgproto3.ErrorResponse{Code: "1", Message: "m"}, &pgproto3.ErrorResponse{Code: "1", Message: "other"}},
		{"command_tag", &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 22")}},
		{"notice", &pgproto3.NoticeResponse{Message: "m"}, &pgproto3.NoticeResponse{Message: "other"}},
		{"parameter_status", &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, &pgproto3.ParameterStatus{Name: "DateStyle", Value: "ISO"}},
		{"parameter_timezone", &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, &pgproto3.ParameterStatus{Name: "TimeZone", Value: "CET/x"}},
	} {
		w := wire{front(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30}), back(t, c.primary, ready), back(t, c.shadow, ready)}
		if got := play(t, Config{Framing: Postgres}, w, single, true); got.Different != 1 || got.Equal != 0 {
			t.Errorf("%s: %+v", c.field, got)
		}
		if got := play(t, Config{Framing: Postgres, Mask: []Mask{{Field: "postgres." + c.field}}}, w, single, true); got.Different != 0 || got.Equal != 1 {
			t.Errorf("%s masked: %+v", c.field, got)
		}
	}
}

// TestPostgresOIDs: tables and types of users have other identifiers in each database.
func TestPostgresOIDs(t *testing.T) {
	describe := func(table, typ uint32) []byte {
		return back(t, &pgproto3.ParameterDescription{ParameterOIDs: []uint32{23, typ}},
			&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("a"), TableOID: table, DataTypeOID: typ}}}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
	request := front(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30})
	if got := play(t, Config{Framing: Postgres}, wire{request, describe(20000, 30000), describe(20001, 30003)}, single, true); got.Equal != 1 {
		t.Errorf("%+v", got)
	}
	if got := play(t, Config{Framing: Postgres}, wire{request, describe(20000, 25), describe(20000, 1043)}, single, true); got.Different != 1 {
		t.Errorf("%+v", got)
	}
}

// TestPostgresValues: a pattern is applied to each value by itself, and a flipped byte of a value is
// found.
func TestPostgresValues(t *testing.T) {
	row := func(values ...string) []byte {
		d := &pgproto3.DataRow{}
		for _, v := range values {
			d.Values = append(d.Values, []byte(v))
		}
		return back(t, d, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
	request := front(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30})
	c := Config{Framing: Postgres, Mask: []Mask{{Pattern: `^\d{4}-\d\d-\d\d$`}}}
	if got := play(t, c, wire{request, row("2026-11-26", "a"), row("2027-01-01", "a")}, single, true); got.Equal != 1 {
		t.Errorf("%+v", got)
	}
	if got := play(t, c, wire{request, row("on 2026-11-26", "a"), row("on 2027-01-01", "a")}, single, true); got.Different != 1 {
		t.Errorf("%+v", got)
	}
	if got := play(t, c, wire{request, row("ab", "c"), row("a", "bc")}, single, true); got.Different != 1 {
		t.Errorf("%+v", got)
	}
}

func TestPostgresEncrypted(t *testing.T) {
	request := front(t, &pgproto3.GSSEncRequest{}, &pgproto3.SSLRequest{})
	got := play(t, Config{Framing: Postgres}, wire{request, []byte("NS\x16\x03"), []byte("NS\x16\x03")}, single, true)
	if got.Stopped["encrypted"] != 1 || got.Different != 0 || count(got, "GSSENCRequest").Equal != 1 {
		t.Errorf("%+v", got)
	}
	if got = play(t, Config{Framing: Postgres}, wire{[]byte("\x16\x03\x01\x02\x00\x01\x00\x01"), []byte("\x16\x03\x03"), []byte("\x16\x03\x03")}, single, true); got.Stopped["encrypted"] != 1 || got.Different != 0 {
		t.Errorf("%+v", got)
	}
}

// TestPostgresSkipped: the text of a long statement need not come into the process.
func TestPostgresSkipped(t *testing.T) {
	plan, _ := NewPlan(Config{Framing: Postgres})
	ready := back(t, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	long := front(t, &pgproto3.Query{String: "INSERT INTO t VALUES ('" + strings.Repeat("v", 100_000) + "')"})
	for _, c := range []struct {
		from, to    int
		first, next string
	}{{100, len(long), "INSERT", "SELECT"}, {5, len(long), "unknown", "SELECT"}, {100, len(long) + 1, "unknown", "unknown"}, {2, 9, "unknown", "unknown"}} {
		r := NewReport()
		s := plan.NewSession(NewBudget(TotalBytes), r)
		s.Request(front(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30}), at(0))
		all := slices.Concat(long, front(t, &pgproto3.Query{String: "select 1"}))
		s.Request(all[:c.from], at(0))
		s.RequestSkipped(c.to - c.from)
		s.Request(all[c.to:], at(0))
		for _, side := range []int{primary, shadow} {
			s.answer(side, bytes.Repeat(ready, 3), at(0))
		}
		s.End(true, at(0))
		got := r.Snapshot()
		if count(got, c.first).Equal == 0 || count(got, c.next).Equal == 0 || got.Equal != 3 {
			t.Errorf("%d to %d skipped: %+v", c.from, c.to, got.Names)
		}
	}
}

func FuzzPostgres(f *testing.F) {
	f.Add(login(f), append([]byte("N"), greeting(f, 3)...), append([]byte("N"), greeting(f, 5)...), uint8(3))
	f.Add(front(f, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30}),
		back(f, &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("a")}}}, &pgproto3.DataRow{Values: [][]byte{[]byte("x"), nil, {}}}, &pgproto3.ReadyForQuery{TxStatus: 'I'}),
		back(f, &pgproto3.ErrorResponse{Message: "m"}, &pgproto3.ReadyForQuery{TxStatus: 'I'}), uint8(1))
	fuzz(f, Config{Framing: Postgres, Mask: []Mask{{Pattern: "[0-9]{2}"}, {Field: "postgres.error_location"}}})
}

func BenchmarkPostgres(b *testing.B) {
	row := back(b, &pgproto3.DataRow{Values: [][]byte{[]byte("4711"), []byte(strings.Repeat("v", 80)), nil, []byte("2026-11-26")}})
	answer := append(bytes.Repeat(row, 100), back(b, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 100")}, &pgproto3.ReadyForQuery{TxStatus: 'I'})...)
	request := append(front(b, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30}), bytes.Repeat(front(b, &pgproto3.Query{String: "SELECT 1"}), 99)...)
	bench(b, Config{Framing: Postgres}, request, bytes.Repeat(answer, 100))
}
