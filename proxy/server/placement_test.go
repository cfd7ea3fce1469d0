package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/topology"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
	"github.com/penstock/penstock/proxy/server"
)

// placed is a configuration with limits.
const placed = `
limits: {%s}
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off}]`

// byFile has the number of loops come from the configuration.
var byFile = loadbalancer.Setting{Change: func(o *server.Options) { o.Loops = 0 }}

// affinities are the different sets of CPUs that the threads of this process have.
func affinities(t *testing.T) (different []string) {
	t.Helper()
	threads, err := topology.Threads()
	must(t, err)
	for _, tid := range threads {
		mask, err := sys.SchedGetaffinity(tid)
		if err == syscall.ESRCH { // it has ended
			continue
		}
		must(t, err)
		different = append(different, topology.Set(mask.CPUs()).String())
	}
	slices.Sort(different)
	return slices.Compact(different)
}

// TestAffinity: every thread runs on the CPUs of the configuration, there is a loop for each, and
// afterwards the threads have those that they had.
func TestAffinity(t *testing.T) {
	t.Parallel()

	had, err := topology.AllowedCPUs()
	must(t, err)
	last := strconv.Itoa(had[len(had)-1])
	r := byFile.Start(t, fmt.Sprintf(placed, "loops: {affinity: "+last+"}"))
	if got := affinities(t); !slices.Equal(got, []string{last}) {
		t.Errorf("the threads have %v, want %s", got, last)
	}
	if s := r.Status(); s.CPUs != last || len(s.Loops) != 1 {
		t.Errorf("status: CPUs %q, %d loops", s.CPUs, len(s.Loops))
	}
	must(t, r.End())
	if got := affinities(t); !slices.Equal(got, []string{had.String()}) {
		t.Errorf("afterwards the threads have %v, want %v", got, had)
	}
}

// TestLoopsOfTheConfiguration: an option takes precedence.
func TestLoopsOfTheConfiguration(t *testing.T) {
	for limits, want := range map[string]int{"loops: {count: 3}": 3, "connections: 9": runtime.GOMAXPROCS(0)} {
		r := byFile.Start(t, fmt.Sprintf(placed, limits))
		if got := len(r.Status().Loops); got != want {
			t.Errorf("%s: %d loops, want %d", limits, got, want)
		}
		must(t, r.End())
	}
	if got := len(start(t, fmt.Sprintf(placed, "loops: {count: 3}")).Status().Loops); got != 2 {
		t.Errorf("%d loops, the option is 2", got)
	}
}

// locked is VmLck of /proc/self/status in bytes.
func locked(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, after, _ := strings.Cut(string(text), "VmLck:")
	var kib int64
	must(t, second(fmt.Sscanf(after, "%d kB", &kib)))
	return kib << 10
}

// TestMemory: the memory is locked, of plain pages and on the node that the configuration names,
// as an ordinary user too.
func TestMemory(t *testing.T) {
	if !privilege.Ordinary(t) {
		return
	}
	const need = 1 << 23
	if limit, err := sys.RlimitMemlock(); err != nil || limit < need {
		t.Skipf("RLIMIT_MEMLOCK is %d, %v", limit, err)
	}
	allowed, err := sys.MemsAllowed()
	if err != nil {
		t.Skipf("no NUMA: %v", err)
	}
	nodes := allowed.Nodes()
	before := locked(t)
	r := byFile.Start(t, fmt.Sprintf(placed, fmt.Sprintf("loops: {count: 1}, memory: {huge_pages: off, mlock: true, numa: %d}", nodes[0])))
	a := r.Status().Arena
	if want := (admin.Arena{Budget: 4 << 20, Pages: "plain pages", Locked: true, Nodes: nodes[:1]}); a.Budget != want.Budget || a.Pages != want.Pages || !a.Locked || !slices.Equal(a.Nodes, want.Nodes) || a.Huge != 0 {
		t.Errorf("%+v, want %+v", a, want)
	}
	if got := locked(t) - before; got < 4<<20 {
		t.Errorf("%d bytes are locked", got)
	}
	if got := boundMappings(t, nodes[0]); got != 1 {
		t.Errorf("%d mappings are bound to node %d", got, nodes[0])
	}
	must(t, r.End())
	if got := locked(t); got != before {
		t.Errorf("%d bytes are locked afterwards", got-before)
	}
}

