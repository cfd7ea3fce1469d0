package doctor

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/topology"
)

// cpus is how many processors there are to use.
type cpus struct {
	Allowed    int    `json:"allowed"` // by the affinity mask
	GOMAXPROCS int    `json:"gomaxprocs"`
	Quota      number `json:"cgroup_quota_us,omitzero"`
	Period     number `json:"cgroup_period_us,omitzero"`

	place
}

func lookCPUs(p *process) facts {
	f := cpus{Allowed: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0), place: p.place}
	f.Quota, f.Period = p.cpuLimit()
	return f
}

func (f cpus) judge() finding {
	found := fmt.Sprintf("%d, all used (GOMAXPROCS %d)", f.Allowed, f.GOMAXPROCS)
	if f.GOMAXPROCS < f.Allowed {
		found = fmt.Sprintf("%d of %d used (GOMAXPROCS)", f.GOMAXPROCS, f.Allowed)
	}
	limit := float64(f.Allowed)
	if f.Quota.known {
		limit = float64(f.Quota.value) / float64(f.Period.value)
		found += fmt.Sprintf("; the cgroup allows %s", strconv.FormatFloat(limit, 'f', -1, 64))
	}
	switch {
	case f.Quota.known && float64(f.GOMAXPROCS) > limit:
		return f.throttled(found, limit)
	case f.GOMAXPROCS < min(f.Allowed, int(limit)):
		return finding{
			state: Degraded, found: found, cost: fmt.Sprintf("CPUs that lie idle: %d", min(f.Allowed, int(limit))-f.GOMAXPROCS),
			mend: []string{"unset GOMAXPROCS"},
		}
	}
	return finding{state: OK, found: found}
}

// throttled is the verdict on more threads than the quota has time for.
func (f cpus) throttled(found string, limit float64) finding {
	spent := float64(f.Quota.value) / float64(f.GOMAXPROCS)
	stall := (float64(f.Period.value) - spent) / 1000
	mend := []string{fmt.Sprintf("GOMAXPROCS=%d", max(int(limit), 1))}
	if f.container {
		mend = append(mend, f.started(fmt.Sprintf("--cpus=%d", f.GOMAXPROCS), fmt.Sprintf("resources: {limits: {cpu: \"%d\"}}", f.GOMAXPROCS)))
	}
	mend = append(mend, f.service(fmt.Sprintf("CPUQuota=%d%%", 100*f.GOMAXPROCS))...)
	return finding{
		state: Degraded, found: found, mend: mend,
		cost: fmt.Sprintf("when all are busy every session stands still for %.0f ms of each %d ms", stall, f.Period.value/1000),
	}
}

// sessionBytes is about the program's own memory for an idle session, in bytes. The kernel's,
// for its sockets, is not in it.
const sessionBytes = 10_000

// memory is how much of it sessions may take.
type memory struct {
	Total    number `json:"total_bytes,omitzero"`
	Limit    number `json:"cgroup_limit_bytes,omitzero"`
	Sessions int    `json:"sessions"`   // that the descriptors allow
	Pipes    int64  `json:"pipe_bytes"` // if every pipe of the budget is full

	place
}

func lookMemory(p *process) facts {
	f := memory{Limit: p.memoryLimit(), Pipes: p.lent * int64(os.Getpagesize()), place: p.place}
	if text, ok := p.field("proc/meminfo", "MemTotal"); ok {
		if n := parse(strings.TrimSuffix(text, " kB")); n.known {
			f.Total = known(n.value << 10)
		}
	}
	if p.descriptors > 0 {
		f.Sessions = p.Sessions(p.descriptors)
	}
	return f
}

