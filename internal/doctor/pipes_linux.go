package doctor

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pipe"
)

// largePipe is the size of the pipes that a busy direction asks for
// (relay.Config.MaxPipeSize).
const largePipe = 1 << 20

// mostPipe bounds the sizes that are tried.
const mostPipe = 8 << 20

// pipeSize is how large a pipe may become.
type pipeSize struct {
	Max     number `json:"pipe_max_size,omitzero"`
	Largest int64  `json:"largest_bytes"` // had

	err error // of the size above
	place
}

func lookPipeSize(p *process) facts {
	f := pipeSize{Max: p.parameter("fs.pipe-max-size"), place: p.place}
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		f.err = os.NewSyscallError("pipe2", err)
		p.sandbox(f.err)
		return f
	}
	defer sys.Close(r)
	defer sys.Close(w)
	got, err := sys.PipeSize(w)
	for size := largePipe / 16; err == nil && size <= mostPipe; size *= 2 {
		f.Largest = int64(got)
		got, err = sys.SetPipeSize(w, size)
	}
	if err == nil {
		f.Largest = int64(got)
		return f
	}
	f.err = os.NewSyscallError("fcntl F_SETPIPE_SZ", err)
	if refusal := feature.PipeResize(); errors.Is(refusal, feature.ErrNotSupported) {
		f.err = refusal
		p.sandbox(refusal)
	}
	return f
}

func (f pipeSize) judge() finding {
	switch {
	case f.Largest >= largePipe:
		return finding{state: OK, found: fmt.Sprintf("pipes of up to %s had (pipe-max-size %s)", size(f.Largest), f.Max)}
	case errors.Is(f.err, feature.ErrNotSupported):
		return finding{state: Degraded, found: "pipes cannot be resized: " + cause(f.err), cost: f.cost(), mend: f.allow(callOf(f.err))}
	case f.Largest == 0:
		return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: ifMissing + copying}
	case f.Max.known && f.Max.value >= largePipe:
		return finding{
			state: Degraded, found: fmt.Sprintf("pipe of %s at most, although pipe-max-size is %s: the user's quota is spent", size(f.Largest), f.Max),
			cost: f.spent(), mend: []string{"see pipe-quota"},
		}
	}
	return finding{
		state: Degraded, found: fmt.Sprintf("pipes of %s at most (pipe-max-size %s)", size(f.Largest), f.Max),
		cost: f.cost(), mend: f.sysctl(setting{"fs.pipe-max-size", fmt.Sprint(largePipe)}),
	}
}

func (f pipeSize) cost() string {
	largest := f.Largest
	if largest == 0 { // not even the size could be read
		largest = defaultSlots * int64(os.Getpagesize())
	}
	return fmt.Sprintf(smallPipes, size(largest))
}

// spent is the cost of a spent quota: a pipe that was degraded is not used at all.
func (f pipeSize) spent() string {
	if f.Largest < defaultSlots*int64(os.Getpagesize()) {
		return "Penstock uses none as small as that: " + copying
	}
	return f.cost()
}

// manyPipes is how many pipes of 1 MiB are made: more than the quota that kernels
// start with gives, 64.
const manyPipes = 80

// The kernel's answers after the last whole pipe.
const (
	endNone        = "none"           // all were made
	endDegraded    = "degraded"       // a pipe of less than the default size
	endRefused     = "refused"        // EPERM: no growing
	endFiles       = "no files"       // ENFILE: the hard quota, or the system's table
	endDescriptors = "no descriptors" // EMFILE
	endOther       = "other"
)

