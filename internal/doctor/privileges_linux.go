package doctor

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// errInvalid is EINVAL, which membarrier(2) answers for a command it does not know.
const errInvalid = syscall.EINVAL

// privileges are the capabilities in force.
type privileges struct {
	Effective string   `json:"effective,omitempty"` // as /proc/self/status writes it
	Has       []string `json:"has"`                 // of those that Penstock can make something of
	Lacks     []string `json:"lacks"`
	Unbound   number   `json:"ip_unprivileged_port_start,omitzero"`
	User      int      `json:"uid"`
	Nested    bool     `json:"nested_user_namespace"`

	place
}

func lookCapabilities(p *process) facts {
	f := privileges{
		Unbound: p.parameter("net.ipv4.ip_unprivileged_port_start"), User: p.user, Nested: p.nested,
		place: p.place, Has: []string{}, Lacks: []string{},
	}
	if !f.effective.known {
		return f
	}
	f.Effective = fmt.Sprintf("%016x", uint64(f.effective.set))
	for _, c := range purposes {
		if f.effective.set.Has(c.bit) {
			f.Has = append(f.Has, c.name)
		} else {
			f.Lacks = append(f.Lacks, c.name)
		}
	}
	return f
}

func (f privileges) judge() finding {
	if !f.effective.known {
		return finding{state: Unknown, found: "capget is refused", cost: "see pipe-quota, descriptors and ports"}
	}
	found := fmt.Sprintf("uid %d: %s", f.User, list(f.Has, "none"))
	if f.everything() {
		found += " and all other capabilities: whoever takes this process over has the machine"
	}
	if len(f.Lacks) > 0 {
		found += "; without " + list(f.Lacks, "")
	}
	if f.Nested {
		found += "; in a user namespace of its own"
	}
	var costs, names []string
	for _, c := range purposes {
		if c.now && f.misses(c.bit) {
			names = append(names, c.name)
			costs = append(costs, fmt.Sprintf("no "+strings.Replace(c.use, "%s", f.lowPorts(), 1)+" (CAP_%s)", c.name))
		}
	}
	if len(names) == 0 {
		return finding{state: OK, found: found}
	}
	return finding{state: Degraded, found: found, cost: strings.Join(costs, "; "), needs: names}
}

// everything reports whether the process is root of the machine, with nothing taken from it.
func (f privileges) everything() bool {
	return f.User == 0 && !f.Nested && f.effective.set.Has(sys.CAP_SYS_ADMIN) && len(f.Lacks) == 0
}

// misses reports whether the lack of a capability has a consequence: CAP_SYS_ADMIN lifts the
// quota of pipes too, either of them in the first user namespace only, and ports may be free
// to all.
func (f privileges) misses(bit int) bool {
	switch {
	case bit == sys.CAP_SYS_RESOURCE:
		return f.Nested || !f.effective.set.Has(bit) && !f.effective.set.Has(sys.CAP_SYS_ADMIN)
	case f.effective.set.Has(bit):
		return false
	case bit == sys.CAP_NET_BIND_SERVICE:
		return !f.Unbound.known || f.Unbound.value > 0
	}
	return true
}

func (f privileges) lowPorts() string {
	if !f.Unbound.known {
		return "1024"
	}
	return fmt.Sprint(f.Unbound.value)
}

func list(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// seccomp is which sandbox there is.
type seccomp struct {
	Mode       number   `json:"mode,omitzero"` // 0: none, 1: strict, 2: a filter
	Filters    number   `json:"filters,omitzero"`
	NoNewPrivs number   `json:"no_new_privs,omitzero"`
	Refused    []string `json:"refused"` // of the calls that were tried
	Unused     []string `json:"unused"`  // the same, of calls that this release does not make

	place
}

func lookSeccomp(p *process) facts {
	return seccomp{
		Mode: p.status("Seccomp"), Filters: p.status("Seccomp_filters"), NoNewPrivs: p.status("NoNewPrivs"),
		Refused: append([]string{}, p.refused...), Unused: append([]string{}, p.unused...), place: p.place,
	}
}

func (f seccomp) judge() finding {
	switch {
	case !f.Mode.known:
		return finding{state: Unknown, found: "/proc/self/status does not say", cost: "the refusals above may come from a sandbox"}
	case f.Mode.value == 0:
		return finding{state: OK, found: "no filter"}
	case len(f.Refused) == 0 && len(f.Unused) > 0:
		return finding{state: OK, found: "a filter, which refused " + strings.Join(f.Unused, ", ") + ", which this release does not use"}
	case len(f.Refused) == 0:
		return finding{state: OK, found: "a filter, which refused nothing that was tried"}
	}
	return finding{
		state: Degraded, found: "a filter, which refused " + strings.Join(f.Refused, ", "),
		cost: "see there", mend: f.allow(strings.Join(f.Refused, " ")),
	}
}
