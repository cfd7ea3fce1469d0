package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// A host is where the kernel's files are read. A file that is missing or has unexpected contents has unknown
// numbers.
type host struct{ files fs.FS }

// text returns a file without the white space around it.
func (h host) text(path string) (string, bool) {
	b, err := fs.ReadFile(h.files, path)
	return strings.TrimSpace(string(b)), err == nil
}

// numbers returns the numbers of a file, or nil if it holds other text.
func (h host) numbers(path string) (all []int64) {
	text, _ := h.text(path)
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// number returns the only number of a file.
func (h host) number(path string) int64 {
	if n := h.numbers(path); len(n) == 1 {
		return n[0]
	}
	return unknown
}

// parameter returns a kernel parameter, such as net.core.somaxconn.
func (h host) parameter(key string) int64 {
	return h.number("proc/sys/" + strings.ReplaceAll(key, ".", "/"))
}

// field returns the text after name and ":" or " " in a file of such lines, like /proc/self/status.
func (h host) field(path, name string) string {
	text, _ := h.text(path)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok && value != "" && strings.ContainsAny(value[:1], ": ") {
			return strings.TrimSpace(value[1:])
		}
	}
	return ""
}

// count returns the number after a name, without its unit.
func (h host) count(path, name string) int64 {
	first, _, _ := strings.Cut(h.field(path, name), " ")
	return parse(first)
}

func parse(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return unknown
	}
	return n
}

// cgroup returns the path of this process's version 2 cgroup (cgroups(7)).
func (h host) cgroup() string { return path.Join("/", h.field("proc/self/cgroup", "0:")) }

// cgroups returns the directories that may limit this process: its own cgroup and the cgroups above it. In a
// container the path may be the host's, which is not there; then only the root is left.
func (h host) cgroups() (dirs []string) {
	for dir := h.cgroup(); ; dir = path.Dir(dir) {
		if dirs = append(dirs, path.Join("sys/fs/cgroup", dir)); dir == "/" {
			return dirs
		}
	}
}

// oldLimits reports whether a controller is mounted as cgroup v1 (cgroups(7)), whose limits are not read.
func (h host) oldLimits(controller string) bool {
	text, _ := h.text("proc/self/cgroup")
	for line := range strings.Lines(text) { // 4:cpu,cpuacct:/path
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return true
		}
	}
	return false
}

// cpuLimit returns the tightest limit: quota microseconds of processor time in each period.
func (h host) cpuLimit() (quota, period int64) {
	quota, period = unknown, unknown
	for _, dir := range h.cgroups() {
		text, _ := h.text(dir + "/cpu.max")
		first, second, _ := strings.Cut(text, " ")
		if q, p := parse(first), parse(second); q > 0 && p > 0 && (quota == unknown || q*period < quota*p) { // "max" means no limit
			quota, period = q, p
		}
	}
	return quota, period
}

// memoryLimit returns the tightest limit, in bytes, and its directory.
func (h host) memoryLimit() (limit int64, in string) {
	limit = unknown
	for _, dir := range h.cgroups() {
		if n := h.number(dir + "/memory.max"); n >= 0 && (limit == unknown || n < limit) {
			limit, in = n, dir
		}
	}
	return limit, in
}

// place is where this process runs; the words of a remedy depend on that.
type place struct {
	engine    string // of this container; empty: it is none
	unit      string // systemd unit of this process; empty: none
	nested    bool   // in a user namespace of its own, so that its capabilities lift no limit of the host
	seccomp   int64  // 2: a filter
	user      int
	effective sys.CapSet // 0 if capget(2) is refused
}

const (
	inKubernetes = "Kubernetes"
	inPodman     = "Podman"
	inDocker     = "Docker"
)

