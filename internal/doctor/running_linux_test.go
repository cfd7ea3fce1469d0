package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
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
	for _, name := range []string{"splice", "local-faults", "accept-queues", "loops", "cpu-quota"} {
		r.want(t, name, OK)
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
	r := examineProcess(new(Running), hostOf(nil))
	for name, state := range map[string]State{"descriptors": Unknown, "memory": Unknown, "tcp-memory": Unknown, "ports": Unknown, "cpu-quota": OK} {
		r.want(t, name, state)
	}
	if slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Name == "conntrack" }) {
		t.Error("a check of something that is not there")
	}
}

// pressed is a machine whose limits are nearly reached, with cgroups of the second version.
func pressed() host {
	files := map[string]string{
		"proc/self/cgroup":                           "0::/app\n",
		"proc/self/status":                           "Name:\tpenstock\nVmRSS:\t   40000 kB\n",
		"proc/self/net/sockstat":                     "sockets: used 57\nTCP: inuse 900 orphan 1 tw 314 alloc 10 mem 1900\nUDP: inuse 0 mem 0\n",
		"proc/sys/net/ipv4/tcp_mem":                  "1000\t2000\t3000\n",
		"proc/sys/net/ipv4/ip_local_port_range":      "32768\t60999\n",
		"proc/sys/net/netfilter/nf_conntrack_count":  "900\n",
		"proc/sys/net/netfilter/nf_conntrack_max":    "1000\n",
		"proc/sys/net/core/somaxconn":                "128\n",
		"proc/sys/fs/pipe-user-pages-soft":           "16384\n",
		"proc/sys/fs/pipe-user-pages-hard":           "0\n",
		"sys/fs/cgroup/app/cpu.max":                  "200000 100000\n",
		"sys/fs/cgroup/app/cpu.stat":                 "usage_usec 5\nnr_periods 100\nnr_throttled 40\nthrottled_usec 1500000\n",
		"sys/fs/cgroup/app/memory.max":               "104857600\n",
		"sys/fs/cgroup/app/memory.current":           "100000000\n",
		"sys/fs/cgroup/app/memory.events":            "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
	}
	for i := range 7 {
		files["proc/self/fd/"+string(rune('0'+i))] = ""
	}
	return hostOf(files)
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
		Queues: []RunningQueue{{Address: "127.0.0.1:80", Length: 100, Most: 128, Dropped: 12, Known: true, DroppedKnown: true}, {Address: "unix:/s"}},
	}, pressed())
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
		{"cpu-quota", "held back in 40 of 100 periods, for 1.5s together", "stands still", "limits.loops.count"},
		{"memory", "39.1 MiB resident; the cgroup has used 95.4 MiB of 100 MiB", "reached 12 times", "201M"},
		{"arena", "8 MiB for bytes that slow destinations have not taken, 0 B of it in huge pages: reserved huge pages: mmap: cannot allocate memory; transparent ones: never", "2,048 pages to the CPU instead of 4; 11 times", "limits.loops.count"},
		{"tcp-memory", "1,900 of 2,000 pages until pressure (3,000", "refuses connections", "net.ipv4.tcp_mem=\"2000 4000 6000\""},
		{"ports", "28,232 ports for each endpoint; 900 sockets in use and 314 in TIME_WAIT", "6 connections", "ip_local_port_range=\"1024 65535\""},
		{"conntrack", "900 of 1,000 connections followed", "dropped", "nf_conntrack_max=4000"},
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

// TestRunningBounds are between what is worth a word and what is not.
func TestRunningBounds(t *testing.T) {
	t.Parallel()
	p := &process{host: hostOf(map[string]string{
		"proc/self/net/sockstat": "TCP: inuse 1 mem 79\n", "proc/sys/net/ipv4/tcp_mem": "50 100 150",
		"proc/sys/net/netfilter/nf_conntrack_count": "79", "proc/sys/net/netfilter/nf_conntrack_max": "100",
		"proc/self/cgroup": "0::/\n", "proc/self/status": "VmRSS: 1 kB\n", "sys/fs/cgroup/memory.max": "100", "sys/fs/cgroup/memory.current": "79", "sys/fs/cgroup/memory.events": "max 3\noom_kill 0\n",
		"sys/fs/cgroup/cpu.max": "50000 100000", "sys/fs/cgroup/cpu.stat": "nr_periods 5\nnr_throttled 0\n",
	})}
	r := newReport("", []Check{
		named("wrapped, half-close and urgent are no shortage", p.fallbacks(&Running{Fallbacks: map[string]int64{"wrapped": 5, "urgent": 1, "half-close": 3}})),
		named("a queue that is half full", p.queues([]RunningQueue{{Length: 50, Most: 100, Known: true}})),
		named("lag of loops", loops([]RunningLoop{{LagP99: muchLag - 1, TimerLateP99: muchLag - 1}})),
		named("memory of TCP", p.tcpMemory()), named("a table with room", p.conntrack()), named("room in the cgroup", p.usedMemory()), named("a quota that is enough", p.throttling()),
		named("huge pages", p.usedArena(&Running{ArenaSize: 8 << 20, ArenaHuge: 8 << 20})),
	})
	for _, c := range r.Checks {
		r.want(t, c.Name, OK)
	}
	r = newReport("", []Check{
		named("no pipe", p.fallbacks(&Running{Fallbacks: map[string]int64{"budget": 5}})),
		named("a queue that is long enough", p.queues([]RunningQueue{{Length: 90 * 41, Most: 4100, Known: true}})),
		named("late timers", loops([]RunningLoop{{TimerLateP99: 8192 * time.Microsecond}})),
		named("lag without late timers", loops([]RunningLoop{{LagP99: 8192 * time.Microsecond}})),
		named("the limit of sessions", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 5})),
	})
	r.want(t, "no pipe", Degraded, "5 times", "see pipes")
	r.want(t, "a queue that is long enough", Degraded, "see loops")
	r.want(t, "late timers", Degraded, "timers are late by up to 8.192ms")
	if c := r.of(t, "lag without late timers"); c.State != Degraded || strings.Contains(c.Cost, "timers") {
		t.Errorf("%+v", c)
	}
	if c := r.of(t, "the limit of sessions"); c.State != Unknown { // there is no /proc/self/fd
		t.Errorf("%+v", c)
	}
	p.host = pressed()
	r = newReport("", []Check{named("the limit of sessions", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 5}))})
	r.want(t, "the limit of sessions", Degraded, "accepting pauses now", "limits.connections")
}
