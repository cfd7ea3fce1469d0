package doctor

import (
	"io/fs"
	"testing"
	"testing/fstest"
)

// hostOf is a host with these files and no other.
func hostOf(files map[string]string) host {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return host{m}
}

func TestHostReads(t *testing.T) {
	h := hostOf(map[string]string{
		"proc/sys/net/core/somaxconn": "4096\n", "proc/sys/a/words": "always [madvise] never\n", "proc/sys/a/range": "1\t2\n",
		"proc/self/status": "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n",
	})
	if n := h.parameter("net.core.somaxconn"); n != known(4096) {
		t.Errorf("somaxconn %v", n)
	}
	for _, key := range []string{"a.words", "a.range", "a.missing"} {
		if n := h.parameter(key); n.known {
			t.Errorf("%s is %v", key, n)
		}
	}
	if text, ok := h.field("proc/self/status", "Seccomp"); !ok || text != "2" {
		t.Errorf("Seccomp %q, %v", text, ok)
	}
	if _, ok := h.field("proc/self/status", "NoNewPrivs"); ok {
		t.Error("a field that is not there")
	}
}

func TestContainersAreToldByTheirFiles(t *testing.T) {
	for _, c := range []struct {
		file, variable, value string
		want                  engine
	}{
		{".dockerenv", "container", "", inDocker},
		{"run/.containerenv", "container", "", inPodman},
		{"etc/passwd", "container", "", ""},
		{"etc/passwd", "container", "podman", inPodman},
		{"etc/passwd", "container", "lxc", inOther},
		{".dockerenv", "KUBERNETES_SERVICE_HOST", "10.0.0.1", inKubernetes},
	} {
		t.Setenv("container", "")
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		t.Setenv(c.variable, c.value)
		if there, by := hostOf(map[string]string{c.file: ""}).contained(); by != c.want || there != (c.want != "") {
			t.Errorf("%+v: %v, %q", c, there, by)
		}
	}
}

func TestUnits(t *testing.T) {
	for cgroup, want := range map[string]string{
		"0::/system.slice/penstock.service\n":                                   "penstock.service",
		"0::/system.slice/system-penstock.slice/penstock@a.service\n":           "penstock@a.service",
		"0::/user.slice/user-1000.slice/session-3.scope\n":                      "",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n":  "",
		"4:memory:/m.service\n1:name=systemd:/system.slice/old.service\n0::/\n": "old.service",
		"0::/\n": "",
		"":       "",
	} {
		if got := hostOf(map[string]string{"proc/self/cgroup": cgroup}).unit(); got != want {
			t.Errorf("%q: %q, want %q", cgroup, got, want)
		}
	}
}

func TestVirtualMachines(t *testing.T) {
	for _, c := range []struct {
		file, text string
		want       bool
	}{
		{"proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse hypervisor lm\n", true},
		{"proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse lm\n", false},
		{"sys/hypervisor/type", "xen\n", true},
		{"sys/class/dmi/id/sys_vendor", "QEMU\n", true},
		{"sys/class/dmi/id/product_name", "Virtual Machine\n", true},
		{"sys/class/dmi/id/product_name", "ProLiant DL360\n", false},
	} {
		if got := hostOf(map[string]string{c.file: c.text}).virtual(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestNestedUserNamespaces(t *testing.T) {
	for link, want := range map[string]bool{"user:[4026531837]": false, "user:[4026532000]": true} {
		h := host{fstest.MapFS{"proc/self/ns/user": {Data: []byte(link), Mode: fs.ModeSymlink}}}
		if got := h.namespaced(); got != want {
			t.Errorf("%s: %v", link, got)
		}
	}
	if hostOf(nil).namespaced() {
		t.Error("nested, although nothing says so")
	}
}

func TestCgroupLimits(t *testing.T) {
	for name, c := range map[string]struct {
		files                 map[string]string
		quota, period, memory number
	}{
		"no files": {},
		"second version, the tightest counts": {
			files: map[string]string{
				"proc/self/cgroup":                 "0::/a/b\n",
				"sys/fs/cgroup/a/b/cpu.max":        "max 100000\n",
				"sys/fs/cgroup/a/cpu.max":          "150000 100000\n",
				"sys/fs/cgroup/cpu.max":            "400000 100000\n",
				"sys/fs/cgroup/a/b/memory.max":     "max\n",
				"sys/fs/cgroup/a/memory.max":       "1073741824\n",
				"sys/fs/cgroup/memory.max":         "2147483648\n",
				"sys/fs/cgroup/a/b/c/d/memory.max": "1\n",
			},
			quota: known(150000), period: known(100000), memory: known(1 << 30),
		},
		"container of the second version": {
			files: map[string]string{
				"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/memory.max": "max\n",
			},
			quota: known(50000), period: known(100000),
		},
		"first version": {
			files: map[string]string{
				"proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/c\n0::/\n",
				"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us":  "200000\n",
				"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/memory/m/memory.limit_in_bytes":  "536870912\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":    "9223372036854771712\n",
			},
			quota: known(200000), period: known(100000), memory: known(512 << 20),
		},
		"first version, no limit, path of the host": {
			files: map[string]string{
				"proc/self/cgroup":                           "4:memory:/docker/1\n3:cpu:/docker/1\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
				"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
		},
	} {
		h := hostOf(c.files)
		if quota, period := h.cpuLimit(); quota != c.quota || period != c.period {
			t.Errorf("%s: CPU %v of %v, want %v of %v", name, quota, period, c.quota, c.period)
		}
		if limit := h.memoryLimit(); limit != c.memory {
			t.Errorf("%s: memory %v, want %v", name, limit, c.memory)
		}
	}
}

func TestPortsOfAList(t *testing.T) {
	for list, want := range map[string]int64{
		"": 0, "8080": 0, "32768": 1, "60999,61000": 1, "40000-40009,50000": 11, "1-65535": 28_232, "x": 0, "9-1": 0,
	} {
		if got := within(list, 32768, 60999); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}
