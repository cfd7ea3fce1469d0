package switches

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
)

// spare is the need of each process besides one for each connection: of descriptors, and of
// threads for all of the processes together.
const spare = 128

// limits are the bounds of this machine and this user, as far as they are known;
// unlimited for those that are not.
type limits struct {
	descriptors  int64 // RLIMIT_NOFILE, of one process
	ports        int64 // net.ipv4.ip_local_port_range, how many
	userThreads  int64 // RLIMIT_NPROC less those of the user
	groupThreads int64 // pids.max of the control groups less those in them
	threads      int64 // kernel.threads-max less those in use
	pids         int64 // kernel.pid_max less those in use
	maps         int64 // vm.max_map_count, of one process
}

const unlimited = math.MaxInt64

// ShortError says which limit does not allow a trial.
type ShortError struct {
	What          string // the limit by the kernel's name
	Needs, Allows int64
	Mend          string // how to raise it
}

// Error is one line.
func (e *ShortError) Error() string {
	return fmt.Sprintf("%s allows %s, %s are needed: %s",
		e.What, report.Exact(max(e.Allows, 0)), report.Exact(e.Needs), e.Mend)
}

// check returns the first limit, by a *ShortError, that does not allow n
// connections, threaded ones if it says so.
func (l *limits) check(n int, threaded bool) error {
	need := int64(n) + spare
	short := []ShortError{
		{"RLIMIT_NOFILE", need, l.descriptors, fmt.Sprintf("ulimit -n %d", need)},
		{"net.ipv4.ip_local_port_range", int64(n), l.ports, "sysctl net.ipv4.ip_local_port_range='1024 65535'"},
	}
	if threaded {
		short = append(short,
			ShortError{"RLIMIT_NPROC", need, l.userThreads, fmt.Sprintf("raise ulimit -u by %d", need-l.userThreads)},
			ShortError{"pids.max", need, l.groupThreads, fmt.Sprintf("raise the control group's by %d (systemd: TasksMax)", need-l.groupThreads)},
			ShortError{"kernel.threads-max", need, l.threads, fmt.Sprintf("raise it by %d", need-l.threads)},
			ShortError{"kernel.pid_max", need, l.pids, fmt.Sprintf("raise it by %d", need-l.pids)},
			// With cgo a stack and its guard page; without it Go's heap is enough.
			ShortError{"vm.max_map_count", 2 * need, l.maps, fmt.Sprintf("sysctl vm.max_map_count=%d", 4*need)})
	}
	for i := range short {
		if short[i].Allows < short[i].Needs {
			return &short[i]
		}
	}
	return nil
}

// readLimits asks the kernel. isolated reports that the trials run in a network namespace of
// their own, of which the ports cannot be seen from here.
func readLimits(isolated bool) (*limits, error) {
	descriptors, err := sys.RlimitNoFile()
	if err != nil {
		return nil, fmt.Errorf("RLIMIT_NOFILE: %w", err)
	}
	users, err := userThreads()
	if err != nil {
		return nil, fmt.Errorf("RLIMIT_NPROC: %w", err)
	}
	all := runningThreads()
	l := &limits{
		descriptors:  atMost(descriptors),
		ports:        unlimited,
		userThreads:  users,
		groupThreads: groupThreads("/sys/fs/cgroup", "/proc/self/cgroup"),
		threads:      less(readNumber("/proc/sys/kernel/threads-max"), all),
		pids:         less(readNumber("/proc/sys/kernel/pid_max"), all),
		maps:         readNumber("/proc/sys/vm/max_map_count"),
	}
	if !isolated {
		l.ports = portRange()
	}
	return l, nil
}

// atMost turns a limit of the kernel's into one of ours.
func atMost(n uint64) int64 {
	if n > math.MaxInt64 {
		return unlimited
	}
	return int64(n)
}

// less takes used off a limit, if it is one.
func less(limit, used int64) int64 {
	if limit == unlimited {
		return unlimited
	}
	return limit - used
}

// readNumber returns the number in a file: unlimited if there is no such file
// or it says so ("max").
func readNumber(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return unlimited
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return unlimited
	}
	return n
}

// portRange returns how many ports a connection may come from.
func portRange() int64 {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	var low, high int64
	if err != nil {
		return unlimited
	}
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return unlimited
	}
	return high - low + 1
}

// runningThreads is how many there are on this machine: the fourth field of
// /proc/loadavg (proc(5)).
func runningThreads() int64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var a, b, c string
	var running, all int64
	if _, err := fmt.Sscanf(string(text), "%s %s %s %d/%d", &a, &b, &c, &running, &all); err != nil {
		return 0
	}
	return all
}

// userThreads returns how many more threads this user may have. The servers
// raise their soft limit to the hard one. The kernel asks neither uid 0 nor
// those with one of two capabilities (kernel/fork.c, copy_process).
func userThreads() (int64, error) {
	_, hard, err := sys.RlimitNProc()
	if err != nil || hard == sys.RLIM_INFINITY || os.Getuid() == 0 {
		return unlimited, err
	}
	if c, err := sys.Capabilities(); err == nil && (c.Has(sys.CAP_SYS_RESOURCE) || c.Has(sys.CAP_SYS_ADMIN)) {
		return unlimited, nil
	}
	return atMost(hard) - threadsOf(os.Getuid()), nil
}

// threadsOf counts the threads of a user's processes.
func threadsOf(uid int) int64 {
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0
	}
	var sum int64
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // gone, or hidden
		}
		if real, err := field(status, "Uid"); err == nil && real == int64(uid) {
			n, _ := field(status, "Threads")
			sum += n
		}
	}
	return sum
}

// errNoField is the absence of a line.
var errNoField = errors.New("no such field")

// field returns the first number of a line in /proc/pid/status.
func field(status []byte, name string) (int64, error) {
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			first, _, _ := strings.Cut(strings.TrimSpace(value), "\t")
			first, _, _ = strings.Cut(first, " ")
			return strconv.ParseInt(first, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: %w", name, errNoField)
}

// groupThreads returns how many more threads the control groups of a process
// allow, all the way up (cgroups(7); the hierarchies of version 2, of both, and
// of version 1 below root).
func groupThreads(root, membership string) int64 {
	text, err := os.ReadFile(membership)
	if err != nil {
		return unlimited
	}
	least := int64(unlimited)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		mounts := map[string][]string{"": {"", "unified"}, "pids": {"pids"}}[parts[1]]
		for _, mount := range mounts {
			top := filepath.Join(root, mount)
			for dir := filepath.Join(top, parts[2]); ; dir = filepath.Dir(dir) {
				used := readNumber(filepath.Join(dir, "pids.current"))
				least = min(least, less(readNumber(filepath.Join(dir, "pids.max")), used))
				if dir == top || len(dir) <= len(root) {
					break
				}
			}
		}
	}
	return least
}