// place finds out where this process runs. Docker and Podman leave a file behind; Podman, LXC and
// systemd-nspawn set $container (systemd.exec(5), CONTAINER_INTERFACE); a pod of Kubernetes has the
// variables of its services.
func (h host) place() place {
	set, _ := sys.Capabilities()
	p := place{seccomp: h.count("proc/self/status", "Seccomp"), user: os.Getuid(), effective: set}
	if name := path.Base(h.cgroup()); strings.HasSuffix(name, ".service") { // systemd.slice(5)
		p.unit = name
	}
	there := func(path string) bool {
		_, err := fs.Stat(h.files, path)
		return err == nil
	}
	// The first namespaces have fixed numbers (include/linux/proc_ns.h, PROC_UTS_INIT_INO, PROC_USER_INIT_INO).
	uts, _ := fs.ReadLink(h.files, "proc/self/ns/uts")
	switch by := os.Getenv("container"); {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		p.engine = inKubernetes
	case by == "podman" || there("run/.containerenv"):
		p.engine = inPodman
	case by == "docker" || there(".dockerenv") && uts != "uts:[4026531838]": // a machine made from an image has the file, too
		p.engine = inDocker
	case by != "":
		p.engine = "another engine" // LXC, systemd-nspawn
	}
	namespace, err := fs.ReadLink(h.files, "proc/self/ns/user")
	p.nested = err == nil && namespace != "user:[4026531837]"
	return p
}

func (p place) String() string {
	switch {
	case p.engine != "":
		return "in a container of " + p.engine
	case p.unit != "":
		return "in the systemd unit " + p.unit
	}
	return "in no container"
}

// A remedy is one remedy in the words of each place: a setting of a systemd unit, options of docker run, a part
// of a pod's manifest, or what the host or a process without a service needs.
type remedy struct{ unit, docker, pod, host string }

func (p place) mend(r remedy) []string {
	switch {
	case p.engine == inKubernetes && r.pod != "":
		return []string{"in the pod's manifest: " + r.pod}
	case p.engine == inKubernetes:
		return []string{"on the node: " + r.host}
	case p.engine != "" && r.docker != "":
		return []string{map[bool]string{true: "podman run ", false: "docker run "}[p.engine == inPodman] + r.docker}
	case p.engine != "":
		return []string{"on the host: " + r.host}
	case p.unit != "" && r.unit != "":
		return []string{"systemctl edit " + p.unit + ": " + r.unit}
	}
	var list []string
	if r.host != "" {
		list = append(list, r.host)
	}
	if r.unit != "" {
		list = append(list, "systemd: "+r.unit)
	}
	return list
}

// sysctl says how to set kernel parameters: on the host or, if their names begin with net., in the network
// namespace. All of them are needed.
func (p place) sysctl(settings ...string) []string {
	all := strings.Join(settings, " ")
	r := remedy{host: "sysctl -w " + all + ", and for good in /etc/sysctl.d/60-penstock.conf"}
	if strings.HasPrefix(all, "net.") {
		r.docker = "--sysctl " + strings.Join(settings, " --sysctl ")
		r.pod = "securityContext: {sysctls: [...]} with " + all + ", which the kubelet must allow (--allowed-unsafe-sysctls)"
	}
	return p.mend(r)
}

func (p place) allow(call string) []string {
	if p.seccomp != 2 && p.engine == "" {
		return []string{"let the kernel and its security modules allow " + call}
	}
	return p.mend(remedy{
		unit:   "SystemCallFilter=" + call + ", in addition to the unit's own lines (alone it forbids all other calls)",
		docker: "--security-opt seccomp=FILE, a profile that allows " + call + ", or seccomp=unconfined",
		pod:    "securityContext: {seccompProfile: {type: Localhost, localhostProfile: FILE}}, a profile that allows " + call,
		host:   "let the seccomp filter of the process that started this one allow " + call,
	})
}

func (p place) grant(names []string) []string {
	all := "CAP_" + strings.Join(names, " CAP_")
	if p.nested {
		return []string{"outside of a user namespace: " + all}
	}
	user, run := "", ""
	if p.user != 0 { // an engine gives nothing to processes of ordinary users
		user, run = "--user 0 ", "runAsUser: 0, "
	}
	return p.mend(remedy{
		unit:   "AmbientCapabilities=" + all + ", and a CapabilityBoundingSet= that contains them",
		docker: user + "--cap-add " + strings.Join(names, " --cap-add "),
		pod:    "securityContext: {" + run + "capabilities: {add: [" + strings.Join(names, ", ") + "]}}",
		host:   fmt.Sprintf("setcap %s+ep %s", strings.ToLower(strings.ReplaceAll(all, " ", ",")), program()),
	})
}

// program returns the path of this program, for commands.
func program() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return "penstock"
}
