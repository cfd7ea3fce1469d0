package switches

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachLimitIsNamedWithWhatMendsIt(t *testing.T) {
	const n = 10_000
	for _, test := range []struct {
		set      func(l *limits, x int64)
		short    int64 // one less than needed
		threads  bool  // it limits threads only
		has, say string
	}{
		{func(l *limits, x int64) { l.descriptors = x }, n + spare - 1, false, "RLIMIT_NOFILE allows 10,127, 10,128 are needed", "ulimit -n 10128"},
		{func(l *limits, x int64) { l.ports = x }, n - 1, false, "net.ipv4.ip_local_port_range allows 9,999, 10,000 are needed", "sysctl net.ipv4.ip_local_port_range="},
		{func(l *limits, x int64) { l.userThreads = x }, n + spare - 1, true, "RLIMIT_NPROC allows 10,127", "raise ulimit -u by 1"},
		{func(l *limits, x int64) { l.groupThreads = x }, n + spare - 1, true, "pids.max allows 10,127", "TasksMax"},
		{func(l *limits, x int64) { l.threads = x }, n + spare - 1, true, "kernel.threads-max allows 10,127", "raise it by 1"},
		{func(l *limits, x int64) { l.pids = x }, n + spare - 1, true, "kernel.pid_max allows 10,127", "raise it by 1"},
		{func(l *limits, x int64) { l.maps = x }, 2*(n+spare) - 1, true, "vm.max_map_count allows 20,255", "sysctl vm.max_map_count="},
	} {
		l := boundless()
		test.set(l, test.short)
		err := l.check(n, true)
		var short *ShortError
		if !errors.As(err, &short) || !strings.HasPrefix(err.Error(), test.has) || !strings.Contains(err.Error(), test.say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q and %q", err, test.has, test.say)
		}
		if err := l.check(n, false); (err == nil) != test.threads {
			t.Errorf("%s: without threads: %v", test.has, err)
		}
		test.set(l, test.short+1)
		if err := l.check(n, true); err != nil {
			t.Errorf("one more: %v", err)
		}
	}
}

// boundless are limits that allow everything.
func boundless() *limits {
	return &limits{unlimited, unlimited, unlimited, unlimited, unlimited, unlimited, unlimited}
}

func TestLimitsOfThisMachine(t *testing.T) {
	l, err := readLimits(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.check(1, true); err != nil {
		t.Errorf("not even one connection: %v", err)
	}
	if l.threads == unlimited || l.ports == unlimited || l.maps == unlimited {
		t.Errorf("a sysctl that every Linux has was not found: %+v", l)
	}
	if isolated, err := readLimits(true); err != nil || isolated.ports != unlimited {
		t.Errorf("the ports of another namespace: %+v, %v", isolated, err)
	}
}

func TestThreadsOfThisUser(t *testing.T) {
	if n := threadsOf(os.Getuid()); n < 2 {
		t.Errorf("%d threads, although this process has some", n)
	}
}

// write writes files below a directory of the test's own.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestThreadsOfControlGroups(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"version 2, a parent is the narrowest", map[string]string{
			"member": "0::/a/b\n", "a/b/pids.max": "max\n", "a/b/pids.current": "5\n", "a/pids.max": "100\n", "a/pids.current": "60\n",
		}, 40},
		{"version 2 in a namespace", map[string]string{"member": "0::/\n", "pids.max": "77\n", "pids.current": "7\n"}, 70},
		{"version 1", map[string]string{
			"member": "9:name=systemd:/\n8:cpu,cpuacct:/x\n7:pids:/x\n0::/\n", "pids/x/pids.max": "30\n", "pids/x/pids.current": "10\n",
		}, 20},
		{"both versions", map[string]string{"member": "0::/y\n", "unified/y/pids.max": "9\n", "unified/y/pids.current": "1\n"}, 8},
		{"none", map[string]string{"member": "0::/\n"}, unlimited},
	} {
		root := write(t, test.files)
		if got := groupThreads(root, filepath.Join(root, "member")); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	if got := groupThreads("/", "/does/not/exist"); got != unlimited {
		t.Errorf("without membership: %d", got)
	}
}

func TestFieldsOfStatus(t *testing.T) {
	status := []byte("Name:\tx\nUid:\t1000\t1001\t1002\t1003\nRssAnon:\t    5128 kB\nThreads:\t10\n")
	for name, want := range map[string]int64{"Uid": 1000, "RssAnon": 5128, "Threads": 10} {
		if got, err := field(status, name); got != want || err != nil {
			t.Errorf("%s: got %d, %v", name, got, err)
		}
	}
	if _, err := field(status, "Thread"); !errors.Is(err, errNoField) {
		t.Errorf("got %v", err)
	}
}
