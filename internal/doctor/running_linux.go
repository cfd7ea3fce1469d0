package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Running has the counters and limits of a running Penstock, for [ExamineProcess].
type Running struct {
	Sessions, MaxSessions int64
	Affordable            int64 // sessions for which the descriptors sufficed at the start
	AcceptPauses          int64 // times that accepting failed

	Spliced, Copied int64            // bytes
	Fallbacks       map[string]int64 // departures from splicing, by reason
	LocalFaults     map[string]int64 // connections that failed because of this machine, by the error's text

	Pipes RunningPipes
	Loops []RunningLoop

	ArenaSize, ArenaHuge int64  // bytes of the loops' memory, and how many of them are in huge pages
	ArenaFallback        string // why there are no huge pages; may be empty
	ArenaRefused         int64  // residues for which there was no room

	Queues []RunningQueue
}

// RunningPipes has the counters of the pool of pipes.
type RunningPipes struct {
	Leased, Idle                      int64
	Degraded, Refused, Denied         int64 // pipes made too small by the kernel; not made or not enlarged; denied for the budget
	BudgetPages, LinePages, UsedPages int64 // pages: usable now, ever usable, in use
}

// A RunningLoop is an event loop.
type RunningLoop struct {
	LagP99, LagMax, TimerLateP99 time.Duration
	Turns, LongTurns             int64
}

// A RunningQueue is the accept queue of an address.
type RunningQueue struct {
	Listener, Address   string
	Length, Most        int64
	Dropped             int64
	Known, DroppedKnown bool
}

// ExamineProcess finds out what limits the calling process, from its counters and from the kernel's files. It
// makes no pipes and no connections, so it takes nothing from the sessions. A fact that cannot be found out is
// Unknown.
func ExamineProcess(r *Running) *Report { return examineProcess(r, host{os.DirFS("/")}) }

func examineProcess(r *Running, h host) *Report {
	p := &process{host: h, place: h.place()}
	checks := []Check{
		named("descriptors", p.usedDescriptors(r)),
		named("pipes", p.usedPipes(&r.Pipes)),
		named("splice", p.fallbacks(r)),
		named("local-faults", localFaults(r.LocalFaults)),
		named("accept-queues", p.queues(r.Queues)),
		named("loops", loops(r.Loops)),
		named("cpu-quota", p.throttling()),
		named("memory", p.usedMemory()),
		named("arena", p.usedArena(r)),
		named("tcp-memory", p.tcpMemory()),
		named("ports", p.usedPorts(r.LocalFaults[syscall.EADDRNOTAVAIL.Error()])),
		named("conntrack", p.conntrack()),
		named("capabilities", lookCapabilities(p)),
	}
	checks = slices.DeleteFunc(checks, func(c Check) bool { return c.State == "" }) // a check that was not asked for
	report := newReport(p.String(), checks)
	report.PID = os.Getpid()
	return report
}

// judged returns a check that is Degraded if there is a cost.
func judged(found, cost string, mend []string) Check {
	if cost == "" {
		return Check{State: OK, Found: found}
	}
	return Check{State: Degraded, Found: found, Cost: cost, Mend: mend}
}

// nearlyAll is the per cent of a limit in use from which on doctor reports it.
const nearlyAll = 80

func times(n int64) string { return several(n, "time", "times") }

func connections(n int64) string { return several(n, "connection", "connections") }

func (p *process) usedDescriptors(r *Running) Check {
	soft, hard := descriptors()
	used := unknown
	if info, err := fs.Stat(p.files, "proc/self/fd"); err == nil && info.Size() > 0 { // since Linux 6.2
		used = info.Size()
	} else if list, err := fs.ReadDir(p.files, "proc/self/fd"); err == nil {
		used = int64(len(list))
	}
	if soft == unknown || used == unknown {
		return Check{State: Unknown, Found: "RLIMIT_NOFILE, or the number of descriptors in use, cannot be read", Cost: "accepting pauses when no descriptor is free"}
	}
	found := fmt.Sprintf("%s of %s in use; %s of at most %s", exact(used), exact(soft), exact(r.Sessions), sessions(r.MaxSessions))
	short := r.LocalFaults[syscall.EMFILE.Error()] + r.LocalFaults[syscall.ENFILE.Error()]
	mend, cost := p.raiseDescriptors(), ""
	lowered := r.MaxSessions > soft/2
	if lowered {
		limit := fmt.Sprint(2*r.MaxSessions + 1024)
		if 2*r.MaxSessions+1024 <= hard {
			limit += ":" // the hard limit stays: no capability is needed
		}
		mend = append([]string{fmt.Sprintf("now, without a restart: prlimit --pid %d --nofile=%s", os.Getpid(), limit)}, mend...)
	}
	switch {
	case r.AcceptPauses > 0 || short > 0:
		cost = fmt.Sprintf("because descriptors or memory were missing, accepting paused %s, and %s to endpoints failed", times(r.AcceptPauses), connections(short))
	case r.MaxSessions > 0 && r.Sessions >= r.MaxSessions:
		cost = "accepting pauses now: clients wait in the accept queues"
		if r.MaxSessions < r.Affordable { // the configuration sets the limit
			mend = []string{"in the file of penstock run: raise limits.connections", "for penstock proxy: raise --max-connections"}
		}
	case lowered:
		cost = "the limit was lowered while the process ran: accepting pauses at less than " + sessions(soft/2)
	case fraction(used, soft) >= nearlyAll:
		cost = "accepting pauses at " + sessions(r.MaxSessions)
	}
	return judged(found, cost, mend)
}

