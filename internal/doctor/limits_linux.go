package doctor

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// descriptors returns the limits of this process. The runtime has already raised the soft limit, if it may.
func descriptors() (soft, hard int64) {
	s, h, err := sys.RlimitNoFileRange()
	if err != nil {
		return unknown, unknown
	}
	return int64(min(s, 1<<31)), int64(min(h, 1<<31))
}

func lookDescriptors(p *process) Check {
	soft, hard := descriptors()
	if soft == unknown {
		return Check{State: Unknown, Found: "RLIMIT_NOFILE cannot be read", Cost: "the number of sessions is at most half of it"}
	}
	c := Check{State: OK, Found: fmt.Sprintf("%s descriptors (hard limit %s): %s, 2 for each", exact(soft), exact(hard), sessions(p.sessions))}
	if soft < 10_000 { // 4,900 sessions
		c.State, c.Mend = Degraded, p.raiseDescriptors()
		c.Cost = fmt.Sprintf("accepting pauses at %s; pipes get a quarter of the descriptors, which is enough for %s pipes", sessions(p.sessions), exact(soft/8))
	}
	return c
}

// tooFew is the verdict on a process without room for a single session.
func (p *process) tooFew(free int) Check {
	soft, _ := descriptors()
	return Check{
		State: Missing, unable: true, Found: fmt.Sprintf("only %d of %s descriptors are free", free, exact(soft)),
		Cost: fmt.Sprintf("Penstock cannot run: with one session it needs %d", fewDescriptors), Mend: p.raiseDescriptors(),
	}
}

// raiseDescriptors asks for the limit that container engines and systemd give to services that need many
// descriptors: 500,000 sessions.
func (p *process) raiseDescriptors() []string {
	const many = "1048576"
	return p.mend(remedy{
		unit: "LimitNOFILE=" + many, docker: "--ulimit nofile=" + many + ":" + many,
		host: "ulimit -n " + many + ", and for good '* - nofile " + many + "' in /etc/security/limits.d/penstock.conf",
	})
}

func sessions(n int64) string { return several(n, "session", "sessions") }

// The costs of missing features, with figures from docs/library.md.
const (
	copying    = "every byte is copied: a read of 64 KiB takes 1.2 times as long, a read of 256 KiB 2.4 times"
	smallPipes = "large reads go through small pipes instead of pipes of 1 MiB: through a pipe of 64 KiB, a read of 128 KiB takes 1.5 times as long, a read of 256 KiB 2.0 times, a read of 1 MiB 1.2 times"
)

const (
	// largePipe is the pipe size that a busy direction asks for (relay.Config.MaxPipeSize).
	largePipe = 1 << 20
	// manyPipes is how many of these are made: more than 64, which the kernel's default quota allows.
	manyPipes = 80
	// smallPages is the size of a new pipe, and mostPages the limit of package pipe where no quota binds: 1
	// GiB.
	smallPages, mostPages = 16, 1 << 18
)

// lookPipes makes large pipes until the kernel gives less than was asked for.
func lookPipes(p *process) Check {
	if pool, err := pipe.NewPool(nil); err == nil {
		p.budget = pool.Stats().LinePages
		pool.Close()
	}
	if err := feature.PipeResize(); err != nil {
		return p.verdict(err, "", smallPipes)
	}
	if most := p.parameter("fs.pipe-max-size"); most >= 0 && most < largePipe && !p.effective.Has(sys.CAP_SYS_RESOURCE) {
		return Check{
			State: Degraded, Found: fmt.Sprintf("pipes of %s at most (fs.pipe-max-size)", Size(most)), Cost: smallPipes,
			Mend: p.sysctl("fs.pipe-max-size=" + strconv.Itoa(largePipe)),
		}
	}
	had, end := fillPipes()
	unbound := had == manyPipes || end == endDescriptors
	if had == manyPipes {
		end = fmt.Sprintf("tried %d pipes of 1 MiB: all made", had)
	} else {
		end = fmt.Sprintf("made %s, then %s", several(had, "pipe of 1 MiB", "pipes of 1 MiB"), end)
	}
	page := int64(os.Getpagesize())
	soft, _ := descriptors()
	pipes := max(soft/8, 1) // the limit by descriptors
	large, small := min(p.budget/2*page/largePipe, pipes), min(p.budget/smallPages, pipes)
	c := Check{State: OK, Found: fmt.Sprintf("%s. Penstock may use %s of 1 MiB or %s of 64 KiB", end, exact(large), exact(small))}
	if unbound && p.budget >= min(pipes*smallPages, mostPages) {
		return c
	}
	c.State, c.Mend = Degraded, p.raisePipes()
	if pages := had * largePipe / page; !unbound && pages < p.budget { // other processes of this user have the rest
		large, small = min(large, had), min(small, pages/smallPages)
	}
	c.Cost = fmt.Sprintf("more than %s busy flows get pipes of 64 KiB (a read of 256 KiB takes 2.0 times as long); more than %s are copied (2.4 times)", exact(large), exact(small))
	if small == 0 {
		c.Cost = "at present no flow gets a pipe: " + copying
	}
	return c
}

