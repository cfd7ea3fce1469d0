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
	HugeTLB     bool   `json:"map_hugetlb"`
	Transparent bool   `json:"madv_hugepage"`

	hugeTLB, transparent error
	place
}

func lookHugePages(p *patient) facts {
	const dir = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	f := hugePages{
		Reserved: p.number(dir + "nr_hugepages"), Free: p.number(dir + "free_hugepages"), place: p.place,
		hugeTLB: feature.HugePages(), transparent: feature.TransparentHugePages(),
	}
	f.HugeTLB, f.Transparent = f.hugeTLB == nil, f.transparent == nil
	setting, _ := p.text("sys/kernel/mm/transparent_hugepage/enabled")
	f.Setting = chosen(setting)
	return f
}

// chosen returns what stands in brackets, as in "always [madvise] never".
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
		mend: append(f.sysctl(setting{"vm.nr_hugepages", "64"}), "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
	}
	if errors.Is(f.transparent, fs.ErrNotExist) || errors.Is(f.transparent, fs.ErrPermission) && !errors.Is(f.transparent, syscall.EPERM) {
		finding.state = Unknown
	}
	return finding
}
