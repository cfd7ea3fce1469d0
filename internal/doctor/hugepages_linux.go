package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
)

// hugePages is which memory of 2 MiB pages there is to have.
type hugePages struct {
	Reserved    number `json:"nr_hugepages,omitzero"` // of 2 MiB
	Free        number `json:"free_hugepages,omitzero"`
	Setting     string `json:"transparent_hugepage,omitempty"`
	Allowed     number `json:"thp_enabled,omitzero"` // 0: this process gets none, whatever the setting
	HugeTLB     bool   `json:"map_hugetlb"`
	Transparent bool   `json:"madv_hugepage"`

	hugeTLB, transparent error
	place
}

func lookHugePages(p *process) facts {
	const dir = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	f := hugePages{
		Reserved: p.number(dir + "nr_hugepages"), Free: p.number(dir + "free_hugepages"), place: p.place,
		hugeTLB: feature.HugePages(), transparent: feature.TransparentHugePages(),
	}
	f.HugeTLB, f.Transparent = f.hugeTLB == nil, f.transparent == nil
	f.Setting, f.Allowed = p.transparent()
	return f
}

// transparent returns the setting of transparent huge pages, and whether this process may have
// any: prctl(2), PR_SET_THP_DISABLE, which is inherited, takes them away (proc_pid_status(5),
// THP_enabled).
func (h host) transparent() (setting string, allowed number) {
	text, _ := h.text("sys/kernel/mm/transparent_hugepage/enabled")
	return chosen(text), h.status("THP_enabled")
}

// hugePagesAside sets 128 MiB of them aside.
var hugePagesAside = setting{"vm.nr_hugepages", "64"}

// moreHugePages says how to have some: set aside, which works everywhere, or transparent, where
// they are not switched on already.
func (p place) moreHugePages(setting string, allowed number) []string {
	mend := p.sysctl(hugePagesAside)
	switch {
	case allowed == known(0):
		mend = append(mend, "start it without PR_SET_THP_DISABLE, which has switched transparent ones off for this process (THP_enabled in /proc/self/status)")
	case setting != "madvise" && setting != "always":
		mend = append(mend, p.onHost("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"))
	}
	return mend
}

// chosen returns the word in brackets, as in "always [madvise] never".
func chosen(setting string) string {
	_, after, _ := strings.Cut(setting, "[")
	word, _, _ := strings.Cut(after, "]")
	return word
}

func (f hugePages) judge() finding {
	switch {
	case f.HugeTLB && f.Transparent:
		return finding{state: OK, found: fmt.Sprintf("had, set aside (%s free) as well as transparent", f.Free)}
	case f.HugeTLB:
		return finding{state: OK, found: fmt.Sprintf("had of those set aside (%s free); none transparent", f.Free)}
	case f.Transparent:
		return finding{state: OK, found: fmt.Sprintf("had by madvise; set aside: %s", f.Reserved)}
	}
	finding := finding{
		state: Missing, found: fmt.Sprintf("none: %s; %s", cause(f.hugeTLB), cause(f.transparent)),
		cost: "64 MiB of buffers are 16,384 pages to the CPU instead of 32",
		mend: f.moreHugePages(f.Setting, f.Allowed),
	}
	if errors.Is(f.transparent, fs.ErrNotExist) || errors.Is(f.transparent, fs.ErrPermission) && !errors.Is(f.transparent, syscall.EPERM) {
		finding.state = Unknown
	}
	return finding
}
