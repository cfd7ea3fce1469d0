package doctor

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/topology"
)

// verdicts are facts and what is to be said of them; the texts are parts.
type verdict struct {
	name              string
	facts             facts
	state             State
	unable            bool
	found, cost, mend string
}

func judgeAll(t *testing.T, verdicts []verdict) {
	t.Helper()
	for _, v := range verdicts {
		got := v.facts.judge()
		if got.state != v.state || got.unable != v.unable {
			t.Errorf("%s: %s, unable %v; want %s, %v", v.name, got.state, got.unable, v.state, v.unable)
		}
		mend := strings.Join(got.mend, "\n")
		if len(got.needs) > 0 {
			mend += "\n" + capNames(got.needs)
		}
		for what, part := range map[string][2]string{"found": {got.found, v.found}, "cost": {got.cost, v.cost}, "mend": {mend, v.mend}} {
			if !strings.Contains(part[0], part[1]) {
				t.Errorf("%s: %s is %q, want %q in it", v.name, what, part[0], part[1])
			}
		}
		if (got.state == OK || got.state == Unused) && (got.cost != "" || mend != "") {
			t.Errorf("%s: %s, but cost %q, mend %q", v.name, got.state, got.cost, mend)
		}
		if (got.state == Degraded || got.state == Missing) && (got.cost == "" || mend == "") {
			t.Errorf("%s: %s, but cost %q, mend %q", v.name, got.state, got.cost, mend)
		}
	}
}

// Where a process may run.
var (
	bare      = place{seccomp: known(0)}
	container = place{seccomp: known(0), container: true}
	service   = place{seccomp: known(2)}
	docker    = place{seccomp: known(2), container: true}
	unit      = place{seccomp: known(0), unit: "penstock.service", init: "systemd"}
	openrc    = place{seccomp: known(0), init: "init"}
	pod       = place{seccomp: known(2), container: true, engine: inKubernetes}
	pods      = place{seccomp: known(2), container: true, engine: inPodman}
	guest     = place{seccomp: known(0), virtual: true}
)

func refusal(call string, err syscall.Errno) error {
	return &feature.Error{Feature: "it", Err: os.NewSyscallError(call, err)}
}

// with is a copy of facts with something else.
func with[T any](f T, change func(*T)) T {
	change(&f)
	return f
}

// over is a loopback on which a call fails.
func over(call string, err syscall.Errno, up number, p place) loopback {
	failed := os.NewSyscallError(call, err)
	return loopback{ipv4: failed, ipv6: failed, Up: up, place: p}
}

