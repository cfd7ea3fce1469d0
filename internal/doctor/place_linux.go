package doctor

import (
	"fmt"
	"strings"
)

// place is where this process runs, on which the words of what mends it depend.
type place struct {
	container bool
	nested    bool   // in a user namespace of its own, whose capabilities lift no limit of the host's
	seccomp   number // mode: 2 is a filter
}

// filtered tells whether a seccomp filter may have refused a call.
func (p place) filtered() bool { return p.seccomp.value == 2 }

// allow says how to let this process make a system call that was refused.
func (p place) allow(call string) []string {
	var mend []string
	if p.filtered() || !p.seccomp.known {
		if !p.container {
			mend = append(mend, "systemd: SystemCallFilter="+call)
		}
		mend = append(mend, "docker run --security-opt seccomp=FILE, a profile that allows "+call+", or seccomp=unconfined")
	}
	if option := configOf[call]; option != "" && !p.filtered() {
		mend = append(mend, "a kernel built with "+option+"=y")
	}
	if mend == nil {
		mend = []string{"a kernel, and security modules, that allow " + call}
	}
	return mend
}

// configOf names the option of the kernel's build that a call needs, for those that
// kernels are built without.
var configOf = map[string]string{
	"io_uring_setup": "CONFIG_IO_URING", "bpf": "CONFIG_BPF_SYSCALL", "membarrier": "CONFIG_MEMBARRIER",
}

// sysctl says how to set a kernel parameter of the host.
func (p place) sysctl(key, value string) []string {
	command := fmt.Sprintf("sysctl -w %s=%s", key, quoted(value))
	if p.container {
		return []string{"on the host: " + command}
	}
	return []string{command, fmt.Sprintf("for good: echo %s > /etc/sysctl.d/60-penstock.conf", quoted(key+" = "+value))}
}

// netSysctl says how to set a kernel parameter that each network namespace has its
// own of.
func (p place) netSysctl(key, value string) []string {
	if !p.container {
		return p.sysctl(key, value)
	}
	return []string{fmt.Sprintf("docker run --sysctl %s=%s", key, quoted(value))}
}

func quoted(s string) string {
	for _, r := range s {
		if r == ' ' || r == '\t' {
			return `"` + s + `"`
		}
	}
	return s
}

// grant says how to give a process capabilities.
func (p place) grant(names ...string) []string {
	if p.nested {
		return []string{"outside of a user namespace: CAP_" + strings.Join(names, " CAP_")}
	}
	if p.container {
		return []string{"docker run --cap-add " + strings.Join(names, " --cap-add ")}
	}
	full := make([]string, len(names))
	for i, n := range names {
		full[i] = "CAP_" + n
	}
	return []string{
		fmt.Sprintf("setcap %s+ep %s", strings.ToLower(strings.Join(full, ",")), program()),
		"systemd: AmbientCapabilities=" + strings.Join(full, " "),
	}
}
