package doctor

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// ioUring is whether rings can be made.
type ioUring struct {
	Works    bool   `json:"works"`
	Disabled number `json:"io_uring_disabled,omitzero"` // 0: for none, 1: for most, 2: for all

	err error
	place
}

func lookIoUring(p *process) facts {
	f := ioUring{Disabled: p.parameter("kernel.io_uring_disabled"), err: feature.IoUring(), place: p.place}
	f.Works = f.err == nil
	if f.Disabled.value == 0 {
		p.sandboxUnused(f.err)
	}
	return f
}

func (f ioUring) judge() finding {
	switch {
	case f.Works:
		return finding{state: OK, found: "rings can be made; this release serves no session by them"}
	case f.Disabled.value > 0 && errors.Is(f.err, feature.ErrNotSupported):
		return unused(fmt.Sprintf("forbidden by kernel.io_uring_disabled = %s", f.Disabled))
	case errors.Is(f.err, feature.ErrNotSupported):
		return unused("refused: " + cause(f.err))
	}
	return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: ifMissing + "nothing: this release does not use it"}
}

// unused is the verdict on a feature that is missing, and is not used.
func unused(found string) finding {
	return finding{state: Unused, found: found + "; this release does not use it"}
}

// bpf is which maps can be made.
type bpf struct {
	Maps         bool   `json:"maps"`
	Sockmap      bool   `json:"sockmap"`
	Unprivileged number `json:"unprivileged_bpf_disabled,omitzero"`
	CapBPF       bool   `json:"cap_bpf"` // or CAP_SYS_ADMIN

	maps, sockmap error
	place
}

func lookBPF(p *process) facts {
	f := bpf{
		Unprivileged: p.parameter("kernel.unprivileged_bpf_disabled"), place: p.place,
		CapBPF: !p.nested && (p.effective.set.Has(sys.CAP_BPF) || p.effective.set.Has(sys.CAP_SYS_ADMIN)),
		maps:   feature.BPF(), sockmap: feature.Sockmap(),
	}
	f.Maps, f.Sockmap = f.maps == nil, f.sockmap == nil
	if f.CapBPF {
		p.sandboxUnused(f.maps)
	}
	return f
}

func (f bpf) judge() finding {
	err := f.maps
	if f.Maps {
		err = f.sockmap
	}
	switch {
	case f.Maps && f.Sockmap:
		return finding{state: OK, found: "maps can be made, also of sockets; only lane makes any, see there"}
	case !errors.Is(err, feature.ErrNotSupported):
		return finding{state: Unknown, found: "could not be tried: " + cause(err), cost: ifMissing + "nothing: this release does not use it"}
	case f.Maps:
		return unused("maps can be made, but none of sockets: " + cause(err))
	case f.CapBPF:
		return unused("refused: " + cause(err))
	}
	return unused("refused for want of CAP_BPF: " + cause(err))
}
