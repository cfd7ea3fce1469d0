package doctor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"syscall"
)

// reasonsOf writes counts by reason, after a colon; none: nothing.
func reasonsOf(counts map[string]int64) string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, reason+" "+exact(counts[reason]))
	}
	if len(list) == 0 {
		return ""
	}
	return ": " + strings.Join(list, ", ")
}

// localFaults are connections that failed for lack of something here.
type localFaults struct {
	Causes map[string]int64 `json:"causes"`
}

func lookLocalFaults(_ *process, r *Running) facts {
	causes := r.LocalFaults
	if causes == nil {
		causes = map[string]int64{}
	}
	return localFaults{causes}
}

// remedies are where the remedy of a cause is.
var remedies = map[syscall.Errno]string{
	syscall.EMFILE: "see descriptors", syscall.ENFILE: "sysctl -w fs.file-max: more files of the whole machine", syscall.ENOBUFS: "see tcp-memory", syscall.ENOMEM: "see memory and tcp-memory",
	syscall.EADDRNOTAVAIL: "see ports; and source_address of the upstream has to be an address of this machine",
	syscall.EACCES:        "let the process's user write to the unix sockets of the endpoints", syscall.EPERM: "a rule of this machine's firewall that lets it connect to the endpoints",
}

func (f localFaults) judge() finding {
	sum := int64(0)
	var mend []string
	for _, errno := range slices.Sorted(maps.Keys(remedies)) {
		if n := f.Causes[errno.Error()]; n > 0 {
			sum += n
			mend = append(mend, errno.Error()+": "+remedies[errno])
		}
	}
	if sum == 0 {
		return finding{state: OK, found: "no connection to an endpoint has failed for lack of something here"}
	}
	return finding{
		state: Degraded, found: fmt.Sprintf("%s to endpoints failed for lack of something here%s", several(sum, "connection", "connections"), reasonsOf(f.Causes)),
		cost: "these clients were served later, by another endpoint, or not at all", mend: mend,
	}
}

// queues are the accept queues.
type queues struct {
	Overflows number  `json:"overflows,omitzero"`
	Fullest   int64   `json:"fullest_percent"`
	Longest   int64   `json:"shortest_limit"`
	Somaxconn number  `json:"somaxconn,omitzero"`
	Dropped   []named `json:"dropped"` // by address, those with any

	place
}

// named is a number of an address.
type named struct {
	Address string `json:"address"`
	Count   int64  `json:"count"`
}

func lookQueues(p *process, r *Running) facts {
	f := queues{Somaxconn: p.parameter("net.core.somaxconn"), Dropped: []named{}, place: p.place}
	for _, q := range r.Queues {
		if q.Known {
			f.Fullest = max(f.Fullest, fraction(q.Length, q.Most))
			if f.Longest == 0 || q.Most < f.Longest {
				f.Longest = q.Most
			}
		}
		if q.DroppedKnown {
			f.Overflows = known(f.Overflows.value + q.Dropped)
		}
		if q.Dropped > 0 {
			f.Dropped = append(f.Dropped, named{q.Address, q.Dropped})
		}
	}
	return f
}

func (f queues) judge() finding {
	found := fmt.Sprintf("the fullest is at %d %%; overflows: %s", f.Fullest, f.Overflows)
	for _, d := range f.Dropped {
		found += fmt.Sprintf(", %s of them at %s", exact(d.Count), d.Address)
	}
	if f.Overflows.value == 0 && f.Fullest < nearlyAll {
		return finding{state: OK, found: found}
	}
	mend := []string{"more loops that accept, or the cause of a loop's lag: see loops"}
	if f.Longest < enoughBacklog {
		mend = append(f.netSysctl(setting{"net.core.somaxconn", fmt.Sprint(enoughBacklog)}), mend...)
	}
	return finding{state: Degraded, found: found, cost: "a client that finds its queue full tries again after 1 s or more", mend: mend}
}

