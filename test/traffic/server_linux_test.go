package traffic

import (
	"bufio"
	"context"
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
)

// need returns the path of a program. Without it the test is skipped, or fails
// where CI is set; pkg is the Debian package to install.
func need(t *testing.T, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		missing(t, program, pkg)
	}
	return path
}

func missing(t *testing.T, program, pkg string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed (Debian package %s)", program, pkg)
	}
	t.Skipf("%s is not installed (Debian package %s)", program, pkg)
}

// A service is a real server that a test runs.
type service struct {
	command []string
	dir     string         // its working directory, from serviceDir
	ready   string         // in the line of output after which it serves; "" for the first accepted connection
	addr    string         // where it serves
	stop    syscall.Signal // ends it in good order
	user    *user.User     // nil for the test's own
}

// start runs s until the end of the test, and checks then that it left no
// process behind.
func (s service) start(t *testing.T) {
	t.Helper()
	var log lockedBuffer
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: credential(t, s.user)}
	output, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())

	ready, exited := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(exited)
		announce := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(&log, lines.Text())
			if s.ready != "" && strings.Contains(lines.Text(), s.ready) {
				announce()
			}
		}
		cmd.Wait()
	}()
	t.Cleanup(func() {
		s.end(t, cmd.Process, exited)
		if t.Failed() {
			t.Logf("output of %s:\n%s", s.command[0], log.String())
		}
	})
	if s.ready == "" {
		go func() { dialUntil(s.addr, exited); close(ready) }()
	}
	select {
	case <-ready:
	case <-exited:
		t.Fatalf("%s ended before it served", s.command[0])
	case <-time.After(patience):
		t.Fatalf("%s does not serve after %v", s.command[0], patience)
	}
}

func (s service) end(t *testing.T, p *os.Process, exited <-chan struct{}) {
	p.Signal(s.stop)
	select {
	case <-exited:
	case <-time.After(patience):
		t.Errorf("%s still runs %v after %v", s.command[0], patience, s.stop)
		p.Kill()
		<-exited
	}
	var left []string
	if !eventually(func() bool { left = processesIn(s.dir); return len(left) == 0 }) {
		t.Errorf("%s left processes behind: %v", s.command[0], left)
	}
}

// dialUntil returns after the first connection that addr accepts.
func dialUntil(addr string, exited <-chan struct{}) {
	eventually(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		select {
		case <-exited:
			return true
		default:
			return err == nil
		}
	})
}

// eventually asks until the answer is yes, for at most patience.
func eventually(yes func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if yes() {
			tick.Stop()
			return true
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return false
		case <-tick.C:
		}
	}
}

// serviceAddr returns an address that nothing listens on. Its IP address keeps
// it clear of the ports that other programs' outgoing connections are given.
func serviceAddr(t *testing.T) (addr, host, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.7.1:0")
	must(t, err)
	defer l.Close()
	addr = l.Addr().String()
	host, port, err = net.SplitHostPort(addr)
	must(t, err)
	return addr, host, port
}

// serviceDir makes a directory that u (nil for the test's own user) owns and
// can reach.
func serviceDir(t *testing.T, u *user.User) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "penstock-traffic-")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if c := credential(t, u); c != nil {
		must(t, os.Chown(dir, int(c.Uid), int(c.Gid)))
	}
	return dir
}

// ordinaryUser returns whom root runs those servers as that refuse to run as
// root; nil where the test is an ordinary user already.
func ordinaryUser(t *testing.T) *user.User {
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

func credential(t *testing.T, u *user.User) *syscall.Credential {
	t.Helper()
	if u == nil {
		return nil
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	must(t, err)
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	must(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// processesIn lists the processes whose working directory is dir or below. It
// sees those that left their parent's session and renamed themselves, too.
func processesIn(dir string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var found []string
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || (cwd != dir && !strings.HasPrefix(cwd, dir+"/")) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		found = append(found, filepath.Base(filepath.Dir(link))+" "+strings.TrimSpace(string(name)))
	}
	return found
}

// run runs a client to its end and returns what it printed; it fails the test
// unless the client succeeds.
func run(t *testing.T, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, stderr.String())
	}
	return string(out)
}
