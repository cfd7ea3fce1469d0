package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// A purpose is a capability that Penstock can make something of.
type purpose struct {
	bit  int
	name string
	now  bool // in this release
	use  string
}

var purposes = []purpose{
	{sys.CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE", true, "listening on ports below %s"},
	{sys.CAP_SYS_RESOURCE, "SYS_RESOURCE", true, "pipes beyond the user's quota, descriptors beyond the hard limit"},
	{sys.CAP_SYS_ADMIN, "SYS_ADMIN", false, "network namespaces of penstock-bench"},
	{sys.CAP_SYS_PTRACE, "SYS_PTRACE", false, "counting system calls in penstock-bench"},
	{sys.CAP_NET_ADMIN, "NET_ADMIN", false, "maps of sockets, transparent proxying"},
	{sys.CAP_NET_RAW, "NET_RAW", false, "binding to addresses of others"},
	{sys.CAP_BPF, "BPF", false, "BPF programs"},
}

// capabilities is a set of them that may not be known.
type capabilities struct {
	set   sys.CapSet
	known bool
}

// parseCapabilities reads a set as /proc/self/status writes it.
func parseCapabilities(text string) capabilities {
	set, err := strconv.ParseUint(text, 16, 64)
	return capabilities{sys.CapSet(set), err == nil}
}

// without returns those of the names that are known not to be in the set.
func (c capabilities) without(names []string) (lacking []string) {
	for _, p := range purposes {
		if c.known && !c.set.Has(p.bit) && slices.Contains(names, p.name) {
			lacking = append(lacking, p.name)
		}
	}
	return lacking
}

// grantAll adds to the mends of the checks that need capabilities how to have them. It is said
// once, in the last of these checks, and for all of them: setcap(8) and docker run take away
// the others.
func (p *process) grantAll(checks []Check) {
	needed := func(c Check) bool { return len(c.needs) > 0 }
	last := -1
	for i := range checks {
		if needed(checks[i]) {
			last = i
		}
	}
	for i := range checks {
		switch c := &checks[i]; {
		case i == last:
			c.Mend = append(c.Mend, p.grant(p.union(checks))...)
		case needed(*c):
			c.Mend = append(c.Mend, capNames(c.needs)+": see "+checks[last].Name)
		}
	}
}

// union is the capabilities that the checks need, and those that an ordinary user's process
// has already.
func (p *process) union(checks []Check) (names []string) {
	for _, c := range purposes {
		needed := func(check Check) bool { return slices.Contains(check.needs, c.name) }
		if p.user != 0 && p.effective.set.Has(c.bit) || slices.ContainsFunc(checks, needed) {
			names = append(names, c.name)
		}
	}
	return names
}

// grant says how to give a process capabilities.
func (p place) grant(names []string) []string {
	switch {
	case p.nested:
		return []string{"outside of a user namespace: " + capNames(names)}
	case p.container:
		return p.grantContainer(names)
	}
	systemd := "AmbientCapabilities=" + capNames(names)
	switch beyond := p.bound.without(names); {
	case len(beyond) > 0:
		systemd += ", and nothing that takes " + capNames(beyond) +
			" out of CapabilityBoundingSet=, as was done here: after setcap the program would not even start"
	case p.noNewPrivs || !p.bound.known:
		systemd += " (setcap does nothing under no_new_privs, and stops a program whose bounding set lacks one)"
	case p.unit == "":
		return append([]string{setcap(names)}, p.service(systemd)...)
	}
	if mend := p.service(systemd); mend != nil {
		return mend
	}
	return []string{"as root, or " + setcap(names) + " where no_new_privs and the bounding set let it be of use"}
}

// grantContainer is grant for a container, the engine of which keeps capabilities that were
// not added out of the bounding set, and gives ordinary users' processes nothing.
func (p place) grantContainer(names []string) []string {
	add := "--cap-add " + strings.Join(names, " --cap-add ")
	list := "capabilities: {add: [" + strings.Join(names, ", ") + "]}"
	start := p.started(add, "securityContext: {"+list+"}")
	if p.user == 0 {
		return []string{start}
	}
	mend := []string{p.started("--user 0 "+add, "securityContext: {runAsUser: 0, "+list+"}")}
	if !p.noNewPrivs {
		mend = append(mend, "in the image: "+setcap(names)+", and always "+start)
	}
	return mend
}

func setcap(names []string) string {
	return fmt.Sprintf("setcap %s+ep %s", strings.ToLower(strings.ReplaceAll(capNames(names), " ", ",")), program())
}

func capNames(names []string) string { return "CAP_" + strings.Join(names, " CAP_") }
