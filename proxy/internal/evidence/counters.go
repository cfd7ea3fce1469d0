package evidence

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// counters are figures of a process and its network namespace that every user may read.
type counters struct {
	network map[string]int64     // by name
	threads map[threadID]waiting // by thread
	errs    []string
}

type threadID struct{ pid, tid int }

// waiting is from /proc/PID/task/TID/schedstat: how long a thread could run but had no CPU, and how often it got
// one (Documentation/scheduler/sched-stats.rst).
type waiting struct {
	time  time.Duration
	count uint64
}

// counted are the counters for delays and losses.
var counted = []string{
	"RetransSegs", "OutRsts", "EstabResets", "AttemptFails", "InErrs", "ListenOverflows", "ListenDrops", "TCPTimeouts", "TCPLossProbes",
	"TCPFastRetrans", "TCPSlowStartRetrans", "TCPSynRetrans", "TCPRetransFail", "TCPAbortOnData", "TCPAbortOnClose", "TCPAbortOnMemory",
	"TCPAbortOnTimeout", "TCPMemoryPressures", "TCPBacklogDrop", "TCPRcvQDrop", "TCPOFODrop", "TCPZeroWindowDrop", "PruneCalled",
}

func readCounters(pids []int) *counters {
	c := &counters{network: make(map[string]int64), threads: make(map[threadID]waiting)}
	if len(pids) > 0 {
		for _, name := range []string{"netstat", "snmp"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pids[0], name))
			if err != nil {
				c.errs = append(c.errs, fmt.Sprintf("the counters of the network are unknown: %v", err))
				continue
			}
			parseCounters(string(text), c.network)
		}
	}
	for _, pid := range pids {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, path := range paths {
			tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			text, err := os.ReadFile(path)
			if w, ok := parseSchedstat(string(text)); ok && err == nil {
				c.threads[threadID{pid, tid}] = w
			}
		}
	}
	if len(pids) > 0 && len(c.threads) == 0 {
		c.errs = append(c.errs, "the waits of threads for a CPU are unknown: /proc/PID/task/TID/schedstat cannot be read or does not exist (CONFIG_SCHED_INFO)")
	}
	return c
}

// parseCounters reads /proc/net/netstat or /proc/net/snmp: pairs of lines, first the names, then the values.
func parseCounters(text string, to map[string]int64) {
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := 1; j < min(len(names), len(values)); j++ {
			if v, err := strconv.ParseInt(values[j], 10, 64); err == nil && slices.Contains(counted, names[j]) {
				to[names[j]] += v
			}
		}
	}
}

func parseSchedstat(text string) (w waiting, ok bool) {
	var ran int64
	_, err := fmt.Sscan(text, &ran, (*int64)(&w.time), &w.count)
	return w, err == nil
}

// counted fills in a report without a trace.
func (r *Report) counted(refused *kerneltrace.PrivilegeError, before, after *counters) {
	r.Lacks, r.Why = refused.Missing, refused.Err.Error()
	r.Notes = append(r.Notes, after.errs...)
	r.Counters = make(map[string]int64)
	for name, n := range after.network {
		if old, ok := before.network[name]; ok && n > old {
			r.Counters[name] = n - old
		}
	}
	all := Cause{Name: cpuWait}
	for id, w := range after.threads {
		if old := before.threads[id]; old.count <= w.count && old.time <= w.time { // otherwise a new thread has the number of a thread that has ended
			w.time, w.count = w.time-old.time, w.count-old.count
		}
		if w.count == 0 {
			continue
		}
		us := micros(w.time)
		r.Threads = append(r.Threads, Thread{PID: id.pid, TID: id.tid, Name: threadName(id.pid, id.tid), Count: w.count, Times: Times{TotalUs: us}})
		all.Count, all.TotalUs, all.Of = all.Count+w.count, all.TotalUs+us, all.Of+1
	}
	slices.SortFunc(r.Threads, func(a, b Thread) int { return cmp.Compare(b.TotalUs, a.TotalUs) })
	if all.Of > 0 {
		r.Causes = append(r.Causes, all)
	}
	for name, n := range r.Counters {
		r.Causes = append(r.Causes, Cause{Name: name, Count: uint64(n)})
	}
	slices.SortFunc(r.Causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.TotalUs, a.TotalUs), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	r.Summary = r.countedSummary(&all)
}

func (r *Report) countedSummary(all *Cause) string {
	text := fmt.Sprintf("Nothing was traced, because this process lacks %s. The kernel's counters say", strings.Join(r.Lacks, " and "))
	if all.Of > 0 {
		text += fmt.Sprintf(": waiting for a CPU took %s in all, %s on average, in %d threads", duration(all.TotalUs), duration(all.TotalUs/int64(all.Count)), all.Of)
	} else {
		text += " nothing about threads"
	}
	var list []string
	for _, c := range r.Causes {
		if c.Name != cpuWait {
			list = append(list, fmt.Sprintf("%d × %s", c.Count, c.Name))
		}
	}
	if len(list) > 0 {
		text += "; of all processes in the network namespace: " + strings.Join(list, ", ")
	}
	return text + "."
}
