package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
)

// TestRunningHere: a process without sessions is not limited by them, whatever the machine; and its report is one of
// the host's form.
func TestRunningHere(t *testing.T) {
	r := ExamineProcess(new(Running))
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	if !r.Able || r.PID == 0 {
		t.Errorf("able %v, process %d", r.Able, r.PID)
	}
	for _, name := range []string{"splice", "local-faults", "accept-queues", "loops", "arena", "huge-pages"} {
		r.want(t, name, OK, "")
	}
	if f, ok := r.of(t, "descriptors").Figures.(usedDescriptors); !ok || !f.Used.known || f.Used.value < 3 || f.Used.value > f.Soft.value {
		t.Errorf("%+v", f)
	}
	if f, ok := r.of(t, "memory").Figures.(usedMemory); !ok || f.Resident.value < 1<<20 {
		t.Errorf("%+v", f)
	}
	out, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(out), `"pid":`) || strings.Contains(string(out), `"mend":null`) {
		t.Errorf("%v: %s", err, out)
	}
	var back Report
	if err := json.Unmarshal(out, &back); err != nil || len(back.Checks) != len(r.Checks) || back.PID != r.PID {
		t.Errorf("%v: %+v", err, back)
	}
	if !strings.Contains(text.String(), "\nIt runs ") || strings.Contains(text.String(), "Penstock can run here") {
		t.Errorf("the end of the report: %s", text.String())
	}
}

// TestRunningWithoutFiles: what cannot be read is unknown, and no panic.
func TestRunningWithoutFiles(t *testing.T) {
	r := examineProcess(new(Running), host{emptyFS{}})
	for name, state := range map[string]State{"descriptors": Unknown, "memory": Unknown, "tcp-memory": Unknown, "ports": Unknown, "cpu-quota": OK} {
		r.want(t, name, state, "")
	}
	if slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == "conntrack" || c.Name == "fastopen" }) {
		t.Error("a check of something that is not there")
	}
}

// pressed is a machine whose limits are nearly reached, with cgroups of the second version.
func pressed() fstest.MapFS {
	files := fstest.MapFS{}
	for path, text := range map[string]string{
		"proc/self/cgroup":                           "0::/app\n",
		"proc/self/status":                           "Name:\tpenstock\nVmRSS:\t   40000 kB\n",
		"proc/self/net/sockstat":                     "sockets: used 57\nTCP: inuse 900 orphan 1 tw 314 alloc 10 mem 1900\nUDP: inuse 0 mem 0\n",
		"proc/self/net/netstat":                      "TcpExt: SyncookiesSent TCPMemoryPressures\nTcpExt: 5 7\nIpExt: InNoRoutes\nIpExt: 3\n",
		"proc/sys/net/ipv4/tcp_mem":                  "1000\t2000\t3000\n",
		"proc/sys/net/ipv4/ip_local_port_range":      "32768\t60999\n",
		"proc/sys/net/netfilter/nf_conntrack_count":  "900\n",
		"proc/sys/net/netfilter/nf_conntrack_max":    "1000\n",
		"proc/sys/net/ipv4/tcp_fastopen":             "1\n",
		"proc/sys/net/core/somaxconn":                "128\n",
		"proc/sys/fs/pipe-user-pages-soft":           "16384\n",
		"proc/sys/fs/pipe-user-pages-hard":           "0\n",
		"sys/fs/cgroup/app/cpu.max":                  "200000 100000\n",
		"sys/fs/cgroup/app/cpu.stat":                 "usage_usec 5\nnr_periods 100\nnr_throttled 40\nthrottled_usec 1500000\n",
		"sys/fs/cgroup/app/memory.max":               "104857600\n",
		"sys/fs/cgroup/app/memory.current":           "100000000\n",
		"sys/fs/cgroup/app/memory.events":            "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
	} {
		files[path] = &fstest.MapFile{Data: []byte(text)}
	}
	for i := range 7 {
		files["proc/self/fd/"+string(rune('0'+i))] = &fstest.MapFile{}
	}
	return files
}

