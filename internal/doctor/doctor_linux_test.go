package doctor

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func half(n int) int { return n / 2 }

func examined(t *testing.T) *Report {
	t.Helper()
	pipequota.Spend(t)
	r := Examine(half)
	var text bytes.Buffer
	must.Do(t, r.WriteText(&text))
	t.Log("\n" + text.String())
	for line := range strings.Lines(text.String()) {
		path := strings.Contains(line, "/") // of this program: it may be longer than a line
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && !path {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return r
}

func (r *Report) of(t *testing.T, name string) Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %s", name)
	}
	return r.Checks[i]
}

// want looks at a check: its cost and its remedy are there if it is not OK. The texts are parts.
func (r *Report) want(t *testing.T, name string, state State, texts ...string) {
	t.Helper()
	c := r.of(t, name)
	all := strings.Join(append([]string{c.Found, c.Cost}, c.Mend...), "\n")
	if c.State != state {
		t.Errorf("%s is %s, want %s: %s", name, c.State, state, all)
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%s has no %q in\n%s", name, text, all)
		}
	}
	if bad := c.State == Degraded || c.State == Missing; bad != (len(c.Mend) > 0) || bad && c.Cost == "" {
		t.Errorf("%s is %s, with the cost %q and the remedies %q", name, c.State, c.Cost, c.Mend)
	}
}

// TestHere: the kernels that Penstock is tested on have these, for everybody, and limits are as before.
func TestHere(t *testing.T) {
	soft, hard, err := sys.RlimitNoFileRange()
	must.Do(t, err)
	r := examined(t)
	if !r.Able {
		t.Error("not able")
	}
	for _, name := range []string{"loopback", "splice", "rcvlowat", "user-timeout", "reuseport"} {
		r.want(t, name, OK)
	}
	if s, h, err := sys.RlimitNoFileRange(); s != soft || h != hard || err != nil {
		t.Errorf("limits %d and %d, %v; were %d and %d", s, h, err, soft, hard)
	}
}

func TestOrdinaryUser(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	r := examined(t)
	if !r.Able {
		t.Error("not able")
	}
	r.want(t, "splice", OK)
	r.want(t, "capabilities", Degraded, "cannot exceed the user's quota of pipes")
	if here := (host{os.DirFS("/")}); here.parameter("fs.pipe-user-pages-soft") == 16384 {
		r.want(t, "pipes", Degraded, "64 pipes of 1 MiB, then one of 8 KiB", "fs.pipe-user-pages-soft=", "CAP_SYS_RESOURCE: see capabilities")
	}
}

// TestSandbox: a call that is refused is named, with the check that needs it and how to allow it, and Penstock cannot run only if it
// listens by that call.
func TestSandbox(t *testing.T) {
	pipequota.Spend(t) // here: in a sandbox without fcntl it would wait for a pipe that can be enlarged
	for _, c := range []struct {
		call   string
		errno  syscall.Errno
		number uintptr
		check  string
		state  State
		able   bool
	}{
		{"splice", syscall.EPERM, sys.SYS_SPLICE, "splice", Missing, true},
		{"splice", syscall.ENOSYS, sys.SYS_SPLICE, "splice", Missing, true},
		{"pipe2", syscall.EPERM, sys.SYS_PIPE2, "splice", Missing, true},
		{"madvise", syscall.EPERM, sys.SYS_MADVISE, "arena", Degraded, true},
		{"fcntl", syscall.EPERM, sys.SYS_FCNTL, "pipes", Missing, true},
		{"socket", syscall.EPERM, sys.SYS_SOCKET, "loopback", Missing, false},
		{"accept4", syscall.EPERM, sys.SYS_ACCEPT4, "loopback", Missing, false},
		{"listen", syscall.EPERM, sys.SYS_LISTEN, "loopback", Missing, false},
		{"setsockopt", syscall.EPERM, sys.SYS_SETSOCKOPT, "loopback", Missing, false},
		{"connect", syscall.EPERM, sys.SYS_CONNECT, "loopback", Degraded, true},
	} {
		t.Run(c.call+" "+c.errno.Error(), func(t *testing.T) {
			if !privilege.Refused(t, c.errno, c.number) {
				return
			}
			r := examined(t)
			if r.Able != c.able {
				t.Errorf("able: %v, want %v", r.Able, c.able)
			}
			if c.call == "madvise" {
				r.want(t, c.check, c.state, "nr_hugepages")
				return
			}
			r.want(t, c.check, c.state, "llow", c.call, c.errno.Error())
			if c.call == "socket" {
				r.want(t, "backlog", Unknown)
				r.want(t, "reuseport", Unknown)
			}
		})
	}
}

