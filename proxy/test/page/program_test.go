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

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
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

// An instance is penstock run, and penstock page for it.
type instance struct{ *program.Program }

// startProgram runs a configuration until the end of the test, when it ends in good order.
func startProgram(t testing.TB, configuration string) *instance {
	t.Helper()
	software.Long(t, browsing)
	p := &instance{program.Start(t, filepath.Join(build(t), "penstock"), software.Dir(t, nil), configuration)}
	t.Cleanup(p.End)
	return p
}

// page runs penstock page until the end of the test, and returns the address that it prints.
func (p *instance) page() string {
	p.T.Helper()
	cmd := exec.Command(p.Path, "page", "--no-browser", "--config", "penstock.yaml")
	cmd.Dir, cmd.Stderr = p.Dir, &p.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	must(p.T, err)
	must(p.T, cmd.Start())
	p.T.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		late := time.AfterFunc(condition.Patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			p.T.Errorf("penstock page ended with %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.T.Fatalf("penstock page prints no address: %v\n%s", err, p.Log.String())
	}
	return strings.TrimSpace(line)
}

type server struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	done  sync.WaitGroup
}

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

func (s *server) kill() {
	s.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func two(a, b *server, idle string) string {
	return fmt.Sprintf(`
listeners: [{name: web, bind: "127.0.0.1:0", upstream: shop, timeouts: {idle: %s}}]
upstreams:
  - name: shop
    endpoints: [{address: %q, name: a}, {address: %q, name: b}]
    health_check: {interval: 100ms, fast_interval: 50ms, timeout: 1s, rise: 2, fall: 2}
`, idle, a.Addr(), b.Addr())
}