func TestJudgeTraffic(t *testing.T) {
	eperm := refusal("splice", syscall.EPERM)
	judgeAll(t, []verdict{
		{"both", loopback{IPv4: true, IPv6: true}, OK, false, "127.0.0.1 and ::1", "", ""},
		{"IPv4 only", loopback{IPv4: true, ipv6: syscall.EADDRNOTAVAIL}, OK, false, "IPv6 is off", "", ""},
		{"IPv6 only", loopback{IPv6: true, ipv4: syscall.EADDRNOTAVAIL}, OK, false, "IPv4 is off", "", ""},
		{"no sockets", over("socket", syscall.EPERM, known(2), docker), Missing, true, "socket: operation not permitted", "cannot run", "allows socket,"},
		{"no accepting", over("accept4", syscall.ENOSYS, number{}, docker), Missing, true, "accept4: function not implemented", "accept no connection", "allows accept4"},
		{"no network", loopback{ipv4: os.NewSyscallError("socket", syscall.EAFNOSUPPORT), ipv6: os.NewSyscallError("socket", syscall.EAFNOSUPPORT), Up: known(2)}, Missing, true, "not supported", "", ""},
		{"IPv6 alone, refused", loopback{ipv4: os.NewSyscallError("socket", syscall.EAFNOSUPPORT), ipv6: os.NewSyscallError("bind", syscall.EACCES), Up: known(2)}, Missing, true, "bind", "", ""},
		{"nothing is up", with(over("connect", syscall.ENETUNREACH, known(0), bare), func(f *loopback) { f.down = true }), Missing, true, "unreachable", "cannot run", "ip link set lo up"},
		{"another interface is up", with(over("connect", syscall.ENETUNREACH, known(1), bare), func(f *loopback) { f.down = true }), Degraded, false, "unreachable", "other interfaces are served", "ip link set lo up"},
		{"connect is refused", over("connect", syscall.EPERM, known(2), docker), Degraded, false, "connect: operation not permitted", "", "allows connect"},
		{"a firewall", over("connect", syscall.ETIMEDOUT, known(2), bare), Degraded, false, "", "", "firewall"},

		{"spliced", splice{Moved: 16384}, OK, false, "16 KiB", "", ""},
		{"docker refuses splice", splice{err: eperm, place: docker}, Missing, false, "splice: operation not permitted", "2.4 times", "docker run --security-opt seccomp=FILE"},
		{"systemd refuses splice", splice{err: eperm, place: service}, Missing, false, "", "1.2 times", "SystemCallFilter=splice, added to"},
		{"a security module refuses splice", splice{err: eperm, place: bare}, Missing, false, "", "", "security modules, that allow splice"},
		{"Kubernetes refuses splice", splice{err: eperm, place: pod}, Missing, false, "", "", "in the pod's manifest: securityContext: {seccompProfile: {type: Localhost"},
		{"unknown sandbox refuses splice", splice{err: eperm}, Missing, false, "", "", "(alone it forbids all others)\ndocker run"},
		{"out of memory", splice{err: syscall.ENOMEM, place: bare}, Unknown, false, "cannot allocate", "", ""},
		{"no pipes", splice{err: refusal("pipe2", syscall.EPERM), place: docker}, Missing, false, "pipe2: operation", "", "allows pipe2,"},
		{"between connections", splice{err: answered("splice", syscall.EPERM), place: docker}, Missing, false, "splice: operation", "", "allows splice,"},
		{"no connections", splice{err: os.NewSyscallError("accept4", syscall.EPERM), place: docker}, Unknown, false, "accept4", "if it is missing", ""},
	})
}