func (f memory) judge() finding {
	bytes, found := f.Limit, fmt.Sprintf("the cgroup allows %s", size(f.Limit.value))
	if !f.Limit.known || f.Total.known && f.Total.value < f.Limit.value {
		bytes, found = f.Total, fmt.Sprintf("%s, no limit by the cgroup", size(f.Total.value))
	}
	if !bytes.known {
		return finding{state: Unknown, found: "neither meminfo nor a cgroup's limit can be read", cost: "about 10 kB for each idle session, and the kernel's for its sockets"}
	}
	needed := int64(f.Sessions)*sessionBytes + f.Pipes
	if bytes.value >= needed {
		return finding{state: OK, found: found}
	}
	fit := max(bytes.value-f.Pipes, bytes.value/4) / sessionBytes
	mend := []string{fmt.Sprintf("penstock proxy --max-connections %d", fit)}
	switch limited := f.Limit.known && bytes == f.Limit; {
	case limited && f.container:
		mend = append(mend, f.started("--memory="+mebibytes(needed), "resources: {limits: {memory: "+mebibytes(needed)+"i}}"))
	case limited:
		mend = append(mend, f.service("MemoryMax="+mebibytes(needed))...)
	case f.virtual:
		mend = append(mend, "a virtual machine with "+mebibytes(needed)+" or more")
	}
	return finding{
		state: Degraded, found: found, mend: mend,
		cost: fmt.Sprintf("the %s sessions that the descriptors allow take about %s, their pipes up to %s, and the kernel's sockets come on top: the kernel would end the process",
			exact(f.Sessions), size(int64(f.Sessions)*sessionBytes), size(f.Pipes)),
	}
}

// mebibytes is a number of bytes as command lines take it.
func mebibytes(n int64) string { return fmt.Sprintf("%dM", n>>20+1) }

// numa is how the memory is divided.
type numa struct {
	Nodes    number  `json:"nodes,omitzero"`
	Distance []int64 `json:"distance_of_node0,omitempty"` // to each node; 10 is local

	node int          // the first that has CPUs
	cpus topology.Set // on it, of those that this process may use
	place
}

func lookNUMA(p *process) facts {
	f := numa{place: p.place}
	if online, ok := p.text("sys/devices/system/node/online"); ok {
		f.Nodes = known(within(online, 0, 1<<20))
	}
	f.Distance = p.numbers("sys/devices/system/node/node0/distance")
	f.node, f.cpus = p.near()
	return f
}

// near returns a node, and the CPUs on it that this process may use; none if that is not known.
func (h host) near() (node int, cpus topology.Set) {
	text, _ := h.text("sys/devices/system/node/online")
	nodes, err := topology.ParseSet(text)
	if err != nil {
		return 0, nil
	}
	status, _ := h.field("proc/self/status", "Cpus_allowed_list")
	allowed, err := topology.ParseSet(status)
	if err != nil {
		return 0, nil
	}
	for _, n := range nodes {
		list, _ := h.text(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", n))
		if all, err := topology.ParseSet(list); err == nil && len(all.And(allowed)) > 0 {
			return n, all.And(allowed)
		}
	}
	return 0, nil
}

func (f numa) judge() finding {
	switch {
	case !f.Nodes.known:
		return finding{state: Unknown, found: "the nodes cannot be read"}
	case f.Nodes.value <= 1:
		return finding{state: OK, found: "one node"}
	}
	farthest := int64(10)
	for _, d := range f.Distance {
		farthest = max(farthest, d)
	}
	return finding{
		state: Degraded, found: fmt.Sprintf("%s nodes, and Penstock's threads may run on all of them", f.Nodes),
		cost: fmt.Sprintf("memory on another node is up to %.1f times as far (the firmware's figure)", float64(farthest)/10),
		mend: append(f.keys(), "numactl --cpunodebind=0 --membind=0 penstock proxy ...", "a Penstock on each node, all listening on the same port once they can"),
	}
}

// keys are those of a configuration that keep the loops and their memory on one node.
func (f numa) keys() []string {
	if len(f.cpus) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("in the file of penstock run: limits: {loops: {affinity: %q}, memory: {numa: %d}}", f.cpus, f.node)}
}