// usedPorts is the local ports for connections to endpoints.
type usedPorts struct {
	Usable   number `json:"usable,omitzero"`
	TimeWait number `json:"time_wait,omitzero"` // of the whole network namespace
	InUse    number `json:"in_use,omitzero"`    // likewise
	Faults   int64  `json:"connects_without_port"`

	bounds ports
}

func lookUsedPorts(p *process, r *Running) facts {
	f := usedPorts{TimeWait: p.sockstat("TCP", "tw"), InUse: p.sockstat("TCP", "inuse"), Faults: r.LocalFaults[syscall.EADDRNOTAVAIL.Error()], bounds: ports{place: p.place}}
	if list := p.numbers("proc/sys/net/ipv4/ip_local_port_range"); len(list) == 2 && list[0] <= list[1] {
		reserved, _ := p.text("proc/sys/net/ipv4/ip_local_reserved_ports")
		f.Usable = known(list[1] - list[0] + 1 - within(reserved, list[0], list[1]))
	}
	return f
}

func (f usedPorts) judge() finding {
	if !f.Usable.known {
		return finding{state: Unknown, found: "ip_local_port_range cannot be read", cost: "sessions to one endpoint end where its ports end"}
	}
	v := finding{state: OK, found: fmt.Sprintf("%s for each endpoint; %s sockets in use and %s in TIME_WAIT, to all", several(f.Usable.value, "port", "ports"), f.InUse, f.TimeWait)}
	if f.Faults == 0 {
		return v
	}
	v.state, v.cost = Degraded, fmt.Sprintf("%s to endpoints failed for want of a port or of the source address", several(f.Faults, "connection", "connections"))
	v.mend = append(f.bounds.netSysctl(setting{"net.ipv4.ip_local_port_range", fmt.Sprintf("1024 %d", math.MaxUint16)}, setting{"net.ipv4.tcp_tw_reuse", "1"}), "more endpoints, or more source addresses")
	return v
}

// conntrack is the kernel's table of connections.
type conntrack struct {
	Count number `json:"nf_conntrack_count,omitzero"`
	Most  number `json:"nf_conntrack_max,omitzero"`

	place
}

// lookConntrack returns nothing where the kernel follows no connections.
func lookConntrack(p *process, _ *Running) facts {
	f := conntrack{Count: p.parameter("net.netfilter.nf_conntrack_count"), Most: p.parameter("net.netfilter.nf_conntrack_max"), place: p.place}
	if !f.Count.known || !f.Most.known {
		return nil
	}
	return f
}

func (f conntrack) judge() finding {
	found := fmt.Sprintf("%s of %s connections followed", f.Count, f.Most)
	if fraction(f.Count.value, f.Most.value) < nearlyAll {
		return finding{state: OK, found: found}
	}
	return finding{
		state: Degraded, found: found, cost: "packets of new connections are dropped when the table is full",
		mend: append(f.netSysctl(setting{"net.netfilter.nf_conntrack_max", fmt.Sprint(4 * f.Most.value)}), "nft: a rule with notrack for the ports of the listeners and endpoints"),
	}
}

// fastOpen is whether listeners may take data in the first packet.
type fastOpen struct {
	Setting number `json:"tcp_fastopen,omitzero"`

	place
}

// lookFastOpen returns nothing where no listener asks for it.
func lookFastOpen(p *process, r *Running) facts {
	if !r.FastOpen {
		return nil
	}
	return fastOpen{p.parameter("net.ipv4.tcp_fastopen"), p.place}
}

func (f fastOpen) judge() finding {
	const server = 2 // Documentation/networking/ip-sysctl.rst
	found := fmt.Sprintf("listeners ask for TCP_FASTOPEN; tcp_fastopen is %s", f.Setting)
	switch {
	case !f.Setting.known:
		return finding{state: Unknown, found: found, cost: "without it clients wait for a round trip more"}
	case f.Setting.value&server != 0:
		return finding{state: OK, found: found}
	}
	return finding{state: Degraded, found: found, cost: "clients wait for a round trip more", mend: f.netSysctl(setting{"net.ipv4.tcp_fastopen", fmt.Sprint(f.Setting.value | server)})}
}