const endDescriptors = "no descriptor"

// fillPipes makes pipes of 1 MiB until the kernel gives less, and closes them. It returns how many it made and,
// if fewer than manyPipes, what happened at the next one.
func fillPipes() (had int64, end string) {
	var open []int
	defer func() {
		for _, fd := range open {
			sys.Close(fd)
		}
	}()
	for ; had < manyPipes; had++ {
		r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
		if err == syscall.EMFILE {
			return had, endDescriptors
		}
		if err != nil {
			return had, os.NewSyscallError("pipe2", err).Error()
		}
		open = append(open, r, w)
		if made, err := sys.PipeSize(w); err == nil && made < smallPages*os.Getpagesize() {
			return had, "one of " + Size(int64(made))
		}
		if _, err := sys.SetPipeSize(w, largePipe); err != nil {
			return had, os.NewSyscallError("fcntl F_SETPIPE_SZ", err).Error()
		}
	}
	return had, ""
}

// raisePipes names the quota that is enough for pipes on all descriptors. A hard quota may have to be raised
// too.
func (p *process) raisePipes() []string {
	const enough = 2 * mostPages
	settings := []string{fmt.Sprintf("fs.pipe-user-pages-soft=%d", enough)}
	if hard := p.parameter("fs.pipe-user-pages-hard"); hard > 0 && hard < enough {
		settings = append(settings, fmt.Sprintf("fs.pipe-user-pages-hard=%d", enough))
	}
	return append(p.sysctl(settings...), "CAP_SYS_RESOURCE: see capabilities")
}

// enoughBacklog is the default of kernels since Linux 5.4.
const enoughBacklog = 4096

func lookBacklog(p *process) Check {
	queue := unknown
	l, err := listen(either())
	if err == nil {
		err = inspect(l, func(fd int) error {
			_, n, err := sys.ListenQueue(fd)
			if err == nil {
				queue = int64(n)
			}
			return err
		})
		l.Close()
	}
	if queue == unknown {
		return Check{State: Unknown, Found: "no listener could be opened: " + err.Error(), Cost: "see loopback"}
	}
	c := Check{State: OK, Found: fmt.Sprintf("%s connections may wait to be accepted (somaxconn %s)", exact(queue), exact(p.parameter("net.core.somaxconn")))}
	if queue < enoughBacklog {
		c.State, c.Mend = Degraded, p.sysctl("net.core.somaxconn="+strconv.Itoa(enoughBacklog))
		c.Cost = fmt.Sprintf("in a burst of more than %s clients, the other clients try again after 1 s or more", exact(queue))
	}
	return c
}

const (
	// timeWait is how many seconds a port stays taken after the side that closes first has closed
	// (TCP_TIMEWAIT_LEN, include/net/tcp.h).
	timeWait = 60
	// commonPorts is the width of the kernel's default range, 32768 to 60999.
	commonPorts = 28_232
	allPorts    = `net.ipv4.ip_local_port_range="1024 65535"`
)

// localPorts returns how many local ports there are for connections to one endpoint.
func (h host) localPorts() int64 {
	bounds := h.numbers("proc/sys/net/ipv4/ip_local_port_range")
	if len(bounds) != 2 || bounds[0] > bounds[1] {
		return unknown
	}
	return bounds[1] - bounds[0] + 1
}

func lookPorts(p *process) Check {
	n := p.localPorts()
	if n == unknown {
		return Check{State: Unknown, Found: "ip_local_port_range cannot be read", Cost: "the number of sessions to one endpoint is limited by the local ports"}
	}
	c := Check{State: OK, Found: fmt.Sprintf("%s: at most that many sessions to one endpoint", several(n, "port", "ports"))}
	if n >= commonPorts && n >= min(p.sessions, 60_000) {
		return c
	}
	c.State, c.Mend = Degraded, append(p.sysctl(allPorts), "more endpoints")
	c.Cost = fmt.Sprintf("the descriptors allow %s, but connect fails beyond %s to one endpoint, and beyond %s per second that Penstock ends first, because a port then stays unused for %d s",
		sessions(p.sessions), exact(n), exact(n/timeWait), timeWait)
	return c
}

// What a check says of a controller of cgroup v1.
const (
	oldFound = "; the limits of cgroup v1 are not read"
	oldCost  = "if there is a limit, sessions stop at it, or the kernel kills the process"
)

