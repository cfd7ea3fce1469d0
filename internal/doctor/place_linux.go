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
	user      int

	effective, bound capabilities // in force, and what files can give
	noNewPrivs       bool         // files give none
}

// filtered tells whether a seccomp filter may have refused a call.
func (p place) filtered() bool { return p.seccomp.value == 2 }

// allow says how to let this process make a system call that was refused.
func (p place) allow(call string) []string {
	var mend []string
	if p.filtered() || !p.seccomp.known {
		if !p.container {
			mend = append(mend, "systemd: SystemCallFilter="+call+", added to the unit's own (alone it forbids all others)")
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

// A setting is a kernel parameter and a value for it.
type setting struct{ key, value string }

// String is the setting as sysctl(8) takes it.
func (s setting) String() string {
	if strings.ContainsAny(s.value, " \t") {
		return fmt.Sprintf("%s=%q", s.key, s.value)
	}
	return s.key + "=" + s.value
}

// sysctl says how to set kernel parameters of the host, all of which are needed.
func (p place) sysctl(settings ...setting) []string {
	all := words("", settings)
	if p.container {
		return []string{"on the host: sysctl -w" + all}
	}
	return []string{"sysctl -w" + all, `for good: printf '%s\n'` + all + " >> /etc/sysctl.d/60-penstock.conf && sysctl --system"}
}

// netSysctl says how to set kernel parameters that each network namespace has its
// own of.
func (p place) netSysctl(settings ...setting) []string {
	if !p.container {
		return p.sysctl(settings...)
	}
	return []string{"docker run" + words(" --sysctl", settings)}
}

// words are settings, each after a space, and before that the option, if any.
func words(option string, settings []setting) string {
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s %s", option, s)
	}
	return b.String()
}

// letRead says how to let this process read a file that is hidden from it.
func (p place) letRead(path string) string {
	if p.container {
		return "let Penstock read " + path + ": docker run with nothing mounted over /proc"
	}
	return "let Penstock read " + path + ": in a chroot mount -t proc proc /proc; systemd: ProcSubset=all"
}
