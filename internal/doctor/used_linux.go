package doctor

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// usedDescriptors is how many descriptors the process has.
type usedDescriptors struct {
	Soft         number `json:"soft,omitzero"`
	Hard         number `json:"hard,omitzero"`
	Used         number `json:"used,omitzero"`
	Sessions     int64  `json:"sessions"`
	MaxSessions  int64  `json:"max_sessions"`
	AcceptPauses int64  `json:"accept_pauses"`
	Shortages    int64  `json:"connects_without_descriptor"`

	limits descriptors
}

func lookUsedDescriptors(p *process, r *Running) facts {
	f := usedDescriptors{
		Used: p.openFiles(), Sessions: r.Sessions, MaxSessions: r.MaxSessions, AcceptPauses: r.AcceptPauses,
		Shortages: r.LocalFaults[syscall.EMFILE.Error()] + r.LocalFaults[syscall.ENFILE.Error()],
		limits:    descriptors{NrOpen: p.parameter("fs.nr_open"), place: p.place},
	}
	if soft, hard, err := sys.RlimitNoFileRange(); err == nil {
		f.Soft, f.Hard = known(min(soft, 1<<31)), known(min(hard, 1<<31))
	}
	f.limits.Soft, f.limits.Hard = f.Soft, f.Hard
	return f
}

// openFiles is the number of descriptors of this process. The kernel gives it as the size of their directory since
// Linux 6.2; before that they are counted.
func (h host) openFiles() number {
	const dir = "proc/self/fd"
	if info, err := fs.Stat(h.files, dir); err == nil && info.Size() > 0 {
		return known(info.Size())
	}
	list, err := fs.ReadDir(h.files, dir)
	if err != nil {
		return number{}
	}
	return known(len(list))
}

func (f usedDescriptors) judge() finding {
	if !f.Soft.known || !f.Used.known {
		return finding{state: Unknown, found: "RLIMIT_NOFILE, or the descriptors in use, cannot be read", cost: "accepting pauses when there are no more"}
	}
	v := finding{state: OK, found: fmt.Sprintf("%s of %s in use; %s of %s at most", f.Used, f.Soft, exact(f.Sessions), sessions(int(f.MaxSessions)))}
	switch {
	case f.AcceptPauses > 0 || f.Shortages > 0:
		v.cost = fmt.Sprintf("for want of them, or of memory, accepting has paused %s, and %s to endpoints failed", several(f.AcceptPauses, "time", "times"), several(f.Shortages, "connection", "connections"))
	case f.MaxSessions > 0 && f.Sessions >= f.MaxSessions:
		v.cost = "accepting pauses now: clients wait in the accept queues"
		if fraction(f.Used.value, f.Soft.value) < nearlyAll { // the limit is the configuration's
			v.state, v.mend = Degraded, []string{"in the file of penstock run: a larger limits.connections", "penstock proxy with a larger --max-connections"}
			return v
		}
	case fraction(f.Used.value, f.Soft.value) >= nearlyAll:
		v.cost = fmt.Sprintf("accepting pauses at %s", sessions(int(f.MaxSessions)))
	default:
		return v
	}
	v.state, v.mend = Degraded, f.limits.raise()
	return v
}

// usedPipes is the pool of pipes.
type usedPipes struct {
	Soft        number `json:"pipe_user_pages_soft,omitzero"`
	Hard        number `json:"pipe_user_pages_hard,omitzero"`
	Leased      int64  `json:"leased"`
	Idle        int64  `json:"idle"`
	UsedPages   int64  `json:"used_pages"`
	BudgetPages int64  `json:"budget_pages"` // now
	MostPages   int64  `json:"most_pages"`
	Degraded    int64  `json:"made_too_small"`
	Refused     int64  `json:"refused"`
	Denied      int64  `json:"denied"`

	quota pipeQuota
}

func lookUsedPipes(p *process, r *Running) facts {
	f := usedPipes{
		Soft: p.parameter("fs.pipe-user-pages-soft"), Hard: p.parameter("fs.pipe-user-pages-hard"),
		Leased: r.Pipes.Leased, Idle: r.Pipes.Idle, UsedPages: r.Pipes.UsedPages, BudgetPages: r.Pipes.BudgetPages, MostPages: r.Pipes.LinePages,
		Degraded: r.Pipes.Degraded, Refused: r.Pipes.Refused, Denied: r.Pipes.Denied,
	}
	soft, _, err := sys.RlimitNoFileRange()
	if err != nil {
		soft = 1024
	}
	f.quota = pipeQuota{Soft: f.Soft, Hard: f.Hard, Budget: f.MostPages, Pipes: max(int64(min(soft, 1<<31))/8, 1), place: p.place}
	return f
}

func (f usedPipes) judge() finding {
	v := finding{state: OK, found: fmt.Sprintf("%s leased, %s idle, with %s of %s pages; quota %s", exact(f.Leased), exact(f.Idle), exact(f.UsedPages), exact(f.BudgetPages), f.quota.quota())}
	var costs []string
	add := func(n int64, format string) {
		if n > 0 {
			costs = append(costs, fmt.Sprintf(format, several(n, "time", "times")))
		}
	}
	add(f.Denied, "%s there was no pipe for bytes that could have been spliced, which were copied (2.4 times)")
	add(f.Degraded, "the kernel made a pipe too small %s: the user's quota was spent, by other processes too")
	add(f.Refused, "the kernel refused a pipe, or a larger one, %s")
	if f.BudgetPages < f.MostPages {
		costs = append(costs, fmt.Sprintf("the budget is down to %s of %s pages since then", exact(f.BudgetPages), exact(f.MostPages)))
	}
	if len(costs) == 0 {
		return v
	}
	v.state, v.cost, v.mend = Degraded, strings.Join(costs, "; "), f.quota.raise()
	if !f.quota.nested {
		v.needs = []string{"SYS_RESOURCE"}
	}
	return v
}

// fallbacks are the departures from splicing.
type fallbacks struct {
	Spliced int64            `json:"spliced_bytes"`
	Copied  int64            `json:"copied_bytes"`
	Reasons map[string]int64 `json:"fallbacks"`

	place
}

func lookFallbacks(p *process, r *Running) facts {
	reasons := r.Fallbacks
	if reasons == nil {
		reasons = map[string]int64{}
	}
	return fallbacks{r.Spliced, r.Copied, reasons, p.place}
}

func (f fallbacks) judge() finding {
	v := finding{state: OK, found: fmt.Sprintf("%s spliced, %s copied%s", size(f.Spliced), size(f.Copied), reasonsOf(f.Reasons))}
	switch refused, short := f.Reasons["refused"]+f.Reasons["unsupported"], f.Reasons["budget"]+f.Reasons["descriptors"]; {
	case refused > 0:
		v.state, v.cost, v.mend = Degraded, fmt.Sprintf("%s were copied though they could be spliced: splice, or a pipe, was refused", several(refused, "direction", "directions")), f.allow("splice")
	case short > 0:
		v.state, v.cost, v.mend = Degraded, fmt.Sprintf("%s bytes were copied for want of a pipe", several(short, "time", "times")), []string{"see pipes and descriptors"}
	}
	return v
}
