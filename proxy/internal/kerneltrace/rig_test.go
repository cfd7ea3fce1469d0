package kerneltrace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// open traces, and skips the test in a process that may not.
func open(t *testing.T, cfg Config) *Tracer {
	t.Helper()
	tracer, err := Open(cfg)
	if refused, ok := errors.AsType[*PrivilegeError](err); ok {
		t.Skip("tracing needs", strings.Join(refused.Missing, " and "))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tracer.Close(); err != nil {
			t.Error(err)
		}
	})
	return tracer
}

// until reads until a reading has it, for at most a minute.
func until(t *testing.T, tracer *Tracer, what string, has func(*Reading) bool) *Reading {
	t.Helper()
	for deadline := time.Now().Add(condition.Patience); ; time.Sleep(5 * time.Millisecond) {
		r, err := tracer.Read()
		if err != nil {
			t.Fatal(err)
		}
		if has(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s: %+v, of others %v", what, r.Events, r.Unmatched)
		}
	}
}

func event(r *Reading, match func(*Event) bool) (n uint64) {
	for i := range r.Events {
		if match(&r.Events[i]) {
			n += r.Events[i].Count
		}
	}
	return n
}

// pair connects two sockets of this process, over a new listener.
func pair(t *testing.T, l net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func listen(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func addrOf(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// alone is netns.Alone for tests of this package, which need real privileges: in a user namespace
// of its own a process may not trace.
func alone(t *testing.T) bool {
	t.Helper()
	if refused, ok := errors.AsType[*PrivilegeError](Allowed()); ok {
		t.Skip("tracing needs", strings.Join(refused.Missing, " and "))
	}
	return netns.Alone(t)
}

// nft runs nft(8) on a script in the network of a host.
func nft(t *testing.T, h *netns.Host, script string) {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		path = "/usr/sbin/nft"
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out []byte
	h.Run(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("nft (Debian package nftables): %v: %s", err, out)
		}
		t.Fatalf("nft (Debian package nftables): %v: %s", err, out)
	}
}

// asVictim traces this process until it is killed, if it was started for that.
func asVictim() {
	if os.Getenv("PENSTOCK_TEST_VICTIM") == "" {
		return
	}
	tracer, err := Open(Config{PIDs: []int{os.Getpid()}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("attached")
	_, _ = io.Copy(io.Discard, os.Stdin)
	tracer.Close()
	os.Exit(0)
}

// startVictim starts this program as one that traces itself, and returns when it is attached.
func startVictim(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(privilege.Self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "PENSTOCK_TEST_VICTIM=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "attached\n" {
		t.Fatalf("the victim says %q", line)
	}
	return cmd
}

// loadedPrograms returns the IDs of the programs in the kernel with a name of ours.
func loadedPrograms(t *testing.T) map[ebpf.ProgramID]bool {
	t.Helper()
	ids := make(map[ebpf.ProgramID]bool)
	for id, err := ebpf.ProgramGetNextID(0); ; id, err = ebpf.ProgramGetNextID(id) {
		if errors.Is(err, os.ErrNotExist) {
			return ids
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // gone meanwhile
		}
		info, err := p.Info()
		if err == nil && strings.HasPrefix(info.Name, "penstock_") {
			ids[id] = true
		}
		p.Close()
	}
}

// ebpfID is the number of a program.
type ebpfID = ebpf.ProgramID