func TestJudgePipes(t *testing.T) {
	bound := pipeQuota{
		Soft: known(16384), Hard: known(0), Whole: 64, End: endDegraded, Degraded: 8192,
		Budget: 14336, Pipes: 2500, PageSize: 4096, Resized: true, place: bare,
	}
	with := func(f func(*pipeQuota)) pipeQuota { return with(bound, f) }
	judgeAll(t, []verdict{
		{"1 MiB", pipeSize{Max: known(1 << 20), Largest: 1 << 20, err: syscall.EPERM}, OK, false, "1 MiB", "", ""},
		{"more", pipeSize{Max: known(1 << 20), Largest: 8 << 20}, OK, false, "8 MiB", "", ""},
		{"lowered", pipeSize{Max: known(1 << 16), Largest: 1 << 16, err: syscall.EPERM, place: bare}, Degraded, false, "64 KiB at most", "2.0 times", "sysctl -w fs.pipe-max-size=1048576"},
		{"quota spent", pipeSize{Max: known(1 << 20), Largest: 1 << 16, err: syscall.EPERM}, Degraded, false, "quota is spent", "of 64 KiB instead", "pipe-quota"},
		{"quota spent at 256 KiB", pipeSize{Max: known(1 << 20), Largest: 1 << 18, err: syscall.EPERM}, Degraded, false, "quota is spent", "of 256 KiB instead", "pipe-quota"},
		{"quota spent altogether", pipeSize{Max: known(1 << 20), Largest: 1 << 13, err: syscall.EPERM}, Degraded, false, "8 KiB at most", "uses none as small as that: every byte is copied", "pipe-quota"},
		{"no size", pipeSize{err: refusal("fcntl F_GETPIPE_SZ", syscall.EPERM), place: docker}, Degraded, false, "cannot be resized", "64 KiB instead", "allows fcntl,"},
		{"no resizing", pipeSize{Max: known(1 << 20), Largest: 1 << 16, err: refusal("fcntl F_SETPIPE_SZ", syscall.EPERM), place: docker}, Degraded, false, "cannot be resized", "2.0", "allows fcntl"},
		{"no pipe", pipeSize{err: os.NewSyscallError("pipe2", syscall.EMFILE)}, Unknown, false, "too many open files", "", ""},

		{"ordinary", bound, Degraded, false, "64 pipes of 1 MiB, then one of 8 KiB; quota 16,384 pages; budget 896 of 64 KiB, or 28 of 1 MiB", "beyond 896, copying", "sysctl -w fs.pipe-user-pages-soft=65536"},
		{"many descriptors", with(func(q *pipeQuota) { q.Pipes = 1 << 17 }), Degraded, false, "", "", "fs.pipe-user-pages-soft=524288"},
		{"raised", with(func(q *pipeQuota) { q.Soft = known(65536); q.Whole = 80; q.End = endNone; q.Budget = 57344 }), OK, false, "80 pipes", "", ""},
		{"raised, not enough", with(func(q *pipeQuota) { q.Soft = known(32768); q.Whole = 80; q.End = endNone; q.Budget = 28672 }), Degraded, false, "no more were tried", "1,792", "=131072"},
		{"exempt", with(func(q *pipeQuota) { q.Whole = 80; q.End = endNone; q.Budget = 40000 }), OK, false, "exempt", "", ""},
		{"others", with(func(q *pipeQuota) { q.Whole = 40; q.End = endRefused; q.err = syscall.EPERM }), Degraded, false, "others of this user hold about 6,144", "", "sysctl"},
		{"hard", with(func(q *pipeQuota) { q.Hard = known(16384); q.End = endFiles; q.err = syscall.ENFILE }), Degraded, false, "16,384 hard", "", "sysctl -w fs.pipe-user-pages-soft=65536 fs.pipe-user-pages-hard=65536\n"},
		{"hard enough", with(func(q *pipeQuota) { q.Hard = known(1 << 20) }), Degraded, false, "1,048,576 hard", "", "sysctl -w fs.pipe-user-pages-soft=65536\n"},
		{"spent", with(func(q *pipeQuota) { q.Whole = 0 }), Degraded, false, "0 pipes of 1 MiB, then one of 8 KiB; quota 16,384 pages (others of this user hold nearly all", "no flow gets a pipe now: every byte is copied", "sysctl"},
		{"spent but for a small one", with(func(q *pipeQuota) { q.Whole = 0; q.End = endRefused; q.err = syscall.EPERM }), Degraded, false, "", "busy at once beyond 1, flows are copied", "sysctl"},
		{"one whole", with(func(q *pipeQuota) { q.Whole = 1 }), Degraded, false, "1 pipe of 1 MiB, then", "beyond 1, pipes of 64 KiB (a read of 256 KiB takes 2.0 times as long); beyond 16, copying", "sysctl"},
		{"descriptors first", with(func(q *pipeQuota) { q.Whole = 28; q.End = endDescriptors; q.Pipes = 8 }), OK, false, "28 pipes of 1 MiB, then no descriptor; budget 8 of 64 KiB", "", ""},
		{"in a container", with(func(q *pipeQuota) { q.place = container }), Degraded, false, "", "", "on the host: sysctl -w fs.pipe-user-pages-soft=65536\nCAP_SYS_RESOURCE"},
		{"nested", with(func(q *pipeQuota) { q.place = place{nested: true, container: true} }), Degraded, false, "", "", "on the host: sysctl -w fs.pipe-user-pages-soft=65536"},
		{"no resizing", with(func(q *pipeQuota) { q.Whole = 0; q.Resized = false; q.End = endRefused; q.err = syscall.EPERM }), Unknown, false, "0 pipes", "", ""},
		{"no files of /proc", with(func(q *pipeQuota) { q.Soft, q.Hard = number{}, number{} }), Degraded, false, "quota unknown", "beyond 896", "=65536; besides, let Penstock read /proc/sys/fs/pipe-user-pages-*"},
		{"a quota that is not in force", with(func(q *pipeQuota) { q.Soft, q.Hard = number{}, number{}; q.Whole = 80; q.End = endNone }), Degraded, false, "80 pipes of 1 MiB", "beyond 896", "let Penstock read /proc/sys/fs/pipe-user-pages-*"},
	})
}

