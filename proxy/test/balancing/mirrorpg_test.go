package balancing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// testMirroredPostgres has psql's sessions mirrored to a second PostgreSQL, whose greeting and answers nobody waits for: it has the same
// rows afterwards, those of statements, of prepared ones and of a COPY. Both servers trust their clients: nothing that a
// client sends depends on a server's random challenge.
func testMirroredPostgres(t *testing.T) {
	first, shadow, _ := newNodes(t)
	for _, n := range []*node{first, shadow} {
		n.initdb()
		n.serve()
	}
	p := start(t, fmt.Sprintf(`
listeners: [{name: pg, bind: "127.0.0.1:0", upstream: pg, mirror: {upstream: shadow, patience: 30s}}]
upstreams:
  - {name: pg, endpoints: [%q], health_check: off}
  - {name: shadow, endpoints: [%q], health_check: off}`, first.addr, shadow.addr))
	addr, _, _ := p.at("pg")
	psql := func(stdin string) {
		t.Helper()
		path := filepath.Join(first.dir, "in.sql")
		must(t, writeFile(path, stdin))
		software.Run(t, software.Need(t, "psql", "postgresql-client"), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1",
			"--file", path, conninfo(addr))
	}
	psql("CREATE TABLE t (id int PRIMARY KEY, word text);\n")
	p.Until("the table is at both", func(*admin.Status) bool { _, err := shadow.query("SELECT count(*) FROM t"); return err == nil })
	psql("PREPARE add (int, text) AS INSERT INTO t VALUES ($1, $2);\nEXECUTE add (1, 'one');\nINSERT INTO t VALUES (2, 'two') RETURNING *;\n")
	var rows strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&rows, "%d\t%s\n", 10+i, strings.Repeat("w", 100))
	}
	psql("COPY t FROM STDIN;\n" + rows.String() + "\\.\n")
	p.Until("all mirrors are over", func(s *admin.Status) bool { return s.Listeners[0].Mirrors.Running == 0 })
	if m := p.State().Listeners[0].Mirrors; m.Ended["complete"] != 3 || len(m.Ended) != 1 || m.Undelivered != 0 || m.Copied == 0 {
		t.Errorf("%+v", m)
	}
	const digest = "SELECT count(*) || ' ' || md5(string_agg(id || word, ',' ORDER BY id)) FROM t"
	a, err := first.query(digest)
	must(t, err)
	b := ""
	p.Until("the shadow has the same rows", func(*admin.Status) bool { b, err = shadow.query(digest); return err == nil && b == a })
	if !strings.HasPrefix(a, "20002 ") {
		t.Errorf("the primary has %q, its shadow %q", a, b)
	}
	p.stop()
}