// boundMappings counts the mappings of this process with MPOL_BIND to a node
// (Documentation/filesystems/proc.rst, numa_maps).
func boundMappings(t *testing.T, node int) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == fmt.Sprintf("bind:%d", node) {
			n++
		}
	}
	return n
}

// TestNotBound: numa: off binds nothing.
func TestNotBound(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(placed, "memory: {numa: off}"))
	if a := r.Status().Arena; a.Nodes != nil || a.Unbound != "" || a.Pages == "" || a.Locked {
		t.Errorf("%+v", a)
	}
}

// TestMemoryRefused: what cannot be had is refused at the start with the key and a remedy, and
// nothing is left.
func TestMemoryRefused(t *testing.T) {
	t.Parallel()

	if !privilege.Refused(t, syscall.EPERM, sys.SYS_MLOCK, sys.SYS_MBIND, sys.SYS_SCHED_SETAFFINITY) {
		return
	}
	for limits, want := range map[string]string{
		"memory: {mlock: true}":                   "limits.memory.mlock: ",
		"memory: {numa: 0}":                       "limits.memory.numa: ",
		"memory: {mlock: true, huge_pages: off}":  "limits.memory.mlock: ",
		"loops: {affinity: 0}, connections: 1000": "limits.loops.affinity: ",
	} {
		cfg, problems := config.Parse("t", []byte(fmt.Sprintf(placed, limits)), os.LookupEnv)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if had, err := topology.AllowedCPUs(); strings.Contains(limits, "affinity") && (err != nil || len(had) < 2) {
			continue // it has what it wants
		}
		_, err := server.Open(context.Background(), cfg, server.Options{MaxConnections: 10, Loops: 1})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, syscall.EPERM) {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

// TestNoHugePages: a process that gets none does not start if it requires them, and says how to have
// some. By default it starts, and its status says why it has none.
func TestNoHugePages(t *testing.T) {
	t.Parallel()

	if !privilege.Refused(t, syscall.EPERM, sys.SYS_BPF) { // a child, for it is for good
		return
	}
	if text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"); err == nil && string(text) != "0\n" {
		t.Skipf("%s huge pages are set aside", text)
	}
	if err := sys.DisableTHP(); err != nil {
		t.Skip(err)
	}
	cfg, problems := config.Parse("t", []byte(fmt.Sprintf(placed, "memory: {huge_pages: require}")), os.LookupEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	_, err := server.Open(context.Background(), cfg, server.Options{MaxConnections: 10, Loops: 1})
	if err == nil || !strings.HasPrefix(err.Error(), "limits.memory.huge_pages: ") || !strings.Contains(err.Error(), "sysctl -w vm.nr_hugepages=N") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	if a := start(t, fmt.Sprintf(placed, "memory: {huge_pages: auto}")).Status().Arena; a.Pages != "plain pages" || !strings.Contains(a.Fallback, "reserved huge pages: ") {
		t.Errorf("%+v", a)
	}
}

// TestUnlockable: an ordinary user beyond RLIMIT_MEMLOCK is refused with what to raise.
func TestUnlockable(t *testing.T) {
	t.Parallel()

	if !privilege.Ordinary(t) {
		return
	}
	if err := sys.SetRlimitMemlock(1 << 20); err != nil {
		t.Skip(err)
	}
	cfg, problems := config.Parse("t", []byte(fmt.Sprintf(placed, "memory: {mlock: true}")), os.LookupEnv)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	_, err := server.Open(context.Background(), cfg, server.Options{MaxConnections: 10, Loops: 1})
	const want = "RLIMIT_MEMLOCK is 1048576 bytes, and 4194304 are needed: raise RLIMIT_MEMLOCK (LimitMEMLOCK=, ulimit -l), give CAP_IPC_LOCK"
	if err == nil || !strings.HasPrefix(err.Error(), "limits.memory.mlock: ") || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
