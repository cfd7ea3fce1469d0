package perfevent

import (
	"encoding/binary"

	"github.com/google/pprof/profile"

	"github.com/penstock/penstock/internal/sys"
)

// A builder makes the locations of a profile.
type builder struct {
	p         *profile.Profile
	names     *symbols
	locations map[place]*profile.Location
	functions map[string]*profile.Function
}

// A place is an address of a process, or of the kernel, which has no number.
type place struct {
	pid int
	at  uint64
}

// stack returns the locations of a record's addresses, from the innermost one. Marks among them say whether those that
// follow are of the kernel. All but the first of each part are return addresses, which may be of the next function.
func (b *builder) stack(pid int, addresses string) (list []*profile.Location) {
	in, first := pid, true
	for ; len(addresses) >= 8; addresses = addresses[8:] {
		at := binary.NativeEndian.Uint64([]byte(addresses[:8]))
		switch {
		case at == sys.PERF_CONTEXT_KERNEL:
			in, first = 0, true
			continue
		case at >= sys.PERF_CONTEXT_MAX:
			in, first = pid, true
			continue
		}
		if !first {
			at--
		}
		first = false
		list = append(list, b.location(place{in, at}))
	}
	return list
}

func (b *builder) location(of place) *profile.Location {
	if l := b.locations[of]; l != nil {
		return l
	}
	where := b.names.inKernel(of.at)
	if of.pid != 0 {
		where = b.names.at(of.pid, of.at)
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Address: of.at, Line: []profile.Line{{Function: b.function(where), Line: int64(where.line)}}}
	b.locations[of] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *builder) function(of symbol) *profile.Function {
	key := of.name + "\x00" + of.file // of two programs
	if f := b.functions[key]; f != nil {
		return f
	}
	f := &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: of.name, SystemName: of.name, Filename: of.file}
	b.functions[key] = f
	b.p.Function = append(b.p.Function, f)
	return f
}
