package doctor

import (
	"fmt"
	"strings"
	"syscall"
)

// usedMemory is the process's memory, and the limit of its cgroup.
type usedMemory struct {
	Resident number `json:"resident_bytes,omitzero"`
	Limit    number `json:"cgroup_limit_bytes,omitzero"`
	Used     number `json:"cgroup_used_bytes,omitzero"`
	Reached  number `json:"cgroup_limit_reached,omitzero"` // times
	Killed   number `json:"cgroup_oom_kills,omitzero"`

	place
}

func lookUsedMemory(p *process, _ *Running) facts {
	f := usedMemory{Limit: p.memoryLimit(), place: p.place}
	if text, ok := p.field("proc/self/status", "VmRSS"); ok {
		if n := parse(strings.TrimSuffix(text, " kB")); n.known {
			f.Resident = known(n.value << 10)
		}
	}
	for _, dir := range p.cgroups("memory") {
		if limit := p.number(dir + "/memory.max"); limit.known && limit == f.Limit {
			f.Used = p.number(dir + "/memory.current")
			f.Reached, f.Killed = p.event(dir+"/memory.events", "max"), p.event(dir+"/memory.events", "oom_kill")
		} else if limit := p.number(dir + "/memory.limit_in_bytes"); limit.known && limit == f.Limit {
			f.Used, f.Reached = p.number(dir+"/memory.usage_in_bytes"), p.number(dir+"/memory.failcnt")
			f.Killed = p.event(dir+"/memory.oom_control", "oom_kill")
		}
	}
	return f
}

// event returns the number after a name, in a file of such lines.
func (h host) event(path, name string) number {
	text, _ := h.text(path)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return parse(value)
		}
	}
	return number{}
}

func (f usedMemory) judge() finding {
	switch {
	case !f.Resident.known:
		return finding{state: Unknown, found: "/proc/self/status cannot be read", cost: "the kernel ends a process that is over the limit of its cgroup"}
	case !f.Limit.known:
		return finding{state: OK, found: fmt.Sprintf("%s resident, no limit by the cgroup", size(f.Resident.value))}
	}
	v := finding{state: OK, found: fmt.Sprintf("%s resident; the cgroup has used %s of %s", size(f.Resident.value), size(f.Used.value), size(f.Limit.value))}
	switch {
	case f.Killed.value > 0:
		v.cost = fmt.Sprintf("the kernel has ended %s of the cgroup for want of memory", several(f.Killed.value, "process", "processes"))
	case fraction(f.Used.value, f.Limit.value) >= nearlyAll && f.Reached.value > 0:
		v.cost = fmt.Sprintf("the limit was reached %s: memory is reclaimed while sessions wait, and the kernel may end the process", several(f.Reached.value, "time", "times"))
	case f.Used.known && fraction(f.Used.value, f.Limit.value) >= 95:
		v.cost = "the kernel ends the process when it cannot reclaim any more"
	default:
		return v
	}
	v.state, v.mend = Degraded, f.more(2*f.Limit.value)
	return v
}

// more says how to allow the cgroup so much.
func (f usedMemory) more(bytes int64) []string {
	if f.container {
		return []string{f.started("--memory="+mebibytes(bytes), "resources: {limits: {memory: "+mebibytes(bytes)+"i}}")}
	}
	if mend := f.service("MemoryMax=" + mebibytes(bytes)); mend != nil {
		return mend
	}
	return []string{"a larger memory.max of the cgroup"}
}

// usedHugePages is whether the memory of the loops has huge pages.
type usedHugePages struct {
	Bytes   int64  `json:"bytes"`
	Huge    int64  `json:"huge_bytes"`
	Setting string `json:"transparent_hugepage,omitempty"`
	Allowed number `json:"thp_enabled,omitzero"`

	cause string
	place
}

func lookUsedHugePages(p *process, r *Running) facts {
	f := usedHugePages{Bytes: r.ArenaSize, Huge: r.ArenaHuge, cause: r.ArenaFallback, place: p.place}
	f.Setting, f.Allowed = p.transparent()
	return f
}