func TestJudgeDescriptors(t *testing.T) {
	judgeAll(t, []verdict{
		{"many", descriptors{Soft: known(20000), Hard: known(20000), Free: known(64), Sessions: 9900}, OK, false, "20,000 descriptors, soft and hard: 9,900 sessions", "", ""},
		{"raisable", descriptors{Soft: known(20000), Hard: known(20000), Free: known(64), Sessions: 9900, Raises: true}, OK, false, "may be raised", "", ""},
		{"few", descriptors{Soft: known(1024), Hard: known(1024), NrOpen: known(1 << 20), Free: known(64), Sessions: 496, place: bare}, Degraded, false, "496 sessions", "128 of them", "systemd: LimitNOFILE=1048576"},
		{"soft is lower", descriptors{Soft: known(1024), Hard: known(4096), Free: known(64), Sessions: 496, place: bare}, Degraded, false, "hard limit 4,096", "496", "ulimit -n 4096\n"},
		{"few, raisable", descriptors{Soft: known(1024), Hard: known(1024), Free: known(64), Sessions: 496, Raises: true, place: bare}, Degraded, false, "may be raised", "", "ulimit -n 1048576\nsystemd"},
		{"container", descriptors{Soft: known(64), Hard: known(64), NrOpen: known(65536), Free: known(54), Sessions: 16, place: container}, Degraded, false, "16 sessions", "8 of them", "docker run --ulimit nofile=65536:65536"},
		{"one session", descriptors{Soft: known(34), Hard: known(34), Free: known(24), Sessions: 1, place: bare}, Degraded, false, ": 1 session,", "accepting pauses at 1 session;", ""},
		{"enough for one", descriptors{Soft: known(10), Hard: known(10), Free: known(5), Sessions: 1, place: bare}, Degraded, false, "1 session", "", ""},
		{"few in a unit", descriptors{Soft: known(1024), Hard: known(1024), Free: known(64), Sessions: 496, Raises: true, place: unit}, Degraded, false, "", "", "systemctl edit penstock.service: LimitNOFILE=1048576"},
		{"few in a pod", descriptors{Soft: known(1024), Hard: known(1024), Free: known(64), Sessions: 496, place: pod}, Degraded, false, "", "", "on the node: systemctl edit containerd.service"},
		{"few with Podman", descriptors{Soft: known(1024), Hard: known(1024), Free: known(64), Sessions: 496, place: pods}, Degraded, false, "", "", "podman run --ulimit nofile=1048576:1048576"},
		{"too few", descriptors{Soft: known(16), Hard: known(16), Free: known(4), Sessions: 1, place: bare}, Missing, true, "only 4 descriptors are left, of 16", "cannot run", "LimitNOFILE"},
		{"refused", descriptors{Free: known(64)}, Unknown, false, "cannot be read", "", ""},
		{"nothing is known of free ones", descriptors{Soft: known(20000), Hard: known(20000), Sessions: 9900}, OK, false, "", "", ""},
	})
}

