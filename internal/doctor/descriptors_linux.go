package doctor

import (
	"fmt"
	"math"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// descriptors is how many descriptors the process may have.
type descriptors struct {
	Soft     number `json:"soft,omitzero"`
	Hard     number `json:"hard,omitzero"`
	NrOpen   number `json:"nr_open,omitzero"` // fs.nr_open: the most that hard can be
	Raises   bool   `json:"raisable"`         // this process may raise the hard limit
	Free     number `json:"free,omitzero"`    // had, up to 64
	Sessions int    `json:"sessions"`         // that soft allows

	place
}

func lookDescriptors(p *process) facts {
	f := descriptors{NrOpen: p.parameter("fs.nr_open"), place: p.place, Free: p.free}
	soft, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		return f
	}
	f.Soft, f.Hard = known(min(soft, 1<<31)), known(min(hard, 1<<31))
	// The runtime has raised soft to hard already, unless it may not.
	if sys.SetRlimitNoFile(hard, hard) == nil {
		f.Soft = f.Hard
	}
	f.Raises = hard < math.MaxUint64 && sys.SetRlimitNoFile(hard+1, hard+1) == nil
	if f.Raises || f.Soft == f.Hard {
		sys.SetRlimitNoFile(soft, hard)
	}
	p.descriptors = int(f.Soft.value)
	f.Sessions = p.Sessions(p.descriptors)
	return f
}

// freeDescriptors makes descriptors until there are no more, at most 64, and closes
// them. It is not known if something else than their number ended it.
func freeDescriptors() number {
	var open []int
	defer func() {
		for _, fd := range open {
			sys.Close(fd)
		}
	}()
	for len(open) < 64 {
		fd, err := sys.Eventfd()
		switch err {
		case nil:
			open = append(open, fd)
		case syscall.EMFILE, syscall.ENFILE:
			return known(len(open))
		default:
			return number{}
		}
	}
	return known(len(open))
}

// plentyDescriptors is from where on the limit is not worth a word: 4,900 sessions.
const plentyDescriptors = 10_000

func (f descriptors) judge() finding {
	found := fmt.Sprintf("%s descriptors, soft and hard", f.Soft)
	if f.Soft != f.Hard {
		found = fmt.Sprintf("%s descriptors (hard limit %s)", f.Soft, f.Hard)
	}
	found += fmt.Sprintf(": %s, 2 for each", sessions(f.Sessions))
	if f.Raises {
		found += "; may be raised"
	}
	switch {
	case f.Free.known && f.Free.value < fewDescriptors:
		return finding{
			state: Missing, unable: true, found: fmt.Sprintf("only %s descriptors are left, of %s", f.Free, f.Soft),
			cost: fmt.Sprintf("Penstock cannot run: with one session it needs %d", fewDescriptors), mend: f.raise(),
		}
	case !f.Soft.known:
		return finding{state: Unknown, found: "RLIMIT_NOFILE cannot be read", cost: "sessions end at half of it"}
	case f.Soft.value < plentyDescriptors:
		return finding{
			state: Degraded, found: found,
			cost: fmt.Sprintf("accepting pauses at %s; pipes get a quarter of the descriptors: %s of them", sessions(f.Sessions), exact(f.Soft.value/8)),
			mend: f.raise(),
		}
	}
	return finding{state: OK, found: found}
}

// manyDescriptors is the limit that container engines and systemd give services that ask for
// many: 500,000 sessions.
const manyDescriptors = 1 << 20

func (f descriptors) raise() []string {
	n := int64(manyDescriptors)
	if f.NrOpen.known {
		n = min(n, f.NrOpen.value)
	}
	limit := fmt.Sprintf("LimitNOFILE=%d", n)
	switch {
	case f.container && f.engine == inKubernetes: // a pod cannot ask for it
		return []string{"on the node: systemctl edit containerd.service, or that of its other runtime: " + limit}
	case f.container:
		return []string{f.started(fmt.Sprintf("--ulimit nofile=%d:%d", n, n), "")}
	case f.unit != "":
		return f.service(limit)
	}
	mend := append(f.service(limit), fmt.Sprintf("echo '* - nofile %d' >> /etc/security/limits.d/penstock.conf, and log in anew", n))
	switch {
	case f.Raises:
		return append([]string{fmt.Sprintf("ulimit -n %d", n)}, mend...)
	case f.Soft.value < f.Hard.value:
		return append([]string{fmt.Sprintf("ulimit -n %d", f.Hard.value)}, mend...)
	}
	return mend
}

// sessions is a number of them.
func sessions(n int) string { return several(n, "session", "sessions") }
