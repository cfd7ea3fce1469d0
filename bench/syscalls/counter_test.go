package syscalls_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/syscalls"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// childName is the first argument of a test binary that runs as a child.
const childName = "penstock-syscalls-child"

// calls is the number of system calls that the child makes for each line: half of them on its
// first thread, half on new ones.
const calls, threads = 10_000, 4

func TestMain(m *testing.M) {
	if os.Args[0] == childName {
		caller()
		return
	}
	leak.Main(m)
}

// caller makes calls for each line that it reads.
func caller() {
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for in.Scan() {
		call(calls / 2)
		var all sync.WaitGroup
		for range threads {
			all.Go(func() {
				runtime.LockOSThread() // never unlocked: the goroutine has a thread of its own
				call(calls / 2 / threads)
			})
		}
		all.Wait()
		fmt.Println("done")
	}
}

func call(times int) {
	for range times {
		_ = syscall.Getppid()
	}
}

// children starts n children and waits until they are ready.
func children(t *testing.T, n int) (all []*process.Child, pids []int) {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	for range n {
		c, err := g.Start(process.Spec{Name: "the caller", Path: "/proc/self/exe", Args: []string{childName}})
		if err != nil {
			t.Fatal(err)
		}
		hear(t, c, "ready")
		all, pids = append(all, c), append(pids, c.Pid())
	}
	return all, pids
}

func hear(t *testing.T, c *process.Child, want string) {
	t.Helper()
	if line, err := c.Stdout(t.Context()); err != nil || line != want {
		t.Fatalf("got %q, %v, want %q", line, err, want)
	}
}

// found returns a counter. Without one the test is skipped, or fails where CI
// is set.
func found(t *testing.T) *syscalls.Counter {
	t.Helper()
	c, err := syscalls.Find()
	if errors.Is(err, syscalls.ErrNone) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("by %s", c.Tool())
	return c
}

// checkCount counts the calls of two children, and then of one again, after it was released in
// between.
func checkCount(t *testing.T, c *syscalls.Counter) {
	t.Helper()
	all, pids := children(t, 2)
	for n := 2; n > 0; n-- {
		want, got := int64(n*calls), int64(0)
		// The runtime makes calls as well: to start threads, to wait, to write. On a busy machine
		// it makes more, so there are ten attempts. If a process is counted twice, or one too many
		// is, there are twice as many calls each time.
		for range 10 {
			if got = countOnce(t, c, all[:n], pids[:n]); got <= want+want/2 {
				break
			}
		}
		if got < want || got > want+want/2 {
			t.Errorf("%d processes: %d calls, want %d and at most half as many again", n, got, want)
		}
	}
}

// countOnce has children make their calls, and returns how many were counted.
func countOnce(t *testing.T, c *syscalls.Counter, all []*process.Child, pids []int) int64 {
	t.Helper()
	got, err := c.Count(t.Context(), pids, func() error {
		for _, child := range all {
			if err := child.Send("go"); err != nil {
				return err
			}
			hear(t, child, "done")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCount(t *testing.T) { checkCount(t, found(t)) }

// TestCountWithoutPerf is TestCount with strace.
func TestCountWithoutPerf(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"strace", "cat"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if err := os.Symlink(path, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	c := found(t)
	if c.Tool() != "strace" {
		t.Fatalf("found %s", c.Tool())
	}
	checkCount(t, c)
}

// TestCountAsAnOrdinaryUser: strace needs no rights to trace our own processes.
func TestCountAsAnOrdinaryUser(t *testing.T) {
	if privilege.Ordinary(t) {
		checkCount(t, found(t))
	}
}

func TestNothingToCountWith(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := syscalls.Find()
	if !errors.Is(err, syscalls.ErrNone) || !strings.Contains(err.Error(), "strace: not installed") {
		t.Errorf("got %v", err)
	}
}

func TestCountOfNobodyFails(t *testing.T) {
	c := found(t)
	for name, pids := range map[string][]int{"none": nil, "one that is not there": {1<<22 + 1}} {
		_, err := c.Count(t.Context(), pids, func() error {
			t.Errorf("%s: the count begins", name)
			return nil
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		t.Log(err)
	}
}

func TestAnErrorOfWhatIsCountedIsReturned(t *testing.T) {
	c := found(t)
	_, pids := children(t, 1)
	reason := errors.New("enough")
	if _, err := c.Count(t.Context(), pids, func() error { return reason }); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	if tracer(t, pids[0]) != "0" {
		t.Error("the process is still traced")
	}
}

// tracer returns the tracer of a process, 0 for none.
func tracer(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "TracerPid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