func TestJudgeNetwork(t *testing.T) {
	judgeAll(t, []verdict{
		{"backlog", backlog{Somaxconn: known(4096), Penstock: known(4096), Largest: known(4096)}, OK, false, "4,096", "", ""},
		{"short", backlog{Somaxconn: known(128), Penstock: known(128), Largest: known(128), place: bare}, Degraded, false, "128 connections", "more than 128 clients", "sysctl -w net.core.somaxconn=4096"},
		{"short in a container", backlog{Penstock: known(128), place: container}, Degraded, false, "", "after 1 s or more", "docker run --sysctl net.core.somaxconn=4096; besides, let"},
		{"somaxconn is hidden", backlog{Penstock: known(128), Largest: known(4096), place: bare}, Degraded, false, "somaxconn unknown", "128 clients", "let Penstock read /proc/sys/net/core/somaxconn: in a chroot"},
		{"short in a pod", backlog{Somaxconn: known(128), Penstock: known(128), Largest: known(128), place: pod}, Degraded, false, "", "", `securityContext: {sysctls: [{name: net.core.somaxconn, value: "4096"}]}`},
		{"short, and hidden", backlog{Penstock: known(128), Largest: known(128), place: bare}, Degraded, false, "", "", "somaxconn=4096; besides, let Penstock read"},
		{"no listener", backlog{err: syscall.EMFILE}, Unknown, false, "too many open files", "", ""},

		{"cookies", synBacklog{Max: known(128), Cookies: known(1)}, OK, false, "SYN cookies beyond", "", ""},
		{"no cookies", synBacklog{Max: known(128), Cookies: known(0), place: bare}, Degraded, false, "128", "dropped", "sysctl -w net.ipv4.tcp_syncookies=1"},
		{"long enough", synBacklog{Max: known(4096), Cookies: known(0)}, OK, false, "no SYN cookies", "", ""},
		{"unknown", synBacklog{}, Unknown, false, "", "", ""},

		{"usual ports", ports{Lowest: known(32768), Highest: known(60999), Usable: known(28232), PerSecond: known(470), LatePort: works(nil), Sessions: 9900}, OK, false, "28,232 ports: as many sessions to one target, 470 new ones per second", "", ""},
		{"ports are taken again", ports{Usable: known(28232), PerSecond: known(28232), Reuse: known(1), Stamps: known(1), Sessions: 9900}, OK, false, "28,232 new ones per second (tcp_tw_reuse)", "", ""},
		{"on loopback alone", ports{Usable: known(28232), PerSecond: known(470), Reuse: known(2), Sessions: 9900}, OK, false, "470 new ones per second (more on loopback", "", ""},
		{"not without timestamps", ports{Usable: known(100), PerSecond: known(1), Reuse: known(1), Stamps: known(0), Sessions: 9900}, Degraded, false, "1 new one per second", "out of use for 60 s", ""},
		{"more sessions", ports{Lowest: known(32768), Highest: known(60999), Usable: known(28232), PerSecond: known(470), LatePort: works(answered("setsockopt", syscall.ENOPROTOOPT)), Sessions: 100_000, place: bare}, Degraded, false, "IP_BIND_ADDRESS_NO_PORT", "100,000 sessions", `sysctl -w net.ipv4.ip_local_port_range="1024 65535"`},
		{"all ports", ports{Lowest: known(1024), Highest: known(65535), Usable: known(64512), PerSecond: known(1075), Sessions: 500_000}, OK, false, "64,512", "", ""},
		{"few ports", ports{Lowest: known(60000), Highest: known(60999), Usable: known(1000), PerSecond: known(16), Sessions: 500, place: container}, Degraded, false, "", "beyond 16 per second", `--sysctl net.ipv4.ip_local_port_range="1024 65535"`},
		{"unknown ports", ports{Sessions: 500}, Unknown, false, "", "", ""},

		{"buffers", buffers{ReceiveMax: known(6 << 20), SendMax: known(4 << 20)}, OK, false, "6 MiB to receive, 4 MiB to send", "", ""},
		{"small receive buffers", buffers{ReceiveMax: known(1 << 18), SendMax: known(4 << 20), receive: []int64{4096, 131072, 1 << 18}, place: bare}, Degraded, false, "256 KiB", "finds 128 KiB", `sysctl -w net.ipv4.tcp_rmem="4096 131072 6291456"`},
		{"small send buffers", buffers{ReceiveMax: known(6 << 20), SendMax: known(1 << 20), send: []int64{4096, 16384, 1 << 20}, place: bare}, Degraded, false, "1 MiB to send", "512 KiB", `sysctl -w net.ipv4.tcp_wmem="4096 16384 4194304"`},
		{"small buffers", buffers{ReceiveMax: known(1 << 18), SendMax: known(1 << 20), receive: []int64{4096, 131072, 1 << 18}, send: []int64{4096, 16384, 1 << 20}, place: bare}, Degraded, false, "", "128 KiB", `sysctl -w net.ipv4.tcp_rmem="4096 131072 6291456" net.ipv4.tcp_wmem="4096 16384 4194304"`},
		{"unknown buffers", buffers{ReceiveMax: known(1)}, Unknown, false, "", "", ""},

		{"option", option{seen: "it does"}, OK, false, "it does", "", ""},
		{"no such option", option{err: answered("setsockopt SO_X", syscall.ENOPROTOOPT), cost: "much"}, Missing, false, "this kernel", "much", "newer"},
		{"no effect", option{err: errNoEffect, cost: "much"}, Missing, false, "no effect", "", ""},
		{"forbidden option", option{err: answered("setsockopt SO_X", syscall.EPERM), cost: "much", place: docker}, Missing, false, "refused: setsockopt SO_X", "", "allows setsockopt,"},
		{"no listener for the option", option{err: os.NewSyscallError("setsockopt", syscall.EPERM), cost: "much", place: docker}, Unknown, false, "setsockopt: operation", "much", ""},
		{"no memory for the option", option{err: answered("setsockopt SO_X", syscall.ENOBUFS), cost: "much"}, Unknown, false, "", "much", ""},
		{"no socket", option{err: syscall.EMFILE, cost: "much"}, Unknown, false, "", "much", ""},
		{"zerocopy", zerocopy{option: option{err: answered("sendto MSG_ZEROCOPY", syscall.EINVAL), cost: "nothing"}}, Unused, false, "invalid argument; this release does not use it", "", ""},
	})
}