// TestFewDescriptors: with 64 there is room for some sessions, with 8, of which a
// test has five, there is for none.
func TestFewDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		limit uint64
		able  bool
		state State
	}{"64": {64, true, Degraded}, "8": {8, false, Missing}} {
		t.Run(name, func(t *testing.T) {
			if !privilege.Refused(t, syscall.ENOSYS, sys.SYS_IO_URING_SETUP) { // for a process of its own
				return
			}
			must.Do(t, sys.SetRlimitNoFile(c.limit, c.limit))
			r := examine(half, hostOf(nil))
			if r.Able != c.able {
				t.Errorf("able: %v, want %v", r.Able, c.able)
			}
			r.want(t, "descriptors", c.state, "1048576")
		})
	}
}

func hostOf(files map[string]string) host {
	tree := fstest.MapFS{}
	for path, text := range files {
		tree[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return host{tree}
}

// TestNoFiles: where the kernel's files cannot be read things are unknown, or found
// out without them.
func TestNoFiles(t *testing.T) {
	pipequota.Spend(t)
	r := examine(half, hostOf(nil))
	if !r.Able {
		t.Error("not able")
	}
	for _, name := range []string{"ports", "memory"} {
		r.want(t, name, Unknown)
	}
	for _, name := range []string{"loopback", "splice", "backlog", "rcvlowat"} {
		if s := r.of(t, name).State; s == Unknown {
			t.Errorf("%s is unknown", name)
		}
	}
}

// TestTightLimits: limits of the cgroup above this process's own, and few ports, are found, with what they cost.
func TestTightLimits(t *testing.T) {
	p := &process{host: hostOf(map[string]string{
		"proc/self/cgroup":                           "0::/a/b\n",
		"sys/fs/cgroup/a/cpu.max":                    "50000 100000\n",
		"sys/fs/cgroup/a/b/cpu.max":                  "max 100000\n",
		"sys/fs/cgroup/a/memory.max":                 "104857600\n",
		"sys/fs/cgroup/a/b/memory.max":               "max\n",
		"proc/meminfo":                               "MemTotal:       8388608 kB\n",
		"proc/sys/net/ipv4/ip_local_port_range":      "60000\t60999\n",
		"proc/sys/fs/pipe-max-size":                  "65536\n",
		"proc/sys/fs/pipe-user-pages-hard":           "16384\n",
		"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
	}), sessions: 100_000}
	r := newReport("", []Check{
		named("cpus", lookCPUs(p)), named("memory", lookMemory(p)), named("ports", lookPorts(p)), named("pipes", lookPipes(p)), named("arena", p.hugePages(4<<20, 0, "")),
	})
	r.want(t, "cpus", Degraded, "the cgroup allows 0.5", "GOMAXPROCS=1", "CPUQuota=")
	r.want(t, "memory", Degraded, "the cgroup allows 100 MiB", "100,000 sessions", "--max-connections 5242", "MemoryMax=")
	r.want(t, "ports", Degraded, "1,000 ports", "100,000 sessions", "beyond 16 per second", `ip_local_port_range="1024 65535"`)
	r.want(t, "pipes", Degraded, "64 KiB at most", "fs.pipe-max-size=1048576")
	r.want(t, "arena", Degraded, "take 1,024 pages of memory instead of 2", "nr_hugepages", "echo madvise")
	if all := strings.Join(p.raisePipes(), "\n"); !strings.Contains(all, "fs.pipe-user-pages-hard=524288") {
		t.Errorf("a hard quota is in the way, and the remedy is %s", all)
	}
	p.host, p.sessions = hostOf(map[string]string{
		"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/sys/net/ipv4/ip_local_port_range": "1024 65535", "sys/fs/cgroup/memory.max": "17179869184\n",
	}), 10
	r = newReport("", []Check{named("cpus", lookCPUs(p)), named("memory", lookMemory(p)), named("ports", lookPorts(p)), named("arena", p.hugePages(4<<20, 2<<20, ""))})
	for _, name := range []string{"cpus", "ports", "arena"} {
		r.want(t, name, OK)
	}
	r.want(t, "memory", OK, "8 GiB, no lower cgroup limit")
}

// TestOldLimits: where a controller is mounted as cgroup v1, a limit may be there that is not read.
func TestOldLimits(t *testing.T) {
	files := map[string]string{
		"proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n", "proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/status": "VmRSS: 1024 kB\n",
	}
	p := &process{host: hostOf(files)}
	look := func() *Report {
		return newReport("", []Check{named("cpus", lookCPUs(p)), named("memory", lookMemory(p)), named("cpu-quota", p.throttling()), named("used", p.usedMemory())})
	}
	for _, name := range []string{"cpus", "memory", "cpu-quota", "used"} {
		look().want(t, name, Unknown, "cgroup v1 are not read", "if there is a limit")
	}
	files["proc/self/cgroup"] = "5:freezer:/a\n0::/\n"
	p.host = hostOf(files)
	for _, name := range []string{"cpus", "memory", "cpu-quota", "used"} {
		look().want(t, name, OK)
	}
}

// TestPlaces: a remedy is in the words of the place.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		place
		is, descriptors, quota, somaxconn, allow, grant string
	}{
		"machine":    {place{}, "in no container", "ulimit -n 1048576, and for good", "sysctl -w fs.x=1, and", "sysctl -w net.x=1", "let the kernel and its security modules allow splice", "setcap cap_sys_resource+ep "},
		"unit":       {place{unit: "penstock.service", seccomp: 2}, "in the systemd unit penstock.service", "systemctl edit penstock.service: LimitNOFILE=1048576", "sysctl -w fs.x=1", "sysctl -w net.x=1", "systemctl edit penstock.service: SystemCallFilter=splice", "systemctl edit penstock.service: AmbientCapabilities=CAP_SYS_RESOURCE"},
		"Docker":     {place{engine: inDocker, seccomp: 2}, "in a container of Docker", "docker run --ulimit nofile=1048576:1048576", "on the host: sysctl -w fs.x=1", "docker run --sysctl net.x=1", "docker run --security-opt seccomp=FILE, a profile that allows splice", "docker run --cap-add SYS_RESOURCE"},
		"Podman":     {place{engine: inPodman, seccomp: 2, user: 5}, "in a container of Podman", "podman run --ulimit", "on the host: sysctl -w fs.x=1", "podman run --sysctl net.x=1", "podman run --security-opt", "podman run --user 0 --cap-add SYS_RESOURCE"},
		"Kubernetes": {place{engine: inKubernetes, seccomp: 2}, "in a container of Kubernetes", "on the node: ulimit", "on the node: sysctl -w fs.x=1", "in the pod's manifest: securityContext: {sysctls", "in the pod's manifest: securityContext: {seccompProfile", "capabilities: {add: [SYS_RESOURCE]}"},
		"namespace":  {place{nested: true}, "in no container", "ulimit", "sysctl", "sysctl", "let the kernel", "outside of a user namespace: CAP_SYS_RESOURCE"},
	} {
		p := &process{place: c.place}
		for got, want := range map[string]string{
			p.String(): c.is, p.raiseDescriptors()[0]: c.descriptors, p.sysctl("fs.x=1")[0]: c.quota, p.sysctl("net.x=1")[0]: c.somaxconn,
			p.allow("splice")[0]: c.allow, p.grant([]string{"SYS_RESOURCE"})[0]: c.grant,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	p := hostOf(map[string]string{"proc/self/cgroup": "0::/system.slice/penstock.service\n", "proc/self/status": "Seccomp:\t2\n"}).place()
	if p.unit != "penstock.service" || p.seccomp != 2 {
		t.Errorf("%+v", p)
	}
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	for to, engine := range map[string]string{"uts:[4026531838]": "", "uts:[4026532001]": inDocker} {
		if p := (host{fstest.MapFS{".dockerenv": {}, "proc/self/ns/uts": link(to)}}).place(); p.engine != engine {
			t.Errorf("with %s it is in %q", to, p.engine)
		}
	}
}

// TestCapabilities: root with everything is warned of, and what is missing has its cost.
func TestCapabilities(t *testing.T) {
	of := func(p place, files map[string]string) *Report {
		return newReport("", []Check{named("capabilities", lookCapabilities(&process{host: hostOf(files), place: p}))})
	}
	caps := func(bits ...int) (set sys.CapSet) {
		for _, b := range bits {
			set |= 1 << b
		}
		return set
	}
	const ports = "proc/sys/net/ipv4/ip_unprivileged_port_start"
	of(place{effective: ^sys.CapSet(0)}, nil).want(t, "capabilities", OK, "uid 0, with all capabilities, more than serving needs: a user of its own is safer")
	of(place{effective: caps(sys.CAP_SYS_RESOURCE), user: 5}, map[string]string{ports: "0"}).want(t, "capabilities", OK, "uid 5, with the capabilities that serving needs")
	of(place{user: 5}, map[string]string{ports: "1024"}).want(t, "capabilities", Degraded, "without NET_BIND_SERVICE and SYS_RESOURCE", "below 1024", "hard limit of descriptors")
	of(place{effective: ^sys.CapSet(0), nested: true}, nil).want(t, "capabilities", Degraded, "its own user namespace", "quota of pipes")
}

// TestRunningHere: a process without sessions is not limited by them, whatever the machine; and its report is one of
// the host's form.
func TestRunningHere(t *testing.T) {
	r := ExamineProcess(new(Running))
	var text bytes.Buffer
	must.Do(t, r.WriteText(&text))
	t.Log("\n" + text.String())
	if !r.Able || r.PID == 0 {
		t.Errorf("able %v, process %d", r.Able, r.PID)
	}
	for _, name := range []string{"splice", "local-faults", "accept-queues", "loops"} {
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
		LocalFaults: map[string]int64{syscall.EMFILE.Error(): 5, syscall.EADDRNOTAVAIL.Error(): 6, syscall.ENOBUFS.Error(): 7, syscall.EPERM.Error(): 8, syscall.EBUSY.Error(): 1},
		Pipes:       RunningPipes{Denied: 9, Degraded: 1, Refused: 2, BudgetPages: 1000, LinePages: 4000, UsedPages: 900},
		Loops:       []RunningLoop{{LagP99: 5 * time.Millisecond, LagMax: 90 * time.Millisecond, Turns: 1000, LongTurns: 50}, {LagP99: time.Microsecond}},
		ArenaSize:   8 << 20, ArenaFallback: "reserved huge pages: mmap: cannot allocate memory\ntransparent ones: never", ArenaRefused: 11,
		Queues: []RunningQueue{{Address: "127.0.0.1:80", Length: 100, Most: 128, Dropped: 12, Known: true, DroppedKnown: true}, {Address: "unix:/s"}},
	}, pressed())
	var text bytes.Buffer
	must.Do(t, r.WriteText(&text))
	t.Log("\n" + text.String())
	for _, want := range []struct{ name, found, cost, mend string }{
		{"descriptors", "7 of ", "accepting paused 3 times, and 5 connections to endpoints failed", "nofile"},
		{"pipes", "with 900 of 1,000 pages; quota 16,384 pages", "9 times bytes were copied because no pipe was free", "fs.pipe-user-pages-soft="},
		{"splice", "1 MiB spliced, 1 KiB copied: refused 4, wrapped 2", "4 directions were copied", "splice"},
		{"local-faults", "27 connections", "served later", "operation not permitted: let this"},
		{"accept-queues", "at 78 %; overflows: 12, 12 of them at 127.0.0.1:80", "after 1 s or more", "net.core.somaxconn=4096"},
		{"loops", "99 % of turns took 5ms or less, the longest 90ms; 50 of 1,000", "for their loop", "limits.loops.count"},
		{"cpu-quota", "throttled in 40 of 100 periods, for 1.5s in all", "every session stops", "limits.loops.count"},
		{"memory", "39.1 MiB resident; the cgroup has used 95.4 MiB of 100 MiB", "reached 12 times", "201M"},
		{"arena", "8 MiB for the bytes of slow destinations, 0 B of it in huge pages: reserved huge pages: mmap: cannot allocate memory; transparent ones: never", "take 2,048 pages of memory instead of 4, with more TLB misses; 11 times", "limits.loops.count"},
		{"tcp-memory", "1,900 of 2,000 pages before memory pressure begins (3,000", "refuses connections", "net.ipv4.tcp_mem=\"2000 4000 6000\""},
		{"ports", "28,232 ports for each endpoint; 900 sockets in use and 314 in TIME_WAIT", "6 connections", "ip_local_port_range=\"1024 65535\""},
		{"conntrack", "900 of 1,000 connections tracked", "dropped", "nf_conntrack_max=4000"},
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
		"proc/sys/net/core/somaxconn": "4096", "sys/fs/cgroup/cpu.max": "50000 100000", "sys/fs/cgroup/cpu.stat": "nr_periods 5\nnr_throttled 0\n",
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
		named("the backlog of a listener", p.queues([]RunningQueue{
			{Listener: "web", Address: "127.0.0.1:80", Most: 16, Dropped: 3, Known: true, DroppedKnown: true},
			{Listener: "idle", Most: 128, Known: true},
			{Listener: "web", Address: "[::1]:80", Length: 16, Most: 16, Known: true},
		})),
		named("late timers", loops([]RunningLoop{{TimerLateP99: 8192 * time.Microsecond}})),
		named("lag without late timers", loops([]RunningLoop{{LagP99: 8192 * time.Microsecond}})),
		named("the limit of sessions", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 5})),
	})
	r.want(t, "no pipe", Degraded, "5 times", "see pipes")
	r.want(t, "a queue that is long enough", Degraded, "see loops")
	r.want(t, "the backlog of a listener", Degraded, "raise socket.backlog of listener web: it is 16, and net.core.somaxconn allows 4,096")
	if c := r.of(t, "the backlog of a listener"); len(c.Mend) != 2 {
		t.Errorf("a queue that is short by the configuration is mended by %q", c.Mend)
	}
	if c := r.of(t, "late timers"); c.State != Degraded || !strings.HasPrefix(c.Found, "timers are late by up to 8.192ms; ") {
		t.Errorf("%+v", c)
	}
	if c := r.of(t, "lag without late timers"); c.State != Degraded || strings.Contains(c.Found+c.Cost, "timers") {
		t.Errorf("%+v", c)
	}
	if c := r.of(t, "the limit of sessions"); c.State != Unknown { // there is no /proc/self/fd
		t.Errorf("%+v", c)
	}
	p.host = pressed()
	r = newReport("", []Check{
		named("the limit of sessions", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 5, Affordable: 6})),
		named("the limit of descriptors", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 5, Affordable: 5})),
	})
	r.want(t, "the limit of sessions", Degraded, "accepting pauses now", "limits.connections")
	r.want(t, "the limit of descriptors", Degraded, "accepting pauses now", "nofile")
	r = newReport("", []Check{named("a limit that was lowered", p.usedDescriptors(&Running{Sessions: 5, MaxSessions: 1 << 40}))})
	r.want(t, "a limit that was lowered", Degraded, "lowered while the process ran", "prlimit --pid ", "nofile")
}

var sample = newReport("in no container", []Check{
	{Name: "splice", State: OK, Found: "it works", Cost: "not shown", Mend: []string{"nor this"}},
	{
		Name: "pipes", State: Degraded, Found: "64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on in the next line",
		Cost: "copying", Mend: []string{"sysctl -w fs.pipe-user-pages-soft=65536", "docker run"},
	},
	{Name: "ports", State: Unknown, Found: "unreadable"},
	{Name: "lane", State: Unused, Found: "refused"},
})

func TestText(t *testing.T) {
	t.Parallel()
	const want = `ok        splice  it works
degraded  pipes   64 pipes of 1 MiB, then one of 8 KiB, which is so long a text that it has to go on
                  in the next line
                  cost  copying
                  fix   sysctl -w fs.pipe-user-pages-soft=65536
                  or    docker run
unknown   ports   unreadable
unused    lane    refused

Penstock can run here. 1 ok, 1 degraded, 0 missing, 1 unknown, 1 missing but not used.
This process runs in no container.
`
	var got bytes.Buffer
	if err := sample.WriteText(&got); err != nil || got.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got.String(), want)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }
