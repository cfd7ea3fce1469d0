package balancing

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

// A node is a PostgreSQL server with a server beside it that reports its role over HTTP. The port
// of the roles is the same on all nodes: each node has its own IP address.
type node struct {
	t                *testing.T
	bin              string
	owner            *user.User
	host, addr, port string
	dir, data        string
}

// newNodes makes two nodes, and returns the port of their roles. Neither node serves a database
// yet.
func newNodes(t *testing.T) (a, b *node, rolePort string) {
	t.Helper()
	bin, owner := software.Postgres(t), software.Ordinary(t)
	roles, rolePort := onePort(t, "127.0.7.3", "127.0.7.4")
	nodes := make([]*node, len(roles))
	for i, l := range roles {
		n := &node{t: t, bin: bin, owner: owner, dir: software.Dir(t, owner)}
		free, err := net.Listen("tcp", strings.Replace(l.Addr().String(), ":"+rolePort, ":0", 1))
		must(t, err)
		n.addr = free.Addr().String()
		n.host, n.port, err = net.SplitHostPort(n.addr)
		must(t, errors.Join(err, free.Close()))
		serveRole(t, l, n.addr)
		nodes[i] = n
	}
	return nodes[0], nodes[1], rolePort
}

func onePort(t *testing.T, first, second string) (listeners []net.Listener, port string) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", first+":0")
		must(t, err)
		_, port, err = net.SplitHostPort(l.Addr().String())
		must(t, err)
		m, err := net.Listen("tcp", second+":"+port)
		if err == nil {
			return []net.Listener{l, m}, port
		}
		must(t, l.Close())
	}
	t.Fatalf("%s and %s have no free port in common", first, second)
	panic("unreachable")
}

func (n *node) initdb() {
	n.t.Helper()
	n.data = filepath.Join(n.dir, "data")
	software.RunAs(n.t, n.owner, n.dir, filepath.Join(n.bin, "initdb"), "--pgdata", n.data, "--username", "penstock",
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--wal-segsize", "1", "--no-sync")
}

// follow makes a node's database as a copy of the one at addr, whose standby it becomes.
func (n *node) follow(addr string) {
	n.t.Helper()
	host, port, err := net.SplitHostPort(addr)
	must(n.t, err)
	data, err := os.MkdirTemp(n.dir, "standby-")
	must(n.t, err)
	if c := software.Credential(n.t, n.owner); c != nil {
		must(n.t, os.Chown(data, int(c.Uid), int(c.Gid)))
	}
	n.data = data
	software.RunAs(n.t, n.owner, n.dir, filepath.Join(n.bin, "pg_basebackup"), "--pgdata", n.data, "--host", host, "--port", port,
		"--username", "penstock", "--wal-method", "stream", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
}

// serve serves a node's database. A killed server leaves files only below its directory, and one
// segment of shared memory.
func (n *node) serve() {
	n.t.Helper()
	software.Service{
		Command: []string{
			filepath.Join(n.bin, "postgres"), "-D", n.data,
			"-c", "listen_addresses=" + n.host, "-c", "port=" + n.port, "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "dynamic_shared_memory_type=mmap", "-c", "shared_buffers=8MB", "-c", "log_min_messages=fatal",
			"-c", "wal_retrieve_retry_interval=100ms", "-c", "autovacuum=off",
		},
		Dir: n.dir,
		// log_min_messages suppresses the line that reports readiness.
		Addr: n.addr,
		Stop: syscall.SIGINT, // its "fast shutdown"
		User: n.owner,
	}.Start(n.t)
	must(n.t, n.answers())
}

// answers waits until a node accepts queries.
func (n *node) answers() (err error) {
	condition.Eventually(func() bool { _, err = n.query("SELECT 1"); return err == nil })
	return err
}

// query asks a node's database directly, not through the program under test.
func (n *node) query(sql string) (string, error) {
	d, err := connect(n.addr, condition.Patience)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return d.query(sql)
}

// freeze stops all processes of a node: its kernel still accepts, and no process answers.
func (n *node) freeze() { n.signal(syscall.SIGSTOP) }

func (n *node) kill() {
	n.t.Helper()
	pidFile, err := os.ReadFile(filepath.Join(n.data, "postmaster.pid"))
	must(n.t, err)
	n.signal(syscall.SIGKILL)
	if !condition.Eventually(func() bool { return len(software.ProcessesIn(n.dir)) == 0 }) {
		n.t.Fatalf("killed processes still run: %v", software.ProcessesIn(n.dir))
	}
	// The seventh line has the key and the number of the segment.
	if line := strings.Split(string(pidFile), "\n"); len(line) > 6 {
		if segment := strings.Fields(line[6]); len(segment) == 2 {
			software.Run(n.t, software.Need(n.t, "ipcrm", "util-linux"), "--shmem-id", segment[1])
		}
	}
}

func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	told := make(map[int]bool)
	for more := true; more; {
		more = false
		for _, p := range software.ProcessesIn(n.dir) {
			if told[p.PID] {
				continue
			}
			if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
				n.t.Fatal(err)
			}
			told[p.PID], more = true, true
		}
	}
	if len(told) == 0 {
		n.t.Fatal("a node has no processes")
	}
}

// A role reports the role of a database, as Patroni does: status 200 for its role, 503 for the
// other role, and 503 for both if it does not answer.
type role struct {
	addr string
	mu   sync.Mutex
	*database
}

// roleTime is how long a database may take to report its role.
const roleTime = 600 * time.Millisecond

// serveRole reports the role of the database at addr until the end of the test.
func serveRole(t *testing.T, l net.Listener, addr string) {
	r := &role{addr: addr}
	mux := http.NewServeMux()
	for path, standby := range map[string]string{"/primary": "f", "/replica": "t"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if r.standby() != standby {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
	}
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done; r.forget() })
}

// standby returns t or f, or nothing.
func (r *role) standby() (answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.database == nil {
		if r.database, err = connect(r.addr, roleTime); err != nil {
			r.database = nil
			return ""
		}
	}
	if err = r.SetDeadline(time.Now().Add(roleTime)); err == nil {
		answer, err = r.query("SELECT pg_is_in_recovery()")
	}
	if err != nil {
		r.database.Close()
		r.database = nil
	}
	return answer
}

func (r *role) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.database != nil {
		r.database.Close()
	}
}
