package doctor

import (
	"io/fs"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// tracing is the privileges of penstock trace. The command itself finds out by loading programs.
type tracing struct {
	Lacks []string `json:"lacks"` // capabilities
	Types bool     `json:"types"` // the kernel has its type information

	place
}

func lookTrace(p *process) facts {
	f := tracing{Lacks: []string{}, place: p.place}
	_, err := fs.Stat(p.files, "sys/kernel/btf/vmlinux")
	f.Types = err == nil
	if f.nested || !f.effective.set.Has(sys.CAP_SYS_ADMIN) {
		for _, c := range []struct {
			bit  int
			name string
		}{{sys.CAP_BPF, "CAP_BPF"}, {sys.CAP_PERFMON, "CAP_PERFMON"}} {
			if f.nested || !f.effective.set.Has(c.bit) {
				f.Lacks = append(f.Lacks, c.name)
			}
		}
	}
	return f
}

func (f tracing) judge() finding {
	const cost = "penstock trace has no events of single connections, only the kernel's counters"
	switch {
	case !f.effective.known:
		return finding{state: Unknown, found: "capget is refused", cost: ifMissing + cost}
	case !f.Types:
		return finding{state: Degraded, found: "the kernel has no type information (CONFIG_DEBUG_INFO_BTF)", cost: cost, mend: []string{"a kernel with CONFIG_DEBUG_INFO_BTF=y"}}
	case len(f.Lacks) > 0:
		return finding{state: Degraded, found: "without " + strings.Join(f.Lacks, " and "), cost: cost, mend: []string{"penstock trace, and not the process that serves, as a user with CAP_BPF and CAP_PERFMON"}}
	}
	return finding{state: OK, found: "penstock trace may attach to tracepoints"}
}
