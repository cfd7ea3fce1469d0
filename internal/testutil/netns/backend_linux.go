package netns

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// A Manner is how a backend treats its connections.
type Manner string

// The manners of a [Backend].
const (
	Echo   Manner = "echo"   // sends its name as a line, then echoes what it gets
	Reset  Manner = "reset"  // resets each connection at once
	Silent Manner = "silent" // accepts connections and never sends
)

// A Backend is a listening process.
type Backend struct {
	Addr netip.AddrPort
	host *Host
	cmd  *exec.Cmd
}

// asBackend is the environment variable that makes a process a backend, and says of which kind.
const asBackend = "PENSTOCK_TEST_BACKEND"

// Backend starts a backend on the host, and returns when it listens. Port 0 means a free port. The test's
// TestMain must call [Main].
func (h *Host) Backend(name string, manner Manner, at netip.AddrPort) *Backend {
	h.t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^$")
	cmd.Env = append(os.Environ(), asBackend+"="+strings.Join([]string{name, string(manner), at.String()}, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal("netns:", err)
	}
	h.Start(cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, bad := netip.ParseAddrPort(strings.TrimSpace(line))
	if err != nil || bad != nil {
		h.t.Fatalf("netns: backend %s says %q: %v: does TestMain call netns.Main?", name, line, err)
	}
	return &Backend{Addr: addr, host: h, cmd: cmd}
}

// PID returns the ID of the process.
func (b *Backend) PID() int { return b.cmd.Process.Pid }

// Kill ends the process as the kernel does when memory is short: the kernel resets or ends its connections, and
// nothing listens any more.
func (b *Backend) Kill() {
	b.host.t.Helper()
	b.signal(syscall.SIGKILL)
	_ = b.cmd.Wait()
}

// Freeze stops the process by SIGSTOP, and returns when it stands still: the kernel still accepts connections
// for it and acknowledges their bytes, but nothing comes back.
func (b *Backend) Freeze() {
	b.host.t.Helper()
	b.signal(syscall.SIGSTOP)
	condition.Await(b.host.t, "the backend has stopped", b.stopped)
}

// stopped reports whether every thread is in state T, which follows the name in parentheses (proc_pid_stat(5)).
func (b *Backend) stopped() bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.cmd.Process.Pid))
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if i := bytes.LastIndexByte(text, ')'); err != nil || !bytes.HasPrefix(text[i+1:], []byte(" T")) {
			return false
		}
	}
	return err == nil && len(stats) > 0
}

// Thaw lets a frozen process go on.
func (b *Backend) Thaw() { b.host.t.Helper(); b.signal(syscall.SIGCONT) }

func (b *Backend) signal(s syscall.Signal) {
	b.host.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.host.t.Fatalf("netns: %v to a backend: %v", s, err)
	}
}

// Main runs the backend, and does not return, in a process that [Host.Backend] has started. In other processes
// it does nothing.
func Main() {
	what, ok := os.LookupEnv(asBackend)
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, "netns: backend:", serve(what))
	os.Exit(1)
}

// serve returns when accepting fails.
func serve(what string) error {
	var name, at string
	var manner Manner
	if _, err := fmt.Sscan(what, &name, &manner, &at); err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go manner.serve(c.(*net.TCPConn), name)
	}
}

func (m Manner) serve(c *net.TCPConn, name string) {
	switch m {
	case Reset:
		_ = c.SetLinger(0)
	case Silent:
		_, _ = io.Copy(io.Discard, c)
	default:
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			_, _ = io.Copy(c, c)
		}
	}
	c.Close()
}