func TestJudgeMachine(t *testing.T) {
	judgeAll(t, []verdict{
		{"all CPUs", cpus{Allowed: 8, GOMAXPROCS: 8}, OK, false, "8, all used", "", ""},
		{"some idle", cpus{Allowed: 8, GOMAXPROCS: 2}, Degraded, false, "2 of 8", "idle: 6", "unset GOMAXPROCS"},
		{"the quota's", cpus{Allowed: 8, GOMAXPROCS: 2, Quota: known(200000), Period: known(100000)}, OK, false, "allows 2", "", ""},
		{"throttled", cpus{Allowed: 8, GOMAXPROCS: 8, Quota: known(200000), Period: known(100000), place: bare}, Degraded, false, "allows 2", "75 ms of each 100 ms", "GOMAXPROCS=2\nsystemd: CPUQuota=800%"},
		{"throttled pod", cpus{Allowed: 8, GOMAXPROCS: 8, Quota: known(200000), Period: known(100000), place: pod}, Degraded, false, "", "", `in the pod's manifest: resources: {limits: {cpu: "8"}}`},
		{"half a CPU", cpus{Allowed: 2, GOMAXPROCS: 2, Quota: known(50000), Period: known(100000), place: container}, Degraded, false, "allows 0.5", "75 ms", "GOMAXPROCS=1\ndocker run --cpus=2"},

		{"enough memory", memory{Total: known(8 << 30), Sessions: 9900, Pipes: 160 << 20}, OK, false, "8 GiB, no limit", "", ""},
		{"limited", memory{Total: known(8 << 30), Limit: known(64 << 20), Sessions: 9900, Pipes: 56 << 20, place: container}, Degraded, false, "allows 64 MiB", "9,900 sessions", "--max-connections 1677\ndocker run --memory=151M"},
		{"limited unit", memory{Total: known(8 << 30), Limit: known(64 << 20), Sessions: 9900, Pipes: 56 << 20, place: unit}, Degraded, false, "allows 64 MiB", "", "systemctl edit penstock.service: MemoryMax=151M"},
		{"limited pod", memory{Total: known(8 << 30), Limit: known(64 << 20), Sessions: 9900, Pipes: 56 << 20, place: pod}, Degraded, false, "allows 64 MiB", "", "resources: {limits: {memory: 151Mi}}"},
		{"small guest", memory{Total: known(64 << 20), Sessions: 9900, Pipes: 56 << 20, place: guest}, Degraded, false, "64 MiB, no limit", "", "a virtual machine with 151M or more"},
		{"limit above the machine's", memory{Total: known(1 << 30), Limit: known(2 << 30), Sessions: 100, Pipes: 0}, OK, false, "1 GiB, no limit", "", ""},
		{"limit alone", memory{Limit: known(2 << 30), Sessions: 100}, OK, false, "2 GiB", "", ""},
		{"memory unknown", memory{Sessions: 100}, Unknown, false, "", "", ""},

		{"one node", numa{Nodes: known(1)}, OK, false, "one node", "", ""},
		{"two nodes", numa{Nodes: known(2), Distance: []int64{10, 21}}, Degraded, false, "2 nodes", "2.1 times", "numactl"},
		{"two nodes with CPUs", numa{Nodes: known(2), Distance: []int64{10, 21}, node: 1, cpus: topology.NewSet(4, 5, 6, 9)}, Degraded, false, "", "", `limits: {loops: {affinity: "4-6,9"}, memory: {numa: 1}}`},
		{"nodes unknown", numa{}, Unknown, false, "", "", ""},

		{"clock", clock{Source: "tsc", Read: 25}, OK, false, "25 ns (tsc)", "", ""},
		{"slow clock", clock{Source: "hpet", Available: "hpet kvm-clock acpi_pm", Read: 1130}, Degraded, false, "1130 ns (hpet)", "10 %", "echo kvm-clock >"},
		{"slow, nothing better", clock{Source: "acpi_pm", Available: "acpi_pm", Read: 1500}, Degraded, false, "", "13 %", "boot"},
		{"slow in a guest", clock{Source: "acpi_pm", Available: "acpi_pm", Read: 1500, place: guest}, Degraded, false, "", "", "have the hypervisor give the virtual machine an invariant counter"},
		{"slow in a container", clock{Source: "hpet", Available: "hpet tsc", Read: 1130, place: container}, Degraded, false, "", "", "on the host: echo tsc >"},
		{"source unknown", clock{Read: 30}, OK, false, "unknown source", "", ""},

		{"membarrier", membarrier{Works: true, Needed: true}, OK, false, "without an atomic", "", ""},
		{"not needed", membarrier{err: syscall.ENOSYS}, OK, false, "not used", "", ""},
		{"refused", membarrier{Needed: true, err: syscall.EPERM, place: docker}, Degraded, false, "refused", "0.92 of sync.Pool", "allows membarrier"},
		{"not built", membarrier{Needed: true, err: syscall.ENOSYS, place: bare}, Degraded, false, "", "", "CONFIG_MEMBARRIER=y"},
		{"strange", membarrier{Needed: true, err: syscall.ENOMEM, place: bare}, Unknown, false, "", "", ""},
	})
}

