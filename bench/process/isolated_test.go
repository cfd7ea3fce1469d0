package process_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// isolated returns an isolated group. It skips the test for users that may not have one.
func isolated(t *testing.T) *process.Group {
	t.Helper()
	g, err := process.NewIsolatedGroup()
	if errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// listener starts a child that listens.
func listener(t *testing.T, g *process.Group) (*process.Child, string) {
	t.Helper()
	c, err := g.Start(spec("listener"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := c.Stdout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, at
}

func netns(t *testing.T, of string) string {
	t.Helper()
	link, err := os.Readlink("/proc/" + of + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestAnIsolatedGroupHasANetworkOfItsOwn(t *testing.T) {
	before := netns(t, "self")
	g := isolated(t)
	_, at := listener(t, g)
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("the listener is reached from outside")
	}
	var c net.Conn
	var dialed error
	var ports []byte
	if err := g.Do(func() {
		c, dialed = net.Dial("tcp", at)
		ports, _ = os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	}); err != nil || dialed != nil {
		t.Fatal(err, dialed)
	}
	_ = c.Close()
	if f := strings.Fields(string(ports)); len(f) != 2 || f[0] != "1024" {
		t.Errorf("ports %q", ports)
	}
	if after := netns(t, "self"); after != before {
		t.Errorf("this process has moved from %s to %s", before, after)
	}
}

// TestAnIsolatedThreadIsNotUsedAgain looks for threads left in another namespace.
func TestAnIsolatedThreadIsNotUsedAgain(t *testing.T) {
	for range 3 {
		g := isolated(t)
		g.Close()
	}
	deadline := time.Now().Add(forever)
	for len(strayed(t)) > 0 { // a thread's end takes a moment
		if time.Now().After(deadline) {
			t.Fatalf("threads in other namespaces: %v", strayed(t))
		}
		time.Sleep(time.Millisecond)
	}
}

// strayed returns the threads that are not in this process's namespace.
func strayed(t *testing.T) (threads []string) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	own := netns(t, "self")
	for _, task := range tasks {
		link, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if err == nil && link != own {
			threads = append(threads, task.Name())
		}
	}
	return threads
}

func TestAnIsolatedGroupIsNotForEverybody(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	if g, err := process.NewIsolatedGroup(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v, %v, want EPERM", g, err)
	}
}

func TestListening(t *testing.T) {
	for name, g := range map[string]*process.Group{"here": process.NewGroup(), "isolated": nil} {
		t.Run(name, func(t *testing.T) {
			if g == nil {
				g = isolated(t)
			}
			defer g.Close()
			c, text := listener(t, g)
			other, _ := listener(t, g)
			at := netip.MustParseAddrPort(text)
			if n, err := c.Listening(at); err != nil || n != 1 {
				t.Errorf("got %d, %v", n, err)
			}
			if n, err := other.Listening(at); err != nil || n != 0 {
				t.Errorf("another child's port: got %d, %v", n, err)
			}
			elsewhere := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port())
			if n, err := c.Listening(elsewhere); err != nil || n != 0 {
				t.Errorf("at another address: got %d, %v", n, err)
			}
			c.Kill()
			if _, err := c.Listening(at); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("after its end: %v", err)
			}
		})
	}
}

func TestDoOnAGroupThatIsClosed(t *testing.T) {
	g := process.NewGroup()
	g.Close()
	if err := g.Do(func() { t.Error("the process runs") }); !errors.Is(err, process.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestChildrenMayOpenAllThatTheHardLimitAllows(t *testing.T) {
	c := start(t, "limited")
	line, err := c.Stdout(t.Context())
	soft, hard, found := strings.Cut(line, " ")
	if err != nil || !found || soft != hard {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestASpecsFilesAndDirectory passes a pipe and a directory.
func TestASpecsFilesAndDirectory(t *testing.T) {
	g := process.NewGroup()
	defer g.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	c, err := g.Start(process.Spec{
		Name: "the shell", Path: "/bin/sh", Args: []string{"sh", "-c", "pwd >&3"}, Dir: dir, Files: []*os.File{w},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(r); err != nil || strings.TrimSpace(string(said)) != dir {
		t.Errorf("got %q, %v, want %s", said, err, dir)
	}
	<-c.Done()
}