func (p *process) usedPipes(r *RunningPipes) Check {
	found := fmt.Sprintf("%s leased, %s idle, with %s of %s pages; quota %s pages", exact(r.Leased), exact(r.Idle), exact(r.UsedPages), exact(r.BudgetPages), exact(p.parameter("fs.pipe-user-pages-soft")))
	var costs []string
	add := func(n int64, format string) {
		if n > 0 {
			costs = append(costs, fmt.Sprintf(format, times(n)))
		}
	}
	add(r.Denied, "%s bytes were copied because no pipe was free (2.4 times as slow)")
	add(r.Degraded, "the kernel made a pipe too small %s, because all processes of the user had used up the user's quota")
	add(r.Refused, "the kernel refused a pipe, or a larger one, %s")
	if r.BudgetPages < r.LinePages {
		costs = append(costs, fmt.Sprintf("the budget has fallen to %s of %s pages", exact(r.BudgetPages), exact(r.LinePages)))
	}
	return judged(found, strings.Join(costs, "; "), p.raisePipes())
}

func (p *process) fallbacks(r *Running) Check {
	found := fmt.Sprintf("%s spliced, %s copied%s", Size(r.Spliced), Size(r.Copied), reasonsOf(r.Fallbacks))
	refused, short := r.Fallbacks["refused"]+r.Fallbacks["unsupported"], r.Fallbacks["budget"]+r.Fallbacks["descriptors"]
	switch {
	case refused > 0:
		return judged(found, several(refused, "direction", "directions")+" were copied instead of spliced, because the kernel refused splice or a pipe", p.allow("splice"))
	case short > 0:
		return judged(found, times(short)+" bytes were copied because no pipe was free", []string{"see pipes and descriptors"})
	}
	return judged(found, "", nil)
}

// reasonsOf returns counts by reason after a colon, or "".
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

// remedies say where to find the remedy for connections that failed because of this machine.
var remedies = map[syscall.Errno]string{
	syscall.EMFILE: "see descriptors", syscall.ENFILE: "raise sysctl fs.file-max, the limit of files of the whole machine", syscall.ENOBUFS: "see tcp-memory", syscall.ENOMEM: "see memory and tcp-memory",
	syscall.EBUSY:         "see loops and cpu-quota: too many TLS handshakes with endpoints waited for a CPU",
	syscall.EADDRNOTAVAIL: "see ports; source_address of the upstream must be an address of this machine",
	syscall.EACCES:        "let the process's user write to the unix sockets of the endpoints", syscall.EPERM: "let this machine's firewall allow connections to the endpoints",
}

func localFaults(causes map[string]int64) Check {
	sum := int64(0)
	var mend []string
	for _, errno := range slices.Sorted(maps.Keys(remedies)) {
		if n := causes[errno.Error()]; n > 0 {
			sum += n
			mend = append(mend, errno.Error()+": "+remedies[errno])
		}
	}
	if sum == 0 {
		return judged("no connection to an endpoint has failed because of this machine", "", nil)
	}
	return judged(fmt.Sprintf("%s to endpoints failed because of this machine%s", connections(sum), reasonsOf(causes)),
		"these clients were served later, by another endpoint, or not at all", mend)
}

