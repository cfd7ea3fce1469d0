package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
)

// childName is the first argument of a test binary that runs as a child; its second argument is
// the kind.
const childName = "penstock-test-child"

// forever is longer than a test may take.
const forever = time.Minute

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		children[os.Args[1]]()
		return
	}
	leak.Main(m)
}

// children are the kinds of children.
var children = map[string]func(){
	// waits until its standard input ends.
	"idle": func() {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	// prints an error and fails.
	"fail": func() {
		fmt.Fprint(os.Stderr, "first\nno such luck")
		os.Exit(3)
	},
	// ignores SIGTERM and the end of its standard input.
	"deaf": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(forever)
	},
	// uses a CPU until its standard input ends.
	"busy": func() {
		var ended atomic.Bool
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); ended.Store(true) }()
		fmt.Println("ready")
		for n := 0; !ended.Load(); n++ {
			runtime.KeepAlive(n)
		}
	},
	// has two workers in its process group, and waits.
	"master": func() {
		for range 2 {
			w := exec.Command("/proc/self/exe")
			w.Args = []string{childName, "worker"}
			out, _ := w.StdoutPipe()
			if w.Start() != nil {
				os.Exit(1)
			}
			_, _ = out.Read(make([]byte, 1))
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	// has used a known CPU time and holds known memory.
	"worker": func() {
		burn(burned)
		held := bytes.Repeat([]byte{1}, heldBytes)
		fmt.Println("ready")
		time.Sleep(forever)
		runtime.KeepAlive(held)
	},
	// listens, and prints its address.
	"listener": func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(l.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	// starts a deaf child, prints its process id, and waits.
	"parent": func() {
		g := process.NewGroup()
		c, err := g.Start(spec("deaf"))
		if err != nil {
			os.Exit(1)
		}
		if _, err := c.Stdout(context.Background()); err != nil {
			os.Exit(1)
		}
		fmt.Println(c.Pid())
		time.Sleep(forever)
	},
}

const (
	burned    = 100 * time.Millisecond
	heldBytes = 16 << 20
)

// burn uses the CPU until this process has used it for d.
func burn(d time.Duration) {
	for used() < d {
	}
}

func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func spec(kind string) process.Spec {
	return process.Spec{Name: "the " + kind, Path: "/proc/self/exe", Args: []string{childName, kind}}
}

// start starts a child of a group that the test's end closes.
func start(t *testing.T, kind string) *process.Child {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return must.Get(g.Start(spec(kind)))(t)
}

// ready starts a child and waits until it is ready.
func ready(t *testing.T, kind string) *process.Child {
	t.Helper()
	c := start(t, kind)
	if line, err := c.Stdout(t.Context()); err != nil || line != "ready" {
		t.Fatalf("got %q, %v", line, err)
	}
	return c
}

// exists reports whether a process exists and is no zombie.
func exists(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestAChildThatEndsByItselfSaysWhy(t *testing.T) {
	c := start(t, "fail")
	_, err := c.Stdout(t.Context())
	var ended *process.EndedError
	if !errors.As(err, &ended) {
		t.Fatalf("got %v", err)
	}
	if ended.Name != "the fail" || ended.State != "exit status 3" || ended.Said != "no such luck" || ended.Pid != c.Pid() {
		t.Errorf("got %+v", ended)
	}
	if line, err := c.Stderr(t.Context()); err != nil || line != "first" {
		t.Errorf("got %q, %v", line, err)
	}
	if err := c.Stop(syscall.SIGTERM, forever); !errors.As(err, &ended) {
		t.Errorf("Stop: %v", err)
	}
	must.Is(t, c.Signal(syscall.SIGUSR1), os.ErrProcessDone)
	if err := c.Send("hello"); err == nil {
		t.Error("Send without a receiver succeeded")
	}
}

func TestStopKillsWhatDoesNotListen(t *testing.T) {
	c := ready(t, "deaf")
	if err := c.Stop(syscall.SIGTERM, 10*time.Millisecond); err == nil {
		t.Error("no error")
	}
	if exists(c.Pid()) {
		t.Error("the process still exists")
	}
}

func TestCloseEndsEveryChild(t *testing.T) {
	g := process.NewGroup()
	var children []*process.Child
	for _, kind := range []string{"idle", "deaf", "busy"} {
		c := must.Get(g.Start(spec(kind)))(t)
		children = append(children, c)
	}
	g.Close()
	for _, c := range children {
		if exists(c.Pid()) {
			t.Errorf("%s still exists", c.Name())
		}
	}
	g.Close() // a second call does no harm
	must.Fail(g.Start(spec("idle")))(t, process.ErrClosed)
}

func TestAKilledParentTakesItsChildrenWithIt(t *testing.T) {
	parent := start(t, "parent")
	line := must.Get(parent.Stdout(t.Context()))(t)
	var pid int
	if _, err := fmt.Sscan(line, &pid); err != nil || !exists(pid) {
		t.Fatalf("no child %q, %v", line, err)
	}
	parent.Kill()
	for deadline := time.Now().Add(forever); exists(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlives its parent")
		}
	}
}

func TestUsageIsOfTheChildAlone(t *testing.T) {
	busy, idle := ready(t, "busy"), ready(t, "idle")
	usage := func(c *process.Child) process.Usage {
		return must.Get(c.Usage())(t)
	}
	const enough = 50 * time.Millisecond
	before, beforeIdle := usage(busy), usage(idle)
	for usage(busy).Sub(before).CPU < enough {
		time.Sleep(time.Millisecond)
	}
	if used := usage(idle).Sub(beforeIdle).CPU; used > enough/2 {
		t.Errorf("the idle child used %v meanwhile", used)
	}
	if n := usage(busy).Switches; n <= 0 {
		t.Errorf("%d context switches", n)
	}
	idle.Kill()
	if _, err := idle.Usage(); err == nil {
		t.Error("usage of an ended process")
	}
}

// isolated returns an isolated group. It skips the test for users that may not have one.
func isolated(t *testing.T) *process.Group {
	t.Helper()
	g, err := process.NewIsolatedGroup()
	if errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	must.Do(t, err)
	t.Cleanup(g.Close)
	return g
}

func listener(t *testing.T, g *process.Group) (*process.Child, string) {
	t.Helper()
	c := must.Get(g.Start(spec("listener")))(t)
	at := must.Get(c.Stdout(t.Context()))(t)
	return c, at
}

func netns(t *testing.T, of string) string {
	t.Helper()
	return must.Get(os.Readlink("/proc/" + of + "/ns/net"))(t)
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
			must.Fail(c.Listening(at))(t, os.ErrProcessDone)
		})
	}
}