func TestJudgeLaterFeatures(t *testing.T) {
	enomem := os.NewSyscallError("mmap MAP_HUGETLB", syscall.ENOMEM)
	small := errors.New("made of small pages")
	judgeAll(t, []verdict{
		{"both", hugePages{HugeTLB: true, Transparent: true, Free: known(7)}, OK, false, "7 free", "", ""},
		{"transparent", hugePages{Transparent: true, Reserved: known(0), hugeTLB: enomem}, OK, false, "madvise; set aside: 0", "", ""},
		{"set aside", hugePages{HugeTLB: true, Free: known(7), transparent: small}, OK, false, "7 free", "", ""},
		{"none", hugePages{hugeTLB: enomem, transparent: small, place: bare}, Missing, false, "small pages", "16,384", "sysctl -w vm.nr_hugepages=64"},
		{"never", hugePages{hugeTLB: enomem, transparent: small, Setting: "never", Allowed: known(1), place: bare}, Missing, false, "", "", "echo madvise > /sys/kernel/mm"},
		{"never, in a container", hugePages{hugeTLB: enomem, transparent: small, Setting: "never", place: container}, Missing, false, "", "", "on the host: echo madvise > /sys/kernel/mm"},
		{"taken away", hugePages{hugeTLB: enomem, transparent: small, Setting: "madvise", Allowed: known(0), place: bare}, Missing, false, "", "", "start it without PR_SET_THP_DISABLE"},
		{"no smaps", hugePages{hugeTLB: enomem, transparent: fs.ErrNotExist, place: bare}, Unknown, false, "", "", ""},

		{"ring", ioUring{Works: true}, OK, false, "rings can be made", "", ""},
		{"disabled", ioUring{Disabled: known(2), err: refusal("io_uring_setup", syscall.EPERM), place: bare}, Unused, false, "io_uring_disabled = 2; this release does not use it", "", ""},
		{"sandbox", ioUring{Disabled: known(0), err: refusal("io_uring_setup", syscall.EPERM), place: docker}, Unused, false, "refused", "", ""},
		{"not built", ioUring{err: refusal("io_uring_setup", syscall.ENOSYS), place: bare}, Unused, false, "not implemented", "", ""},
		{"no memory", ioUring{err: syscall.ENOMEM}, Unknown, false, "cannot allocate", "", ""},

		{"maps", bpf{Maps: true, Sockmap: true}, OK, false, "also of sockets", "", ""},
		{"no capability", bpf{maps: refusal("bpf", syscall.EPERM), sockmap: refusal("bpf", syscall.EPERM), Unprivileged: known(2), place: bare}, Unused, false, "want of CAP_BPF", "", ""},
		{"unprivileged maps", bpf{Maps: true, sockmap: refusal("bpf", syscall.EPERM), place: container}, Unused, false, "none of sockets: ", "", ""},
		{"sandboxed", bpf{CapBPF: true, maps: refusal("bpf", syscall.EPERM), sockmap: refusal("bpf", syscall.EPERM), place: service}, Unused, false, "refused", "", ""},
		{"trace", tracing{Lacks: []string{}, Types: true, place: place{effective: capabilities{known: true}}}, OK, false, "may attach", "", ""},
		{"trace refused", tracing{Lacks: []string{"CAP_PERFMON"}, Types: true, place: place{effective: capabilities{known: true}}}, Degraded, false, "without CAP_PERFMON", "only the kernel's counters", "penstock trace"},
		{"trace without types", tracing{place: place{effective: capabilities{known: true}}}, Degraded, false, "CONFIG_DEBUG_INFO_BTF", "only the kernel's counters", "a kernel with"},
		{"trace unknown", tracing{}, Unknown, false, "capget", "", ""},
		{"no descriptors", bpf{maps: syscall.EMFILE, sockmap: syscall.EMFILE}, Unknown, false, "", "", ""},
	})
}

