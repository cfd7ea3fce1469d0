package doctor

import (
	"os"
	"time"
)

// Running is the counters and limits of a running Penstock, for [ExamineProcess].
type Running struct {
	Sessions, MaxSessions int64
	AcceptPauses          int64 // times that accepting failed

	Spliced, Copied int64            // bytes
	Fallbacks       map[string]int64 // departures from splicing, by reason
	LocalFaults     map[string]int64 // connections that failed for lack of something here, by the error's text

	Pipes RunningPipes
	Loops []RunningLoop

	ArenaSize, ArenaHuge int64  // bytes of the memory of loops, and those in huge pages
	ArenaFallback        string // why it has none; may be empty
	ArenaRefused         int64  // residues that it had no room for

	Queues   []RunningQueue
	FastOpen bool // a listener asks for TCP_FASTOPEN
}

// RunningPipes are the pool of pipes.
type RunningPipes struct {
	Leased, Idle                      int64
	Degraded, Refused, Denied         int64 // made too small by the kernel, not made or not enlarged, denied for the budget
	BudgetPages, LinePages, UsedPages int64 // now, at most, used
}

// A RunningLoop is an event loop.
type RunningLoop struct {
	LagP99, LagMax, TimerLateP99 time.Duration
	Turns, LongTurns             int64
}

// A RunningQueue is the accept queue of an address.
type RunningQueue struct {
	Address             string
	Length, Most        int64
	Dropped             int64
	Known, DroppedKnown bool
}

// ExamineProcess finds out what limits the process that calls it, of its counters and of files of the kernel. It
// makes no pipes and no connections, so that it takes nothing from the sessions. A fact that cannot be found out is
// Unknown.
func ExamineProcess(r *Running) *Report { return examineProcess(r, host{os.DirFS("/")}) }

func examineProcess(r *Running, h host) *Report {
	p := newPatient(Options{}, h)
	var checks []Check
	for _, t := range runningTopics {
		look := func(p *process) facts { return t.look(p, r) }
		if c := p.check(topic{t.name, look}); c.Figures != nil {
			checks = append(checks, c)
		}
	}
	p.grantAll(checks)
	report := newReport(p.place.String(), checks)
	report.PID = os.Getpid()
	return report
}

// runningTopics are in the order of the report.
var runningTopics = []struct {
	name string
	look func(p *process, r *Running) facts
}{
	{"descriptors", lookUsedDescriptors},
	{"pipes", lookUsedPipes},
	{"splice", lookFallbacks},
	{"local-faults", lookLocalFaults},
	{"accept-queues", lookQueues},
	{"loops", lookLoops},
	{"cpu-quota", lookThrottling},
	{"memory", lookUsedMemory},
	{"huge-pages", lookUsedHugePages},
	{"arena", lookUsedArena},
	{"tcp-memory", lookTCPMemory},
	{"ports", lookUsedPorts},
	{"conntrack", lookConntrack},
	{"reuseport", func(p *process, _ *Running) facts { return lookReuseport(p) }},
	{"fastopen", lookFastOpen},
	{"capabilities", func(p *process, _ *Running) facts { return lookCapabilities(p) }},
}

// fraction is a part of a whole in per cent; 0 of nothing.
func fraction(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}

// nearlyAll is from where on a limit is worth a word, in per cent.
const nearlyAll = 80
