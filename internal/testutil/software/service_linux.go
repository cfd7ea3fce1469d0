package software

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// A Service is a real server that a test runs.
type Service struct {
	Command []string
	Dir     string         // its working directory, from [Dir]
	Ready   string         // part of the line of output after which it serves; "" for the first accepted connection
	Addr    string         // the address on which it serves
	Stop    syscall.Signal // ends it properly
	User    *user.User     // nil means the test's own user
}

// Start runs s until the end of the test, and then checks that it left no process behind. It returns the
// server's first process, which the test may signal and kill.
func (s Service) Start(t testing.TB) *os.Process {
	t.Helper()
	var log Output
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: Credential(t, s.User)}
	output, err := cmd.StdoutPipe()
	must.Do(t, err)
	cmd.Stderr = cmd.Stdout
	must.Do(t, cmd.Start())

	ready, exited := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(exited)
		announce := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if s.Ready != "" && strings.Contains(lines.Text(), s.Ready) {
				announce()
			}
		}
		_ = cmd.Wait() // its status comes from the signal that ends it
	}()
	t.Cleanup(func() {
		s.end(t, cmd.Process, exited)
		if t.Failed() {
			t.Logf("output of %s:\n%s", s.Command[0], log.String())
		}
	})
	if s.Ready == "" {
		go func() { dialUntil(s.Addr, exited); close(ready) }()
	}
	select {
	case <-ready:
	case <-exited:
		t.Fatalf("%s ended before it served", s.Command[0])
	case <-time.After(condition.Patience):
		t.Fatalf("%s does not serve after %v", s.Command[0], condition.Patience)
	}
	return cmd.Process
}

func (s Service) end(t testing.TB, p *os.Process, exited <-chan struct{}) {
	_ = p.Signal(s.Stop) // fails if the test has killed it
	select {
	case <-exited:
	case <-time.After(condition.Patience):
		t.Errorf("%s still runs %v after %v", s.Command[0], condition.Patience, s.Stop)
		_ = p.Kill()
		<-exited
	}
	var left []Process
	if !condition.Eventually(func() bool { left = ProcessesIn(s.Dir); return len(left) == 0 }) {
		t.Errorf("%s left processes behind: %v", s.Command[0], left)
	}
}

// dialUntil returns after the first connection that addr accepts.
func dialUntil(addr string, exited <-chan struct{}) {
	condition.Eventually(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		select {
		case <-exited:
			return true
		default:
			return err == nil
		}
	})
}

// Addr returns an address that nothing listens on. No other program gets its port until the test ends: see
// [sockets.Port].
func Addr(t testing.TB) (addr, host, port string) {
	t.Helper()
	host, port = "127.0.7.1", sockets.Port(t)
	return net.JoinHostPort(host, port), host, port
}

// Dir makes a directory that u owns and can reach; nil means the test's own user. It is removed at the end of
// the test.
func Dir(t testing.TB, u *user.User) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "penstock-software-")
	must.Do(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if c := Credential(t, u); c != nil {
		must.Do(t, os.Chown(dir, int(c.Uid), int(c.Gid)))
	}
	return dir
}

// Ordinary returns the user as which root runs servers that refuse to run as root, or nil if the test already
// runs as an ordinary user.
func Ordinary(t testing.TB) *user.User {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return u
		}
	}
	t.Fatal("neither user postgres nor nobody exists")
	return nil
}

// Credential returns the attribute that makes a process run as u; nil means the test's own user.
func Credential(t testing.TB, u *user.User) *syscall.Credential {
	t.Helper()
	if u == nil {
		return nil
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	must.Do(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	must.Do(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// A Process is a running process.
type Process struct {
	PID  int
	Name string
}

// ProcessesIn lists the processes with a working directory in dir or below. It also sees processes that have
// left their parent's session and renamed themselves.
func ProcessesIn(dir string) []Process {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var found []Process
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || (cwd != dir && !strings.HasPrefix(cwd, dir+"/")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		found = append(found, Process{pid, strings.TrimSpace(string(name))})
	}
	return found
}
