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
	locations map[uint64]*profile.Location // by address
	functions map[string]*profile.Function
}

// stack returns the locations of a record's addresses, from the innermost one. Marks among them say whether those that
// follow are of the kernel. All but the first of each part are return addresses, which may be of the next function.
func (b *builder) stack(addresses string) (list []*profile.Location) {
	kernel, first := false, true
	for ; len(addresses) >= 8; addresses = addresses[8:] {
		at := binary.NativeEndian.Uint64([]byte(addresses[:8]))
		switch {
		case at == sys.PERF_CONTEXT_KERNEL:
			kernel, first = true, true
			continue
		case at >= sys.PERF_CONTEXT_MAX:
			kernel, first = false, true
			continue
		}
		if !first {
			at--
		}
		first = false
		list = append(list, b.location(at, kernel))
	}
	return list
}

func (b *builder) location(at uint64, kernel bool) *profile.Location {
	if l := b.locations[at]; l != nil {
		return l
	}
	var where symbol
	if kernel {
		where = b.names.kernel.at(at)
	} else {
		where = b.names.at(at)
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Address: at, Line: []profile.Line{{Function: b.function(where), Line: int64(where.line)}}}
	b.locations[at] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *builder) function(of symbol) *profile.Function {
	if f := b.functions[of.name]; f != nil {
		return f
	}
	f := &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: of.name, SystemName: of.name, Filename: of.file}
	b.functions[of.name] = f
	b.p.Function = append(b.p.Function, f)
	return f
}