// pipeQuota is how many pipes the user may have.
type pipeQuota struct {
	Soft     number `json:"pipe_user_pages_soft,omitzero"` // 0: none
	Hard     number `json:"pipe_user_pages_hard,omitzero"`
	Whole    int    `json:"whole_pipes"`              // of 1 MiB, had at once
	End      string `json:"end"`                      // the end of the next one
	Degraded int64  `json:"degraded_bytes,omitempty"` // size of a pipe beyond the quota
	Budget   int64  `json:"budget_pages"`             // for Penstock's pipes
	Pipes    int64  `json:"most_pipes"`               // by the descriptors, whatever their size
	PageSize int64  `json:"page_bytes"`
	Resized  bool   `json:"resizable"`
	err      error
	place
}

func lookPipeQuota(p *process) facts {
	f := pipeQuota{
		Soft: p.parameter("fs.pipe-user-pages-soft"), Hard: p.parameter("fs.pipe-user-pages-hard"),
		PageSize: int64(os.Getpagesize()), Resized: feature.PipeResize() == nil, place: p.place,
		Pipes: max(int64(p.descriptors)/8, 1),
	}
	if pool, err := pipe.NewPool(nil); err == nil {
		f.Budget = pool.Stats().LinePages
		pool.Close()
	}
	p.lent = f.Budget
	f.fill()
	return f
}

// The limits of package pipe where no quota binds: 16 pages for each pipe, pipes on a quarter
// of the descriptors, 1 GiB at most.
const (
	defaultSlots = 16
	mostPages    = 1 << 18
)

// fill makes pipes until the kernel gives less than was asked for, and closes them.
func (f *pipeQuota) fill() {
	var open []int
	defer func() {
		for _, fd := range open {
			sys.Close(fd)
		}
	}()
	for f.End = endNone; f.Whole < manyPipes && f.End == endNone; {
		r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
		if err != nil {
			f.end(err)
			return
		}
		open = append(open, r, w)
		made, err := sys.PipeSize(w)
		if err == nil && int64(made) < defaultSlots*f.PageSize {
			f.End, f.Degraded = endDegraded, int64(made)
			return
		}
		if _, err := sys.SetPipeSize(w, largePipe); err != nil {
			f.end(err)
			return
		}
		f.Whole++
	}
}

func (f *pipeQuota) end(err error) {
	f.err = err
	switch err {
	case syscall.EPERM:
		f.End = endRefused
	case syscall.EMFILE:
		f.End = endDescriptors
	case syscall.ENFILE:
		f.End = endFiles
	default:
		f.End = endOther
	}
}

// exempt reports whether the process got more than the quota.
func (f pipeQuota) exempt() bool {
	pages := int64(f.Whole) * largePipe / f.PageSize
	return f.Soft.known && f.Soft.value > 0 && pages > f.Soft.value
}

func (f pipeQuota) judge() finding {
	verdict := finding{
		state: Degraded, cost: f.shortage(),
		found: fmt.Sprintf("%s, then %s; quota %s%s; budget %s", f.whole(), f.ended(), f.quota(), f.others(), f.budget()),
	}
	switch {
	case !f.Resized || f.End == endOther:
		verdict.state, verdict.cost = Unknown, "see splice and pipe-size"
	case f.exempt():
		return finding{state: OK, found: fmt.Sprintf("exempt from the quota: %s had; budget %s", f.whole(), f.budget())}
	case f.unbound() && f.Budget >= f.wanted():
		return finding{state: OK, found: fmt.Sprintf("%s, then %s; budget %s", f.whole(), f.ended(), f.budget())}
	case f.unbound() && !f.Soft.known:
		verdict.mend = []string{f.letRead(quotaFiles)}
	default:
		verdict.mend = f.raise()
		if !f.nested { // the quota asks for capabilities of the first user namespace
			verdict.needs = []string{"SYS_RESOURCE"}
		}
	}
	return verdict
}

// quotaFiles are the sources of Penstock's budget. Without them it takes the kernel's default
// for the quota, and assumes that it binds.
const quotaFiles = "/proc/sys/fs/pipe-user-pages-* and /proc/self/ns/user"

// unbound reports whether no quota ended the trial.
func (f pipeQuota) unbound() bool { return f.End == endNone || f.End == endDescriptors }