// TestRunningPressed: each limit that is reached has its cost and its remedy.
func TestRunningPressed(t *testing.T) {
	r := examineProcess(&Running{
		Sessions: 100, MaxSessions: 100, AcceptPauses: 3, Spliced: 1 << 20, Copied: 1 << 10,
		Fallbacks:   map[string]int64{"refused": 4, "wrapped": 2},
		LocalFaults: map[string]int64{syscall.EMFILE.Error(): 5, syscall.EADDRNOTAVAIL.Error(): 6, syscall.ENOBUFS.Error(): 7, syscall.EPERM.Error(): 8},
		Pipes:       RunningPipes{Denied: 9, Degraded: 1, Refused: 2, BudgetPages: 1000, LinePages: 4000, UsedPages: 900},
		Loops:       []RunningLoop{{LagP99: 5 * time.Millisecond, LagMax: 90 * time.Millisecond, Turns: 1000, LongTurns: 50}, {LagP99: time.Microsecond}},
		ArenaSize:   8 << 20, ArenaFallback: "reserved huge pages: mmap: cannot allocate memory\ntransparent ones: never", ArenaRefused: 11,
		Queues:   []RunningQueue{{Address: "127.0.0.1:80", Length: 100, Most: 128, Dropped: 12, Known: true, DroppedKnown: true}, {Address: "unix:/s"}},
		FastOpen: true,
	}, host{pressed()})
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	for _, want := range []struct{ name, found, cost, mend string }{
		{"descriptors", "7 of ", "accepting has paused 3 times, and 5 connections to endpoints failed", "nofile"},
		{"pipes", "with 900 of 1,000 pages; quota 16,384 pages", "9 times there was no pipe", "fs.pipe-user-pages-soft="},
		{"splice", "1 MiB spliced, 1 KiB copied: refused 4, wrapped 2", "4 directions were copied", "splice"},
		{"local-faults", "26 connections", "served later", "operation not permitted: a rule"},
		{"accept-queues", "at 78 %; overflows: 12, 12 of them at 127.0.0.1:80", "after 1 s or more", "net.core.somaxconn=4096"},
		{"loops", "99 % took up to 5ms, the longest 90ms, and 50 of 1,000", "waits for its loop", "limits.loops.count"},
		{"cpu-quota", "2 CPUs; held back in 40 of 100 periods, for 1.5s together", "stands still", "limits.loops.count"},
		{"memory", "39.1 MiB resident; the cgroup has used 95.4 MiB of 100 MiB", "reached 12 times", "201M"},
		{"huge-pages", "none for the loops' memory, 8 MiB: reserved huge pages: mmap: cannot allocate memory; transparent ones: never", "2,048 pages", "transparent_hugepage"},
		{"arena", "8 MiB", "11 times", "limits.loops.count"},
		{"tcp-memory", "1,900 of 2,000 pages until pressure (3,000", "7 connections", "net.ipv4.tcp_mem=\"2000 4000 6000\""},
		{"ports", "28,232 ports for each endpoint; 900 sockets in use and 314 in TIME_WAIT", "6 connections", "ip_local_port_range=\"1024 65535\""},
		{"conntrack", "900 of 1,000 connections followed", "dropped", "nf_conntrack_max=4000"},
		{"fastopen", "tcp_fastopen is 1", "round trip", "tcp_fastopen=3"},
	} {
		c := r.of(t, want.name)
		if c.State != Degraded || !strings.Contains(c.Found, want.found) || !strings.Contains(c.Cost, want.cost) || !strings.Contains(strings.Join(c.Mend, "\n"), want.mend) {
			t.Errorf("%s: %s\nfound %q\nwant  %q\ncost  %q\nwant  %q\nmend  %q\nwant  %q", want.name, c.State, c.Found, want.found, c.Cost, want.cost, c.Mend, want.mend)
		}
	}
	if !strings.Contains(text.String(), "could do better") {
		t.Errorf("%s", text.String())
	}
}

