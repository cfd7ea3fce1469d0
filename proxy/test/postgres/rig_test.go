package postgres

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

func TestMain(m *testing.M) { leak.Main(m) }

type database struct {
	name, addr string
	root       string // file with the certificate of its TLS; empty: it has none
}

// newDatabase starts a server that says its name as cluster_name. host is the name in the certificate of its TLS; empty:
// it has none.
func newDatabase(t *testing.T, name, host string) *database {
	t.Helper()
	bin, owner := software.Postgres(t), software.Ordinary(t)
	dir := software.Dir(t, owner)
	data := filepath.Join(dir, "data")
	software.RunAs(t, owner, dir, filepath.Join(bin, "initdb"), "--pgdata", data,
		"--username", "penstock", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	addr, ip, port := software.Addr(t)
	d := &database{name: name, addr: addr}
	command := []string{
		filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=" + ip, "-c", "port=" + port,
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "cluster_name=" + name,
	}
	if host != "" {
		cert, key := certificate.New(t, host)
		d.root = filepath.Join(dir, "cert.pem")
		keyFile := filepath.Join(dir, "key.pem")
		must(t, errors.Join(os.WriteFile(d.root, []byte(cert), 0o644), os.WriteFile(keyFile, []byte(key), 0o600)))
		if c := software.Credential(t, owner); c != nil {
			must(t, os.Chown(keyFile, int(c.Uid), int(c.Gid)))
		}
		command = append(command, "-c", "ssl=on", "-c", "ssl_cert_file="+d.root, "-c", "ssl_key_file="+keyFile)
	}
	software.Service{Command: command, Dir: dir, Ready: "ready to accept connections", Addr: addr, Stop: syscall.SIGINT, User: owner}.Start(t)
	return d
}

// A psql runs the client against an address.
type psql struct {
	t       *testing.T
	program string
	address string
}

// command returns the client with a query. The database's name leads to the address whatever host it has.
func (p *psql) command(settings, query string) *exec.Cmd {
	host, port, err := net.SplitHostPort(p.address)
	must(p.t, err)
	cmd := exec.CommandContext(p.t.Context(), p.program, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--command", query,
		fmt.Sprintf("hostaddr=%s port=%s user=penstock dbname=postgres connect_timeout=20 %s", host, port, settings))
	cmd.Env = append(os.Environ(), "HOME="+p.t.TempDir(), "LC_ALL=C")
	return cmd
}

// ask returns the answer to a query, or the error of the client.
func (p *psql) ask(settings, query string) string {
	out, err := p.command(settings, query).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "failed: " + text
	}
	return text
}

// replicates asks as clients do that receive the write-ahead log, of the server and of a database.
func (p *psql) replicates(settings string, kinds ...string) {
	p.t.Helper()
	for _, of := range kinds {
		if got := p.ask(settings+" replication="+of, "IDENTIFY_SYSTEM"); strings.Count(got, "|") != 3 {
			p.t.Errorf("replication=%s %s: %s", of, settings, got)
		}
	}
}

// where is a query whose answer is the name of the server, and whether the server's connection has TLS.
const where = "SELECT current_setting('cluster_name') || ' ' || ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"

// cancels interrupts a query of the client, and fails the test unless the server has ended it. running returns
// whether the query runs.
func (p *psql) cancels(settings string, running func() bool) {
	p.t.Helper()
	cmd := p.command(settings, "SELECT pg_sleep(100)")
	var out strings.Builder
	cmd.Stderr = &out
	must(p.t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	if !condition.Eventually(running) {
		p.t.Errorf("%s: the query does not run", settings)
	}
	must(p.t, cmd.Process.Signal(os.Interrupt))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(condition.Patience):
		_ = cmd.Process.Kill()
		<-ended
		p.t.Errorf("%s: the query goes on", settings)
		return
	}
	if !strings.Contains(out.String(), "canceling statement due to user request") {
		p.t.Errorf("%s: %s", settings, out.String())
	}
}

func sleeps(t *testing.T, d *database) func() bool {
	direct := &psql{t, software.Need(t, "psql", "postgresql-client"), d.addr}
	return func() bool {
		return direct.ask("sslmode=disable", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	}
}

func clientOf(t *testing.T, r *loadbalancer.Instance, listener string) *psql {
	return &psql{t, software.Need(t, "psql", "postgresql-client"), r.At(listener)}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