func (p *process) queues(list []RunningQueue) Check {
	fullest, overflows, at := int64(0), int64(0), ""
	var mend []string
	for _, q := range list {
		if q.Known {
			used := fraction(q.Length, q.Most)
			fullest = max(fullest, used)
			if used >= nearlyAll || q.DroppedKnown && q.Dropped > 0 {
				for _, line := range p.longerQueue(&q) {
					if !slices.Contains(mend, line) {
						mend = append(mend, line)
					}
				}
			}
		}
		if q.DroppedKnown && q.Dropped > 0 {
			overflows += q.Dropped
			at += fmt.Sprintf(", %s of them at %s", exact(q.Dropped), q.Address)
		}
	}
	found := fmt.Sprintf("the fullest is at %d %%; overflows: %s%s", fullest, exact(overflows), at)
	if overflows == 0 && fullest < nearlyAll {
		return judged(found, "", nil)
	}
	mend = append(mend, "add event loops, or find the cause of a loop's lag: see loops")
	return judged(found, "a client that finds its queue full tries again after 1 s or more", mend)
}

// longerQueue says how to lengthen an accept queue, which the smaller of socket.backlog and net.core.somaxconn
// bounds.
func (p *process) longerQueue(q *RunningQueue) []string {
	switch most := p.parameter("net.core.somaxconn"); {
	case q.Most >= enoughBacklog:
		return nil
	case most != unknown && q.Most < most:
		return []string{fmt.Sprintf("raise socket.backlog of listener %s: it is %s, and net.core.somaxconn allows %s", q.Listener, exact(q.Most), exact(most))}
	}
	return p.sysctl(fmt.Sprintf("net.core.somaxconn=%d", enoughBacklog))
}

// muchLag is the length of turns from which on doctor reports a cost.
const muchLag = 4096 * time.Microsecond

func loops(list []RunningLoop) Check {
	var most RunningLoop
	for _, l := range list {
		most.LagP99, most.LagMax, most.TimerLateP99 = max(most.LagP99, l.LagP99), max(most.LagMax, l.LagMax), max(most.TimerLateP99, l.TimerLateP99)
		most.Turns, most.LongTurns = most.Turns+l.Turns, most.LongTurns+l.LongTurns
	}
	found := fmt.Sprintf("%d; 99 %% of turns took %v or less, the longest %v; %s of %s turns took more than 1 ms", len(list), tenths(most.LagP99), tenths(most.LagMax), exact(most.LongTurns), exact(most.Turns))
	if most.LagP99 < muchLag && most.TimerLateP99 < muchLag {
		return judged(found, "", nil)
	}
	cost := fmt.Sprintf("bytes that have arrived wait up to %v for their loop", tenths(most.LagMax))
	if most.TimerLateP99 >= muchLag {
		found = fmt.Sprintf("timers are late by up to %v; loops: %s", most.TimerLateP99, found)
	}
	return judged(found, cost, []string{"run fewer other processes on these CPUs: see penstock trace for the waits, and cpu-quota", "give more CPUs, and raise limits.loops.count in the configuration"})
}

// tenths rounds a time of a millisecond or more to tenths of a millisecond.
func tenths(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d
	}
	return d.Round(100 * time.Microsecond)
}

// throttling reports how often the cgroup's quota has stopped the process.
func (p *process) throttling() Check {
	quota, period := p.cpuLimit()
	var throttled, periods, took int64
	for _, dir := range p.cgroups() {
		if n := p.count(dir+"/cpu.stat", "nr_throttled"); n > throttled {
			throttled, periods, took = n, p.count(dir+"/cpu.stat", "nr_periods"), p.count(dir+"/cpu.stat", "throttled_usec")
		}
	}
	switch {
	case throttled == 0 && p.oldLimits("cpu"):
		return Check{State: Unknown, Found: "no quota is known" + oldFound, Cost: oldCost}
	case throttled == 0 && quota == unknown:
		return judged("no cgroup quota", "", nil)
	case throttled == 0:
		return judged(fmt.Sprintf("%.3g CPUs; the quota has not throttled the process", float64(quota)/float64(period)), "", nil)
	}
	found := fmt.Sprintf("throttled in %s of %s periods, for %v in all", exact(throttled), exact(periods), (time.Duration(took) * time.Microsecond).Round(time.Millisecond))
	return judged(found, "every session stops during these times", append(p.mend(remedy{
		unit: "CPUQuota=, larger or empty", docker: "with a larger --cpus=, or none", pod: "resources: {limits: {cpu: ...}}, larger or left out", host: "a larger cpu.max of the cgroup",
	}), "run fewer loops than the quota has CPUs: limits.loops.count, or --loops"))
}

