package doctor

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A host is where files of the kernel's are read. A file that is missing or says
// something else than expected is a figure that is not known.
type host struct{ files fs.FS }

// text returns a file without the white space around it.
func (h host) text(path string) (string, bool) {
	b, err := fs.ReadFile(h.files, path)
	return strings.TrimSpace(string(b)), err == nil
}

// number returns the number that a file consists of.
func (h host) number(path string) number {
	n := h.numbers(path)
	if len(n) != 1 {
		return number{}
	}
	return known(n[0])
}

// parameter is number for the file of a kernel parameter, such as net.core.somaxconn.
func (h host) parameter(key string) number {
	return h.number("proc/sys/" + strings.ReplaceAll(key, ".", "/"))
}

// numbers returns the numbers that a file consists of, nil if it holds other text.
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

// field returns the text after "name:" in a file of such lines, like /proc/self/status.
func (h host) field(path, name string) (string, bool) {
	text, _ := h.text(path)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// status returns a number of /proc/self/status.
func (h host) status(name string) number {
	text, _ := h.field("proc/self/status", name)
	return parse(text)
}

// contained reports whether this process runs in a container, and of which engine. Docker and
// Podman leave a file behind; Podman, LXC and systemd-nspawn set $container (systemd.exec(5),
// CONTAINER_INTERFACE); a pod of Kubernetes has the variables of its services.
func (h host) contained() (bool, engine) {
	there := func(path string) bool {
		_, err := fs.Stat(h.files, path)
		return err == nil
	}
	switch by := os.Getenv("container"); {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return true, inKubernetes
	case by == "podman" || there("run/.containerenv"):
		return true, inPodman
	case by == "docker" || there(".dockerenv"):
		return true, inDocker
	case by != "":
		return true, inOther
	}
	return false, ""
}

// unit returns the service of systemd that this process belongs to, empty if it is none: the
// last part of its cgroup's path (systemd.slice(5)).
func (h host) unit() string {
	text, _ := h.text("proc/self/cgroup")
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(part) != 3 || part[1] != "" && part[1] != "name=systemd" {
			continue
		}
		if name := path.Base(part[2]); strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

// virtual reports whether the machine is a virtual one, as far as it says so: by the flag of
// its processors (CPUID.1:ECX[31], which x86 keeps for it), Xen's directory, or the name that
// its firmware gives it.
func (h host) virtual() bool {
	if flags, _ := h.field("proc/cpuinfo", "flags\t\t"); slices.Contains(strings.Fields(flags), "hypervisor") {
		return true
	}
	if _, ok := h.text("sys/hypervisor/type"); ok {
		return true
	}
	vendor, _ := h.text("sys/class/dmi/id/sys_vendor")
	product, _ := h.text("sys/class/dmi/id/product_name")
	return slices.ContainsFunc([]string{"QEMU", "KVM", "VMware", "VirtualBox", "Xen", "Virtual Machine", "Google Compute Engine"}, func(name string) bool {
		return strings.Contains(vendor, name) || strings.Contains(product, name)
	})
}

// namespaced reports whether this process runs in another user namespace than the first, which
// /proc/self/ns/user leads to (PROC_USER_INIT_INO, include/linux/proc_ns.h).
func (h host) namespaced() bool {
	namespace, err := fs.ReadLink(h.files, "proc/self/ns/user")
	return err == nil && namespace != "user:[4026531837]"
}

// emptyFS is a file system without files, for a process that cannot open any.
type emptyFS struct{}

// Open fails.
func (emptyFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
