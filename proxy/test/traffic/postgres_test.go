package traffic

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

const copyRows = 300_000

// testPostgres copies rows into a table and out again with psql.
func testPostgres(t *testing.T) {
	psql := software.Need(t, "psql", "postgresql-client")
	p := startProxy(t, startPostgres(t))
	host, port := p.hostPort(t)
	database := fmt.Sprintf("host=%s port=%s user=penstock dbname=postgres sslmode=disable gssencmode=disable", host, port)
	query := func(stdin io.Reader, sql string) []byte {
		t.Helper()
		return runPsql(t, psql, database, sql, stdin)
	}

	rows, payload := makeRows()
	query(nil, "CREATE TABLE rows (id int PRIMARY KEY, payload text NOT NULL)")
	query(bytes.NewReader(rows), "COPY rows FROM STDIN")
	got := strings.TrimSpace(string(query(nil, "SELECT count(*), md5(string_agg(payload, '' ORDER BY id)) FROM rows")))
	if want := fmt.Sprintf("%d|%s", copyRows, digest(payload)); got != want {
		t.Errorf("the table has %s, want %s", got, want)
	}
	if back := query(nil, "COPY (SELECT * FROM rows ORDER BY id) TO STDOUT"); !bytes.Equal(back, rows) {
		t.Errorf("received %d bytes that differ from the %d copied in", len(back), len(rows))
	}

	s := p.stop(t)
	s.clean(t)
	for direction, f := range map[string]flow{
		"client to endpoint": s.Bytes.ClientToEndpoint,
		"endpoint to client": s.Bytes.EndpointToClient,
	} {
		// The protocol adds a header of five bytes to a row at most, and little else.
		if most := int64(len(rows) + 5*copyRows + 64<<10); f.All() < int64(len(rows)) || f.All() > most {
			t.Errorf("%s: %d bytes, want between %d and %d", direction, f.All(), len(rows), most)
		}
	}
}

// makeRows returns rows in COPY's text format, and the MD5 of their payloads.
func makeRows() (rows []byte, payload hash.Hash) {
	random := rand.New(rand.NewPCG(1, 2))
	payload = md5.New()
	var b bytes.Buffer
	for id := range copyRows {
		text := fmt.Sprintf("%016x%016x%.*s", random.Uint64(), random.Uint64(), random.IntN(64), strings.Repeat("penstock", 8))
		io.WriteString(payload, text)
		fmt.Fprintf(&b, "%d\t%s\n", id, text)
	}
	return b.Bytes(), payload
}

func runPsql(t *testing.T, psql, database, sql string, stdin io.Reader) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), condition.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, psql, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only",
		"--set", "ON_ERROR_STOP=1", "--command", sql, database)
	cmd.Stdin, cmd.Stderr = stdin, t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("psql: %s: %v", sql, err)
	}
	return out
}

// startPostgres makes a cluster of its own and serves it, as an ordinary user:
// the server refuses to run as root.
func startPostgres(t *testing.T) (addr string) {
	t.Helper()
	bin := software.Postgres(t)
	owner := software.Ordinary(t)
	dir := software.Dir(t, owner)
	data := filepath.Join(dir, "data")
	software.RunAs(t, owner, dir, filepath.Join(bin, "initdb"), "--pgdata", data,
		"--username", "penstock", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")

	addr, host, port := software.Addr(t)
	software.Service{
		Command: []string{
			filepath.Join(bin, "postgres"), "-D", data,
			"-c", "listen_addresses=" + host, "-c", "port=" + port,
			"-c", "unix_socket_directories=", "-c", "fsync=off",
		},
		Dir:   dir,
		Ready: "ready to accept connections",
		Addr:  addr,
		Stop:  syscall.SIGINT, // its "fast shutdown"
		User:  owner,
	}.Start(t)
	return addr
}