func lookCPUs(p *process) Check {
	allowed, used := runtime.NumCPU(), runtime.GOMAXPROCS(0)
	c := Check{State: OK, Found: fmt.Sprintf("%d of %d used (GOMAXPROCS)", used, allowed)}
	limit := float64(allowed)
	quota, period := p.cpuLimit()
	if p.oldLimits("cpu") {
		c.State, c.Cost = Unknown, oldCost
		c.Found += oldFound
	}
	if quota != unknown {
		limit = float64(quota) / float64(period)
		c.Found += fmt.Sprintf("; the cgroup allows %.3g", limit)
	}
	if quota != unknown && float64(used) > limit {
		stall := (float64(period) - float64(quota)/float64(used)) / 1000
		c.State, c.Cost = Degraded, fmt.Sprintf("when all CPUs are busy, every session stops for %.0f ms of each %d ms", stall, period/1000)
		c.Mend = append([]string{fmt.Sprintf("GOMAXPROCS=%d", max(int(limit), 1))}, p.mend(remedy{
			unit: fmt.Sprintf("CPUQuota=%d%%", 100*used), docker: fmt.Sprintf("--cpus=%d", used), pod: fmt.Sprintf("resources: {limits: {cpu: \"%d\"}}", used), host: "a larger cpu.max of the cgroup",
		})...)
	}
	return c
}

// sessionBytes is about the program's own memory for an idle session, in bytes, without the kernel's memory for
// its sockets.
const sessionBytes = 10_000

func lookMemory(p *process) Check {
	limit, _ := p.memoryLimit()
	bytes, found := limit, "the cgroup allows "+Size(limit)
	if total := p.count("proc/meminfo", "MemTotal"); total != unknown && (limit == unknown || total<<10 < limit) {
		bytes, found = total<<10, Size(total<<10)+", no lower cgroup limit"
	}
	if bytes == unknown {
		return Check{State: Unknown, Found: "neither /proc/meminfo nor the limit of the cgroup can be read", Cost: "each idle session takes about 10 kB, and the kernel needs memory for its sockets"}
	}
	needed := p.sessions*sessionBytes + p.budget*int64(os.Getpagesize())
	switch {
	case bytes >= needed && p.oldLimits("memory"):
		return Check{State: Unknown, Found: Size(bytes) + oldFound, Cost: oldCost}
	case bytes >= needed:
		return Check{State: OK, Found: found}
	}
	mend := []string{fmt.Sprintf("penstock proxy --max-connections %d, limits.connections of penstock run", bytes/2/sessionBytes)}
	if bytes == limit {
		mend = append(mend, p.moreMemory(needed)...)
	}
	return Check{
		State: Degraded, Found: found, Mend: mend,
		Cost: fmt.Sprintf("the descriptors allow %s sessions, which take up to %s with their pipes, plus the kernel's memory for sockets: the kernel would kill the process", exact(p.sessions), Size(needed)),
	}
}

// moreMemory says how to raise the cgroup's limit to a number of bytes.
func (p *process) moreMemory(bytes int64) []string {
	n := fmt.Sprintf("%dM", bytes>>20+1)
	return p.mend(remedy{unit: "MemoryMax=" + n, docker: "--memory=" + n, pod: "resources: {limits: {memory: " + n + "i}}", host: "memory.max of the cgroup: " + n})
}

// lookArena makes the memory of one loop.
func lookArena(p *process) Check {
	a, err := arena.New(&arena.Config{Locals: 1})
	if err != nil {
		return Check{
			State: Missing, Found: "none: " + err.Error(), Cost: "loops have no buffers for the bytes of slow destinations",
			Mend: []string{"give more memory, or raise the limit of the cgroup"},
		}
	}
	defer a.Close()
	s, why := a.Stats(), ""
	if err := a.Fallback(); err != nil {
		why = err.Error()
	}
	c := p.hugePages(s.Mapped, s.Huge, why)
	c.Found = fmt.Sprintf("%s, requested as %s", Size(s.Mapped), a.Pages()) + c.Found
	if err := a.Unbound(); err != nil {
		c.Found += "; not bound to a NUMA node: " + err.Error()
	}
	return c
}

// hugePages judges the memory of loops, a part of it in huge pages.
func (p *process) hugePages(bytes, huge int64, why string) Check {
	c := Check{State: OK, Found: fmt.Sprintf(", %s of it in huge pages", Size(huge))}
	if 2*huge >= bytes {
		return c
	}
	if why != "" {
		c.Found += ": " + strings.ReplaceAll(why, "\n", "; ")
	}
	c.State, c.Mend = Degraded, p.sysctl("vm.nr_hugepages=64") // 128 MiB
	c.Cost = fmt.Sprintf("the buffers take %s pages of memory instead of %s, with more TLB misses", exact(bytes>>12), exact(max(bytes>>21, 1)))
	setting, _ := p.text("sys/kernel/mm/transparent_hugepage/enabled")
	if strings.Contains(setting, "[never]") {
		c.Mend = append(c.Mend, p.mend(remedy{host: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"})...)
	}
	return c
}