func (f usedHugePages) judge() finding {
	if f.Huge > 0 || f.Bytes == 0 {
		return finding{state: OK, found: fmt.Sprintf("%s of %s of the loops' memory", size(f.Huge), size(f.Bytes))}
	}
	found := "none for the loops' memory, " + size(f.Bytes)
	if f.cause != "" {
		found += ": " + strings.ReplaceAll(f.cause, "\n", "; ")
	}
	return finding{
		state: Degraded, found: found, cost: fmt.Sprintf("%s pages to the CPU instead of %s", exact(f.Bytes>>12), exact(max(f.Bytes>>21, 1))),
		mend: f.moreHugePages(f.Setting, f.Allowed),
	}
}

// usedArena is whether the memory of the loops was enough.
type usedArena struct {
	Bytes   int64 `json:"bytes"`
	Refused int64 `json:"refused"`
}

func lookUsedArena(_ *process, r *Running) facts { return usedArena{r.ArenaSize, r.ArenaRefused} }

func (f usedArena) judge() finding {
	found := size(f.Bytes) + " for bytes that slow destinations have not taken"
	if f.Refused == 0 {
		return finding{state: OK, found: found}
	}
	return finding{
		state: Degraded, found: found, cost: fmt.Sprintf("%s it had no room: the bytes are kept on the heap, for the collector to look after", several(f.Refused, "time", "times")),
		mend: []string{"in the file of penstock run: more of limits.loops.count, each of which brings memory"},
	}
}

// tcpMemory is the memory of all TCP sockets of the machine.
type tcpMemory struct {
	Pages    number `json:"tcp_mem_pages,omitzero"`
	Pressure number `json:"tcp_mem_pressure,omitzero"`
	Most     number `json:"tcp_mem_most,omitzero"`
	Times    number `json:"tcp_memory_pressures,omitzero"` // since the machine has started
	Faults   int64  `json:"connects_without_memory"`

	place
}

func lookTCPMemory(p *process, r *Running) facts {
	f := tcpMemory{Times: p.tcpExt("TCPMemoryPressures"), Faults: r.LocalFaults[syscall.ENOBUFS.Error()] + r.LocalFaults[syscall.ENOMEM.Error()], place: p.place}
	if limits := p.numbers("proc/sys/net/ipv4/tcp_mem"); len(limits) == 3 {
		f.Pressure, f.Most = known(limits[1]), known(limits[2])
	}
	f.Pages = p.sockstat("TCP", "mem")
	return f
}

// sockstat returns a number of /proc/net/sockstat, such as that after mem in the line of TCP.
func (h host) sockstat(protocol, name string) number {
	text, _ := h.field("proc/self/net/sockstat", protocol)
	words := strings.Fields(text)
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] == name {
			return parse(words[i+1])
		}
	}
	return number{}
}

// tcpExt returns a counter of /proc/net/netstat, which has a line of names before the line of numbers.
func (h host) tcpExt(name string) number {
	text, _ := h.text("proc/self/net/netstat")
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, n := range names {
			if n == name && i < len(words) {
				return parse(words[i])
			}
		}
	}
	return number{}
}

func (f tcpMemory) judge() finding {
	if !f.Pages.known || !f.Pressure.known {
		return finding{state: Unknown, found: "sockstat or tcp_mem cannot be read", cost: "beyond tcp_mem the kernel shrinks windows, and drops"}
	}
	v := finding{state: OK, found: fmt.Sprintf("%s of %s pages until pressure (%s at most)", f.Pages, f.Pressure, f.Most)}
	switch {
	case f.Faults > 0:
		v.cost = fmt.Sprintf("%s to endpoints failed for want of the kernel's memory", several(f.Faults, "connection", "connections"))
	case fraction(f.Pages.value, f.Pressure.value) >= nearlyAll:
		v.cost = "under pressure the kernel shrinks the buffers of all sockets, and drops bytes that came"
	default:
		return v
	}
	v.state = Degraded
	v.mend = f.sysctl(setting{"net.ipv4.tcp_mem", fmt.Sprintf("%d %d %d", f.Pressure.value, 2*f.Pressure.value, 2*f.Most.value)})
	return v
}
