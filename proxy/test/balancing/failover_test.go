package balancing

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// Times of the checks, and the times derived from them: until a change of a role and a silent
// database are found, at most and on a quiet machine.
const (
	checkInterval = 100 * time.Millisecond
	checkTimeout  = time.Second
	known         = 2 * checkInterval * 12 / 10
	knownSilent   = known + 2*checkTimeout
)

// A failover is a primary and a standby, the program in front of them, and its clients.
type failover struct {
	*penstock
	psql             string
	nodes            map[string]*node
	rolePort         string
	primary, replica string // addresses of the listeners
	visits           func() []visit
	scripts          int // the number of pgbench scripts
}

// testFailover: the primary is killed, and its standby takes over. The killed node comes back as
// the standby, and takes over when the other one hangs. Each time exactly the connections of the
// lost primary are lost.
func testFailover(t *testing.T) {
	a, b, rolePort := newNodes(t)
	a.initdb()
	a.serve()
	b.follow(a.addr)
	b.serve()
	f := &failover{
		psql:  software.Need(t, "psql", "postgresql-client"),
		nodes: map[string]*node{"a": a, "b": b}, rolePort: rolePort,
	}
	f.penstock = start(t, f.configuration(1))
	f.primary, _, _ = f.at("primary")
	f.replica, _, _ = f.at("replicas")
	f.roles("a", "b")
	f.sql(f.primary, "CREATE TABLE entries (id serial PRIMARY KEY, client text)")
	f.visits = visits(t, f.primary)

	f.lose("a", "b", a.kill)

	// No replica is left: clients of the replica listener get the primary.
	if got := f.sql(f.replica, "SELECT pg_is_in_recovery()"); got != "f" {
		t.Errorf("without a replica the answer is %q", got)
	}
	a.follow(f.primary) // with a copy made through the program
	a.serve()
	f.roles("b", "a")

	lost := f.lose("b", "a", func() {
		b.freeze()
		f.Until("the sessions of the hanging primary are reset", func(s *admin.Status) bool {
			e := endpointOf(s, "primary", "b")
			return e.State == "down" && e.Active == 0
		})
		b.kill()
	})
	for _, s := range lost {
		if !errors.Is(s.err, syscall.ECONNRESET) {
			t.Errorf("a session of the hanging primary ended with %v, want a reset", s.err)
		}
	}
	f.stop()
}

func (f *failover) configuration(generation int) string {
	var endpoints []string
	for _, name := range []string{"a", "b"} {
		endpoints = append(endpoints, fmt.Sprintf("{address: %q, name: %s, weight: %d}", f.nodes[name].addr, name, generation))
	}
	upstream := func(name, path, rest string) string {
		return fmt.Sprintf(`
  - name: %s
    endpoints: [%s]
    health_check: {type: http, port: %s, http: {path: %s}, interval: %v, fast_interval: %[5]v, timeout: %v, rise: 2, fall: 2}
    %s`, name, strings.Join(endpoints, ", "), f.rolePort, path, checkInterval, checkTimeout, rest)
	}
	return variant(`
listeners:
  - {name: primary, bind: "127.0.0.1:0", upstream: primary, timeouts: {idle: IDLE}}
  - {name: replicas, bind: "127.0.0.1:0", upstream: replicas, timeouts: {idle: IDLE}}
  # EXTRA - {name: extra, bind: "127.0.0.1:0", upstream: primary}
upstreams:`+
		upstream("primary", "/primary", "on_unhealthy: reset")+
		upstream("replicas", "/replica", "fallback: {upstream: primary}"), generation)
}

// roles waits until the checks have found the roles of both nodes.
func (f *failover) roles(primary, standby string) {
	f.T.Helper()
	f.Until(fmt.Sprintf("%s is the primary and %s its standby", primary, standby), func(s *admin.Status) bool {
		return endpointOf(s, "primary", primary).State == "up" && endpointOf(s, "replicas", primary).State == "down" &&
			endpointOf(s, "primary", standby).State == "down" && endpointOf(s, "replicas", standby).State == "up"
	})
}

// sql has psql execute a command, and returns its output.
func (f *failover) sql(addr, command string) string {
	f.T.Helper()
	return strings.TrimSpace(software.Run(f.T, f.psql, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only",
		"--set", "ON_ERROR_STOP=1", "--command", command, conninfo(addr)))
}

func conninfo(addr string) string {
	host, port, _ := strings.Cut(addr, ":")
	return fmt.Sprintf("host=%s port=%s user=penstock dbname=postgres sslmode=disable gssencmode=disable", host, port)
}

