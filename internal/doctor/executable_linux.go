package doctor

import (
	"errors"

	"github.com/penstock/penstock/internal/feature"
)

// executable is whether memory that was written may be made executable, as the compiler of filters needs.
type executable struct {
	Works bool `json:"works"`

	err error
	place
}

func lookExecutable(p *process) facts {
	f := executable{err: feature.ExecutableMemory(), place: p.place}
	f.Works = f.err == nil
	return f
}

// interpreted is the cost where filters are interpreted. The figures are those of docs/filters.md.
const interpreted = "filters in WebAssembly are interpreted: a small one takes twice as long for a client, one in Go seven times; nothing else needs such memory"

func (f executable) judge() finding {
	switch {
	case f.Works:
		return finding{state: OK, found: "memory may be made executable: filters in WebAssembly are compiled"}
	case errors.Is(f.err, feature.ErrNotSupported):
		mend := f.service("MemoryDenyWriteExecute=no")
		if mend == nil {
			mend = []string{"a service manager, and security modules, that allow mprotect(2) with PROT_EXEC"}
		}
		return finding{state: Degraded, found: "refused: " + cause(f.err), cost: interpreted, mend: mend}
	}
	return finding{state: Unknown, found: "could not be tried: " + cause(f.err), cost: "if it is refused, " + interpreted}
}
