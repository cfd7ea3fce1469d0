package doctor

import (
	"fmt"
	"strings"
)

// place is where this process runs; the words of a remedy depend on it.
type place struct {
	container bool
	engine    engine // of the container
	unit      string // of systemd that this process is; empty: none
	init      string // program of process 1 outside of a container; empty: unknown
	virtual   bool   // the machine is one
	nested    bool   // in a user namespace of its own; its capabilities lift no limit of the host's
	seccomp   number // mode: 2 is a filter
	user      int

	effective, bound capabilities // in force, and those that files can give
	noNewPrivs       bool         // files give none
}

// An engine runs a container.
type engine string

const (
	inDocker     engine = "Docker"
	inPodman     engine = "Podman"
	inKubernetes engine = "Kubernetes"
	inOther      engine = "another engine" // LXC, systemd-nspawn
)

// String says where that is.
func (p place) String() string {
	where := "on a machine"
	switch {
	case p.container && p.engine != "":
		where = "in a container of " + string(p.engine)
	case p.container:
		where = "in a container"
	case p.unit != "":
		where = "in the systemd unit " + p.unit
	}
	if p.virtual && !p.container && p.unit == "" {
		return "on a virtual machine"
	}
	if p.virtual {
		where += ", on a virtual machine"
	}
	return where
}

// started says how to start the container: with options of docker run's, or the part of a
// pod's manifest in their place.
func (p place) started(options, manifest string) string {
	switch p.engine {
	case inKubernetes:
		return "in the pod's manifest: " + manifest
	case inPodman:
		return "podman run " + options
	case inOther:
		return "where the container is configured, as by docker run " + options
	}
	return "docker run " + options
}

// onHost is a command that a container cannot give.
func (p place) onHost(command string) string {
	switch {
	case p.container && p.engine == inKubernetes:
		return "on the node: " + command
	case p.container:
		return "on the host: " + command
	}
	return command
}

// service says how to set something for a service: for the unit that this process is, or for
// one that it may become. It says nothing where there is no systemd.
func (p place) service(settings string) []string {
	switch {
	case p.container, p.unit == "" && p.init != "" && p.init != "systemd":
		return nil
	case p.unit != "":
		return []string{"systemctl edit " + p.unit + ": " + settings}
	}
	return []string{"systemd: " + settings}
}

// filtered reports whether a seccomp filter may have refused a call.
func (p place) filtered() bool { return p.seccomp.value == 2 }

// allow says how to let this process make a system call that was refused.
func (p place) allow(call string) []string {
	var mend []string
	if p.filtered() || !p.seccomp.known {
		mend = p.service("SystemCallFilter=" + call + ", added to the unit's own (alone it forbids all others)")
	}
	if p.container && (p.filtered() || !p.seccomp.known) || !p.seccomp.known && p.unit == "" {
		mend = append(mend, p.started("--security-opt seccomp=FILE, a profile that allows "+call+", or seccomp=unconfined",
			"securityContext: {seccompProfile: {type: Localhost, localhostProfile: FILE}}, a profile that allows "+call+", or type: Unconfined"))
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
var configOf = map[string]string{"membarrier": "CONFIG_MEMBARRIER"}

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
		return []string{p.onHost("sysctl -w" + all)}
	}
	return []string{"sysctl -w" + all, `for good: printf '%s\n'` + all + " >> /etc/sysctl.d/60-penstock.conf && sysctl --system"}
}

// netSysctl says how to set kernel parameters that each network namespace has its
// own of.
func (p place) netSysctl(settings ...setting) []string {
	if !p.container {
		return p.sysctl(settings...)
	}
	var list []string
	for _, s := range settings {
		list = append(list, fmt.Sprintf("{name: %s, value: %q}", s.key, s.value))
	}
	return []string{p.started(strings.TrimSpace(words(" --sysctl", settings)),
		"securityContext: {sysctls: ["+strings.Join(list, ", ")+"]}, which the kubelet has to allow (--allowed-unsafe-sysctls)")}
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
	let := "let Penstock read " + path + ": "
	switch {
	case p.container:
		return let + p.started("with nothing mounted over /proc", "securityContext: {procMount: Unmasked}")
	case p.unit != "":
		return let + p.service("ProcSubset=all")[0]
	}
	return let + strings.Join(append([]string{"in a chroot mount -t proc proc /proc"}, p.service("ProcSubset=all")...), "; ")
}