func TestJudgePrivileges(t *testing.T) {
	var all sys.CapSet
	for _, c := range purposes {
		all |= 1 << c.bit
	}
	has := func(p place, bits ...int) place {
		p.effective.known = true
		for _, b := range bits {
			p.effective.set |= 1 << b
		}
		return p
	}
	full := place{effective: capabilities{all, true}}
	judgeAll(t, []verdict{
		{"all", privileges{place: full, Has: []string{"SYS_ADMIN"}, Unbound: known(1024)}, OK, false, "whoever takes this process over has the machine", "", ""},
		{"enough", privileges{place: has(bare, sys.CAP_SYS_RESOURCE), Unbound: known(0)}, OK, false, "", "", ""},
		{"none", privileges{User: 1000, Lacks: []string{"BPF"}, Unbound: known(1024), place: has(bare)}, Degraded, false, "uid 1000: none; without BPF", "below 1024 (CAP_NET_BIND_SERVICE); no pipes beyond", "CAP_NET_BIND_SERVICE CAP_SYS_RESOURCE"},
		{"no low ports", privileges{Unbound: known(512), place: has(container, sys.CAP_SYS_ADMIN)}, Degraded, false, "", "below 512", "CAP_NET_BIND_SERVICE"},
		{"nested", privileges{Nested: true, Has: []string{"SYS_RESOURCE"}, place: full}, Degraded, false, "user namespace of its own", "no pipes beyond", "CAP_SYS_RESOURCE"},
		{"refused", privileges{}, Unknown, false, "capget", "", ""},

		{"no filter", seccomp{Mode: known(0)}, OK, false, "no filter", "", ""},
		{"harmless", seccomp{Mode: known(2), Filters: known(1)}, OK, false, "refused nothing", "", ""},
		{"filter", seccomp{Mode: known(2), Refused: []string{"splice", "bpf"}, place: service}, Degraded, false, "refused splice, bpf", "see there", "SystemCallFilter=splice bpf"},
		{"what is not used", seccomp{Mode: known(2), Unused: []string{"bpf"}, place: docker}, OK, false, "refused bpf, which this release does not use", "", ""},
		{"unknown", seccomp{}, Unknown, false, "", "", ""},
	})
}