// lose loses a primary under load, and promotes its standby. It returns the lost sessions.
func (f *failover) lose(primary, standby string, loss func()) (doomed []*session) {
	t := f.T
	t.Helper()
	doomed = f.sessions(f.primary, "INSERT INTO entries (client) VALUES ('busy')")
	others := f.sessions(f.replica, "SELECT pg_backend_pid()")
	defer closeAll(others)
	writers := f.bench(f.primary, "INSERT INTO entries (client) VALUES ('pgbench')")
	readers := f.bench(f.replica, "SELECT pg_backend_pid(), count(*) FROM entries")
	f.readOn(append(doomed, others...))
	before := len(f.visits())

	lost := time.Now()
	loss()
	for _, s := range doomed {
		select {
		case <-s.ended:
		case <-time.After(condition.Patience):
			t.Fatal("a session of the lost primary continues")
		}
	}
	gone := time.Since(lost)
	f.promote(standby)
	served := f.served(time.Now(), before)
	t.Logf("%s lost: its sessions had ended after %v; clients served %v after the promotion of %s", primary, gone, served, standby)
	if gone > 10*knownSilent || served > 10*known {
		t.Errorf("that is too late: a silent database is found within %v, a role within %v", knownSilent, known)
	}

	f.untouched(others)
	if out, err := writers.end(); err == nil || strings.Count(out, " aborted in ") != benchClients {
		t.Errorf("pgbench at the lost primary: %v, want each of %d clients aborted\n%s", err, benchClients, out)
	}
	if out, err := readers.end(); err != nil || !strings.Contains(out, "number of failed transactions: 0 ") {
		t.Errorf("pgbench at the standby: %v\n%s", err, out)
	}
	f.Until("the lost primary has no sessions", func(s *admin.Status) bool { return endpointOf(s, "primary", primary).Active == 0 })
	for line := range strings.Lines(f.Log.String()) {
		if strings.Contains(line, `"msg":"sessions were reset"`) && !strings.Contains(line, `"upstream":"primary"`) {
			t.Errorf("other sessions were cut as well: %s", line)
		}
	}
	return doomed
}

// sessions opens as many asking sessions as idle ones, and waits until the former have asked.
func (f *failover) sessions(addr, sql string) (list []*session) {
	f.T.Helper()
	for range 4 {
		list = append(list, watch(f.T, addr, sql), watch(f.T, addr, ""))
	}
	f.working(list)
	return list
}

// working waits until all asking sessions have asked once more.
func (f *failover) working(list []*session) {
	f.T.Helper()
	for i := 0; i < len(list); i += 2 {
		was := list[i].queries.Load()
		if !condition.Eventually(func() bool { return list[i].queries.Load() > was+1 || !list[i].alive() }) {
			f.T.Fatal("a session no longer asks")
		}
	}
}

// untouched fails the test unless all sessions continue.
func (f *failover) untouched(list []*session) {
	f.T.Helper()
	f.working(list)
	for i, s := range list {
		if !s.alive() {
			f.T.Errorf("session %d, which is not affected, has ended: %v", i, s.err)
		}
	}
}

func closeAll(list []*session) {
	for _, s := range list {
		s.close()
	}
}

// readOn reloads the configuration under load, changed each time. No session or client fails.
func (f *failover) readOn(list []*session) {
	f.T.Helper()
	before := len(f.visits())
	for range 6 {
		f.Reload(f.configuration(f.State().Generation + 1))
	}
	f.untouched(list)
	enough := func() bool { return len(f.visits()) > before+5 }
	if !condition.Eventually(enough) {
		f.T.Error("no clients connect")
	}
	for _, v := range f.visits()[before:] {
		if v.err != nil || v.standby != "f" {
			f.T.Errorf("a client during a reload: %q, %v", v.standby, v.err)
		}
	}
}

func (f *failover) promote(name string) {
	f.T.Helper()
	if done, err := f.nodes[name].query("SELECT pg_promote()"); err != nil || done != "t" {
		f.T.Fatalf("promote %s: %q, %v", name, done, err)
	}
}

// served waits until clients are served by the new primary, and returns how long it took. From
// then on all clients are served, and none has been served by a standby.
func (f *failover) served(promoted time.Time, from int) (took time.Duration) {
	f.T.Helper()
	const enough = 10
	first := -1
	if !condition.Eventually(func() bool {
		for i, v := range f.visits() {
			if first < 0 && v.began.After(promoted) && v.err == nil {
				first = i
			}
		}
		return first >= 0 && len(f.visits()) > first+enough
	}) {
		f.T.Fatal("no client is served after the promotion")
	}
	all := f.visits()
	refused := 0
	for i, v := range all[from:] {
		switch {
		case v.err != nil && from+i > first:
			f.T.Errorf("a client is refused again: %v", v.err)
		case v.err != nil:
			refused++
		case v.standby != "f":
			f.T.Error("a client of the primary listener is served by a standby")
		}
	}
	f.T.Logf("%d clients connected and found no primary", refused)
	return all[first].ended.Sub(promoted)
}