func (f pipeQuota) whole() string { return several(f.Whole, "pipe of 1 MiB", "pipes of 1 MiB") }

// ended returns the kernel's answer after the last whole pipe, in words.
func (f pipeQuota) ended() string {
	switch f.End {
	case endNone:
		return "no more were tried"
	case endDegraded:
		return "one of " + size(f.Degraded)
	case endDescriptors:
		return "no descriptor"
	}
	return cause(f.err)
}

func (f pipeQuota) quota() string {
	switch {
	case !f.Soft.known:
		return "unknown"
	case f.Soft.value == 0 && f.Hard.value == 0:
		return "none"
	case f.Hard.value > 0:
		return fmt.Sprintf("%s pages, %s hard", f.Soft, f.Hard)
	}
	return f.Soft.String() + " pages"
}

// budget describes Penstock's budget of the quota: half of it for large pipes at most.
func (f pipeQuota) budget() string {
	return fmt.Sprintf("%s of 64 KiB, or %s of 1 MiB", exact(f.small()), exact(f.large()))
}

func (f pipeQuota) small() int64 { return min(f.Budget/defaultSlots, f.Pipes) }
func (f pipeQuota) large() int64 { return min(f.Budget/2*f.PageSize/largePipe, f.Pipes) }

// wanted is the budget in pages if no quota were in the way.
func (f pipeQuota) wanted() int64 { return min(f.Pipes*defaultSlots, mostPages) }

// others describes the pages of the user's other processes, if they are known.
func (f pipeQuota) others() string {
	missing := f.Soft.value - int64(f.Whole)*f.largePages()
	switch {
	case f.End != endDegraded && f.End != endRefused || !f.Soft.known || missing < f.largePages():
		return ""
	case f.Whole == 0:
		return " (others of this user hold nearly all of it, or more)"
	}
	return fmt.Sprintf(" (others of this user hold about %s)", exact(missing))
}

func (f pipeQuota) largePages() int64 { return largePipe / f.PageSize }

// left is how many pages Penstock can have: its budget, or the pages that it got where these
// are fewer. A pipe that could not grow counts, one that was made too small does not.
func (f pipeQuota) left() int64 {
	had := int64(f.Whole) * f.largePages()
	switch {
	case f.unbound():
		return f.Budget
	case f.End == endRefused:
		had += defaultSlots
	}
	return min(f.Budget, had)
}

func (f pipeQuota) shortage() string {
	large := min(f.large(), f.left()/f.largePages())
	small := min(f.left()/defaultSlots, f.Pipes)
	switch {
	case small == 0:
		return "no flow gets a pipe now: " + copying
	case large == 0:
		return fmt.Sprintf("no flow gets a pipe of 1 MiB now (with 64 KiB a read of 256 KiB takes 2.0 times as long); busy at once beyond %s, flows are copied (2.4 times)", exact(small))
	}
	return fmt.Sprintf("flows busy at once: beyond %s, pipes of 64 KiB (a read of 256 KiB takes 2.0 times as long); beyond %s, copying (2.4 times)",
		exact(large), exact(small))
}

// raise says which quota would be enough.
func (f pipeQuota) raise() []string {
	enough := uint64(max(f.wanted(), 2*f.Soft.value, 1<<15)) * 8 / 7
	pages := min(int64(1)<<bits.Len64(enough-1), 2*mostPages)
	quota := []setting{{"fs.pipe-user-pages-soft", fmt.Sprint(pages)}}
	if f.Hard.value > 0 && f.Hard.value < pages {
		quota = append(quota, setting{"fs.pipe-user-pages-hard", fmt.Sprint(pages)})
	}
	mend := f.sysctl(quota...)
	if !f.Soft.known {
		for i := range mend {
			mend[i] += "; besides, " + f.letRead(quotaFiles)
		}
	}
	return mend
}

// program is the path of this program, for commands.
func program() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return "penstock"
}
