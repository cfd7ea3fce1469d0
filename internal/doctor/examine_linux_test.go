package doctor

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func half(n int) int { return n / 2 }

// examined is the report on this process.
func examined(t *testing.T) *Report {
	t.Helper()
	pipequota.Spend(t)
	r := Examine(half)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + text.String())
	for line := range strings.Lines(text.String()) {
		path := strings.Contains(line, "/") // of this program: it may be longer than a line
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && !path {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return r
}

// of returns the check of that name.
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
	if err != nil {
		t.Fatal(err)
	}
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
	r.want(t, "capabilities", Degraded, "no pipes beyond the user's quota")
	if here := (host{os.DirFS("/")}); here.parameter("fs.pipe-user-pages-soft") == 16384 {
		r.want(t, "pipes", Degraded, "64 pipes of 1 MiB, then one of 8 KiB", "fs.pipe-user-pages-soft=", "CAP_SYS_RESOURCE: see capabilities")
	}
}

// TestSandbox: a call that is refused is named, with the check that needs it and how to allow it, and Penstock cannot run only if it
// listens by that call.
func TestSandbox(t *testing.T) {
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
			if err := sys.SetRlimitNoFile(c.limit, c.limit); err != nil {
				t.Fatal(err)
			}
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
	r.want(t, "arena", Degraded, "1,024 pages to the CPU instead of 2", "nr_hugepages", "echo madvise")
	if all := strings.Join(p.raisePipes(), "\n"); !strings.Contains(all, "fs.pipe-user-pages-hard=524288") {
		t.Errorf("a hard quota is in the way, and the remedy is %s", all)
	}
	p.host, p.sessions = hostOf(map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\n", "proc/sys/net/ipv4/ip_local_port_range": "1024 65535"}), 10
	r = newReport("", []Check{named("cpus", lookCPUs(p)), named("memory", lookMemory(p)), named("ports", lookPorts(p)), named("arena", p.hugePages(4<<20, 2<<20, ""))})
	for _, name := range []string{"cpus", "memory", "ports", "arena"} {
		r.want(t, name, OK)
	}
}

// TestPlaces: a remedy is in the words of the place.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		place
		is, descriptors, quota, somaxconn, allow, grant string
	}{
		"machine":    {place{}, "on a machine", "ulimit -n 1048576, and for good", "sysctl -w fs.x=1, and", "sysctl -w net.x=1", "a kernel, and security modules, that allow splice", "setcap cap_sys_resource+ep "},
		"unit":       {place{unit: "penstock.service", seccomp: 2}, "in the systemd unit penstock.service", "systemctl edit penstock.service: LimitNOFILE=1048576", "sysctl -w fs.x=1", "sysctl -w net.x=1", "systemctl edit penstock.service: SystemCallFilter=splice", "systemctl edit penstock.service: AmbientCapabilities=CAP_SYS_RESOURCE"},
		"Docker":     {place{engine: inDocker, seccomp: 2}, "in a container of Docker", "docker run --ulimit nofile=1048576:1048576", "on the host: sysctl -w fs.x=1", "docker run --sysctl net.x=1", "docker run --security-opt seccomp=FILE, a profile that allows splice", "docker run --cap-add SYS_RESOURCE"},
		"Podman":     {place{engine: inPodman, seccomp: 2, user: 5}, "in a container of Podman", "podman run --ulimit", "on the host: sysctl -w fs.x=1", "podman run --sysctl net.x=1", "podman run --security-opt", "podman run --user 0 --cap-add SYS_RESOURCE"},
		"Kubernetes": {place{engine: inKubernetes, seccomp: 2}, "in a container of Kubernetes", "on the node: ulimit", "on the node: sysctl -w fs.x=1", "in the pod's manifest: securityContext: {sysctls", "in the pod's manifest: securityContext: {seccompProfile", "capabilities: {add: [SYS_RESOURCE]}"},
		"namespace":  {place{nested: true}, "on a machine", "ulimit", "sysctl", "sysctl", "a kernel", "outside of a user namespace: CAP_SYS_RESOURCE"},
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
	of(place{effective: ^sys.CapSet(0)}, nil).want(t, "capabilities", OK, "whoever takes this process over has the machine")
	of(place{effective: caps(sys.CAP_SYS_RESOURCE), user: 5}, map[string]string{ports: "0"}).want(t, "capabilities", OK, "uid 5, with what serving takes")
	of(place{user: 5}, map[string]string{ports: "1024"}).want(t, "capabilities", Degraded, "without NET_BIND_SERVICE and SYS_RESOURCE", "below 1024", "descriptors beyond")
	of(place{effective: ^sys.CapSet(0), nested: true}, nil).want(t, "capabilities", Degraded, "user namespace of its own", "pipes beyond")
}