func (p *process) usedMemory() Check {
	resident := p.count("proc/self/status", "VmRSS")
	if resident == unknown {
		return Check{State: Unknown, Found: "/proc/self/status cannot be read", Cost: "the kernel kills a process that is over the limit of its cgroup"}
	}
	limit, dir := p.memoryLimit()
	if limit == unknown && p.oldLimits("memory") {
		return Check{State: Unknown, Found: Size(resident<<10) + " resident" + oldFound, Cost: oldCost}
	}
	if limit == unknown {
		return judged(Size(resident<<10)+" resident, no cgroup limit", "", nil)
	}
	used := p.number(dir + "/memory.current")
	reached, killed := p.count(dir+"/memory.events", "max"), p.count(dir+"/memory.events", "oom_kill")
	cost := ""
	switch {
	case killed > 0:
		cost = fmt.Sprintf("the kernel killed %s of the cgroup because memory was short", several(killed, "process", "processes"))
	case fraction(used, limit) >= nearlyAll && reached > 0:
		cost = fmt.Sprintf("the limit was reached %s: the kernel reclaims memory while sessions wait, and may kill the process", times(reached))
	case fraction(used, limit) >= 95:
		cost = "the kernel kills the process when it cannot reclaim more memory"
	}
	return judged(fmt.Sprintf("%s resident; the cgroup has used %s of %s", Size(resident<<10), Size(used), Size(limit)), cost, p.moreMemory(2*limit))
}

// usedArena reports on the loops' memory: its pages, and whether it was enough.
func (p *process) usedArena(r *Running) Check {
	c := p.hugePages(r.ArenaSize, r.ArenaHuge, r.ArenaFallback)
	c.Found = Size(r.ArenaSize) + " for the bytes of slow destinations" + c.Found
	if r.ArenaRefused > 0 {
		c.State, c.Mend = Degraded, append(c.Mend, "in the file of penstock run: raise limits.loops.count, because each loop adds memory")
		c.Cost = strings.TrimPrefix(c.Cost+"; "+times(r.ArenaRefused)+" the buffers were full: the bytes are on the heap, where the garbage collector sees them", "; ")
	}
	return c
}

// tcpMemory reports on the memory of all TCP sockets of the machine.
func (p *process) tcpMemory() Check {
	limits := p.numbers("proc/sys/net/ipv4/tcp_mem")
	pages := p.sockstat("mem")
	if len(limits) != 3 || pages == unknown {
		return Check{State: Unknown, Found: "sockstat or tcp_mem cannot be read", Cost: "beyond tcp_mem the kernel shrinks windows and drops packets"}
	}
	cost := ""
	if fraction(pages, limits[1]) >= nearlyAll {
		cost = "under memory pressure the kernel shrinks the buffers of all sockets, drops received bytes, and refuses connections"
	}
	return judged(fmt.Sprintf("%s of %s pages before memory pressure begins (%s at most)", exact(pages), exact(limits[1]), exact(limits[2])), cost,
		p.sysctl(fmt.Sprintf(`net.ipv4.tcp_mem="%d %d %d"`, limits[1], 2*limits[1], 2*limits[2])))
}

func (h host) sockstat(name string) int64 {
	words := strings.Fields(h.field("proc/self/net/sockstat", "TCP"))
	if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
		return parse(words[i+1])
	}
	return unknown
}

func (p *process) usedPorts(faults int64) Check {
	n, cost := p.localPorts(), ""
	if n == unknown {
		return Check{State: Unknown, Found: "ip_local_port_range cannot be read", Cost: "the number of sessions to one endpoint is limited by the local ports"}
	}
	if faults > 0 {
		cost = connections(faults) + " to endpoints failed because a port or the source address was missing"
	}
	return judged(fmt.Sprintf("%s for each endpoint; %s sockets in use and %s in TIME_WAIT on this machine", several(n, "port", "ports"), exact(p.sockstat("inuse")), exact(p.sockstat("tw"))),
		cost, append(p.sysctl(allPorts, "net.ipv4.tcp_tw_reuse=1"), "add endpoints, or source addresses"))
}

// conntrack reports on the kernel's table of tracked connections, if there is one.
func (p *process) conntrack() Check {
	count, most := p.parameter("net.netfilter.nf_conntrack_count"), p.parameter("net.netfilter.nf_conntrack_max")
	if count == unknown || most == unknown {
		return Check{}
	}
	cost := ""
	if fraction(count, most) >= nearlyAll {
		cost = "packets of new connections are dropped when the table is full"
	}
	return judged(fmt.Sprintf("%s of %s connections tracked", exact(count), exact(most)), cost,
		append(p.sysctl(fmt.Sprintf("net.netfilter.nf_conntrack_max=%d", 4*most)), "nft: add a notrack rule for the ports of the listeners and endpoints"))
}
