package page

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

func TestMain(m *testing.M) { leak.Main(tests{m}) }

// tests are those of the package. The program is built once for all of them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer os.RemoveAll(built.dir)
	return m.M.Run()
}

// built is where the program is, once a test has needed it.
var built struct {
	sync.Once
	dir string
}

// build returns the directory with penstock.
func build(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		from := filepath.Join(software.Build(t, "github.com/penstock/penstock/proxy/cmd/penstock"), "penstock")
		dir, err := os.MkdirTemp("", "penstock-page-")
		must(t, err)
		must(t, os.Rename(from, filepath.Join(dir, "penstock")))
		built.dir = dir
	})
	if built.dir == "" {
		t.Fatal("penstock is not built")
	}
	return built.dir
}

// A program is penstock run with an admin socket, and penstock page for it.
type program struct {
	testing.TB
	*admin.Client
	path, dir string
	log       software.Output
}

// startProgram runs a configuration until the end of the test.
func startProgram(t testing.TB, configuration string) *program {
	t.Helper()
	software.Long(t, browsing)
	p := &program{TB: t, dir: t.TempDir(), path: filepath.Join(build(t), "penstock")}
	p.write(configuration)
	p.begin(&p.log, "run", "--config", "penstock.yaml")
	var err error
	p.Client, err = admin.NewClient("unix:" + filepath.Join(p.dir, "admin.sock"))
	must(t, err)
	if !software.Eventually(func() bool { _, err := p.Generations(t.Context()); return err == nil }) {
		t.Fatalf("penstock does not run\n%s", p.log.String())
	}
	return p
}

// write replaces the configuration.
func (p *program) write(configuration string) {
	p.Helper()
	must(p, os.WriteFile(filepath.Join(p.dir, "penstock.yaml"), []byte("admin: {bind: \"unix:admin.sock\"}\n"+configuration), 0o600))
}

// begin starts a command of penstock, which is interrupted at the end of the test, and then ends in good order.
func (p *program) begin(stdout io.Writer, arguments ...string) {
	p.Helper()
	cmd := exec.Command(p.path, arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, stdout, &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(p, cmd.Start())
	p.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		late := time.AfterFunc(software.Patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			p.Errorf("penstock %s ended with %v\n%s", arguments[0], err, p.log.String())
		}
	})
}

// page runs penstock page, and returns the address that it prints.
func (p *program) page() string {
	p.Helper()
	r, w := io.Pipe()
	p.Cleanup(func() { r.Close() })
	p.begin(w, "page", "--no-browser", "--config", "penstock.yaml")
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		p.Fatalf("penstock page prints no address: %v\n%s", err, p.log.String())
	}
	return strings.TrimSpace(line)
}

// status returns the status.
func (p *program) status() admin.Status {
	p.Helper()
	s, err := p.Status(p.Context())
	must(p, err)
	return s
}

// await waits until the status meets a condition.
func (p *program) await(what string, ok func(*admin.Status) bool) {
	p.Helper()
	if !software.Eventually(func() bool { s := p.status(); return ok(&s) }) {
		p.Fatalf("not in time: %s\n%s", what, p.log.String())
	}
}

// A server is an endpoint that sends back all it gets.
type server struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	done  sync.WaitGroup
}

// startServer starts an endpoint.
func startServer(t testing.TB) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &server{Listener: l}
	s.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.done.Go(func() { _, _ = io.Copy(c, c); c.Close() }) // the client may reset
		}
	})
	t.Cleanup(s.kill)
	return s
}

// kill ends it with all its connections.
func (s *server) kill() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

// two is a configuration with two endpoints, a and b.
func two(a, b *server, idle string) string {
	return fmt.Sprintf(`
listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop, timeouts: {idle: %s}}]
upstreams:
  - name: shop
    endpoints: [{address: %q, name: a}, {address: %q, name: b}]
    health_check: {interval: 100ms, fast_interval: 50ms, timeout: 1s, rise: 2, fall: 2}
`, idle, a.Addr(), b.Addr())
}