func TestAChildCountsWithItsWorkers(t *testing.T) {
	c := ready(t, "master")
	pids, err := c.Pids()
	if err != nil || len(pids) != 3 || !slices.Contains(pids, c.Pid()) {
		t.Fatalf("processes %v, %v, want %d and two more", pids, err, c.Pid())
	}
	u, err := c.Usage()
	if err != nil || u.CPU < 2*burned || u.CPU > 10*burned || u.Switches < 3 {
		t.Errorf("usage %+v, %v, want 2 times %v", u, err, burned)
	}
	m, err := c.Memory()
	if err != nil || m.RssAnon < 2*heldBytes || m.RssAnon > 20*heldBytes || m.Descriptors < 3*3 || m.Descriptors > 3*20 {
		t.Errorf("memory %+v, %v, want 2 times %d bytes", m, err, heldBytes)
	}
}

// TestWorkersEndWithTheirMaster: that holds whether this process or another one kills it.
func TestWorkersEndWithTheirMaster(t *testing.T) {
	for name, end := range map[string]func(*process.Child){
		"killed here": (*process.Child).Kill,
		"killed elsewhere": func(c *process.Child) {
			if err := c.Signal(os.Kill); err != nil {
				t.Error(err)
			}
			<-c.Done()
		},
		"ended": func(c *process.Child) {
			if err := c.Stop(syscall.Signal(0), forever); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "master")
			pids := must.Get(c.Pids())(t)
			end(c)
			for _, pid := range pids {
				if exists(pid) {
					t.Errorf("process %d of %v still exists", pid, pids)
				}
			}
			_, err := c.Pids()
			_, errMemory := c.Memory()
			_, errPipes := c.Pipes()
			_, errUsage := c.Usage()
			for _, err := range []error{err, errMemory, errPipes, errUsage} {
				must.Is(t, err, os.ErrProcessDone)
			}
		})
	}
}

// TestCountCalls: a process that reads a line and writes it makes two calls at least.
func TestCountCalls(t *testing.T) {
	g := process.NewGroup()
	t.Cleanup(g.Close)
	c := must.Get(g.Start(process.Spec{Name: "cat", Path: "/bin/cat", Args: []string{"cat"}}))(t)
	const lines = 50
	talk := func() error {
		for i := range lines {
			if err := c.Send(i); err != nil {
				return err
			}
			if _, err := c.Stdout(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}
	must.Do(t, talk()) // it has started: it makes some 70 calls before it reads
	n, err := process.CountCalls(t.Context(), []int{c.Pid()}, talk)
	if errors.Is(err, process.ErrNoStrace) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must.Do(t, err)
	if n < 2*lines-2 || n > 3*lines { // the first and the last may be missing
		t.Errorf("%d calls for %d lines", n, lines)
	}
	reason := errors.New("enough")
	must.Fail(process.CountCalls(t.Context(), []int{c.Pid()}, func() error { return reason }))(t, reason)
}