// TestRunningFacts are the bounds between what is worth a word and what is not.
func TestRunningFacts(t *testing.T) {
	judgeAll(t, []verdict{
		{name: "descriptors left", facts: usedDescriptors{Soft: known(1000), Used: known(799), limits: descriptors{place: bare}}, state: OK, found: "799 of 1,000"},
		{name: "few descriptors left", facts: usedDescriptors{Soft: known(1000), Used: known(800), MaxSessions: 480, limits: descriptors{Soft: known(1000), Hard: known(1000), place: bare}}, state: Degraded, cost: "accepting pauses at 480 sessions", mend: "nofile"},
		{name: "at the limit of sessions", facts: usedDescriptors{Soft: known(1000), Used: known(10), Sessions: 5, MaxSessions: 5}, state: Degraded, cost: "pauses now", mend: "limits.connections"},
		{name: "at the limit by the descriptors", facts: usedDescriptors{Soft: known(1000), Used: known(990), Sessions: 480, MaxSessions: 480, limits: descriptors{Soft: known(1000), Hard: known(1000), place: unit}}, state: Degraded, cost: "pauses now", mend: "LimitNOFILE="},
		{name: "wrapped, half-close and urgent are no shortage", facts: fallbacks{Reasons: map[string]int64{"wrapped": 5, "urgent": 1, "half-close": 3}}, state: OK, found: "half-close 3, urgent 1, wrapped 5"},
		{name: "no pipe", facts: fallbacks{Reasons: map[string]int64{"budget": 5}}, state: Degraded, cost: "5 times", mend: "see pipes"},
		{name: "splice refused by a filter", facts: fallbacks{Reasons: map[string]int64{"refused": 1}, place: service}, state: Degraded, cost: "1 direction", mend: "SystemCallFilter=splice"},
		{name: "a queue that is half full", facts: queues{Overflows: known(0), Fullest: 50}, state: OK, found: "50 %; overflows: 0"},
		{name: "a queue that is long enough", facts: queues{Fullest: 90, Longest: 4096, place: bare}, state: Degraded, cost: "1 s", mend: "loops"},
		{name: "queues that nothing counts", facts: queues{}, state: OK, found: "overflows: unknown"},
		{name: "no quota", facts: throttling{}, state: OK, found: "no quota"},
		{name: "a quota that is enough", facts: throttling{Quota: known(50_000), Period: known(100_000), Throttled: known(0), Periods: known(5)}, state: OK, found: "0.5 CPUs; held back in 0 of 5"},
		{name: "a container's quota", facts: throttling{Quota: known(50_000), Period: known(100_000), Throttled: known(1), place: docker}, state: Degraded, cost: "stands still", mend: "--cpus="},
		{name: "lag of loops", facts: loops{LagP99: 4095, LateP99: 4095}, state: OK},
		{name: "late timers", facts: loops{LateP99: 8192, place: unit}, state: Degraded, cost: "8.192ms", mend: "CPUWeight"},
		{name: "no limit of memory", facts: usedMemory{Resident: known(1 << 20)}, state: OK, found: "no limit"},
		{name: "room in the cgroup", facts: usedMemory{Resident: known(1), Limit: known(100), Used: known(79), Reached: known(3)}, state: OK},
		{name: "a kill", facts: usedMemory{Resident: known(1), Limit: known(100), Used: known(10), Killed: known(2), place: pod}, state: Degraded, cost: "ended 2 processes", mend: "limits: {memory"},
		{name: "nearly no room", facts: usedMemory{Resident: known(1), Limit: known(100), Used: known(96), place: openrc}, state: Degraded, cost: "reclaim", mend: "memory.max"},
		{name: "huge pages", facts: usedHugePages{Bytes: 8 << 20, Huge: 8 << 20}, state: OK, found: "8 MiB of 8 MiB"},
		{name: "memory of TCP", facts: tcpMemory{Pages: known(79), Pressure: known(100), Most: known(150)}, state: OK, found: "79 of 100"},
		{name: "pressure", facts: tcpMemory{Pages: known(80), Pressure: known(100), Most: known(150), place: bare}, state: Degraded, cost: "pressure", mend: "tcp_mem"},
		{name: "a table with room", facts: conntrack{Count: known(79), Most: known(100)}, state: OK},
		{name: "fast open", facts: fastOpen{Setting: known(3)}, state: OK},
		{name: "fast open, unknown", facts: fastOpen{}, state: Unknown, cost: "round trip"},
	})
}

// TestCgroupsOfTheFirstVersion have files of other names.
func TestCgroupsOfTheFirstVersion(t *testing.T) {
	h := host{fstest.MapFS{
		"proc/self/cgroup": {Data: []byte("4:memory:/app\n1:cpu,cpuacct:/app\n")}, "proc/self/status": {Data: []byte("VmRSS:\t1000 kB\n")},
		"sys/fs/cgroup/memory/app/memory.limit_in_bytes": {Data: []byte("1000000\n")}, "sys/fs/cgroup/memory/app/memory.usage_in_bytes": {Data: []byte("990000\n")},
		"sys/fs/cgroup/memory/app/memory.failcnt": {Data: []byte("5\n")}, "sys/fs/cgroup/memory/app/memory.oom_control": {Data: []byte("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")},
		"sys/fs/cgroup/cpu,cpuacct/app/cpu.stat": {Data: []byte("nr_periods 10\nnr_throttled 2\nthrottled_time 3000000000\n")},
	}}
	p := newPatient(Options{}, h)
	if f := lookUsedMemory(p, nil).(usedMemory); f.Used != known(990_000) || f.Reached != known(5) || f.Killed != known(1) {
		t.Errorf("%+v", f)
	}
	if f := lookThrottling(p, nil).(throttling); f.Throttled != known(2) || f.Time != known(3_000_000) {
		t.Errorf("%+v", f)
	}
}

// TestTimersInTime: timers that are not late are not spoken of.
func TestTimersInTime(t *testing.T) {
	t.Parallel()

	if v := (loops{LagP99: 8192}).judge(); v.state != Degraded || strings.Contains(v.cost, "timers") {
		t.Errorf("%v: %s", v.state, v.cost)
	}
}
