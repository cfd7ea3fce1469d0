package doctor

import (
	"fmt"

	"github.com/penstock/penstock/arena"
)

// arenaMemory is the memory of an arena for one loop, of the default size.
type arenaMemory struct {
	Pages string `json:"pages,omitempty"`
	Bytes int64  `json:"bytes"`
	Huge  int64  `json:"huge_bytes"`
	Bound bool   `json:"bound"`

	setting                string // of transparent huge pages
	allowed                number
	err, fallback, unbound error
	place
}

func lookArena(p *process) facts {
	f := arenaMemory{place: p.place}
	f.setting, f.allowed = p.transparent()
	a, err := arena.New(&arena.Config{Locals: 1})
	if err != nil {
		f.err = err
		return f
	}
	defer a.Close()
	s := a.Stats()
	f.Pages, f.Bytes, f.Huge = a.Pages().String(), s.Mapped, s.Huge
	f.Bound, f.fallback, f.unbound = a.Local(0).Node() >= 0, a.Fallback(), a.Unbound()
	return f
}

func (f arenaMemory) judge() finding {
	if f.err != nil {
		return finding{
			state: Missing, found: "none: " + f.err.Error(),
			cost: "loops have no buffers for bytes that a slow destination does not take",
			mend: []string{"more memory, or a larger limit of the cgroup's"},
		}
	}
	found := size(f.Bytes) + " of " + f.Pages
	if f.Huge > 0 && f.Huge < f.Bytes {
		found += ", " + size(f.Huge) + " of it huge"
	}
	if f.unbound != nil {
		found += "; not bound to a NUMA node: " + cause(f.unbound)
	}
	if 2*f.Huge >= f.Bytes {
		return finding{state: OK, found: found}
	}
	return finding{
		state: Degraded, found: found,
		cost: fmt.Sprintf("the buffers of a loop are %s pages to the CPU instead of %s", exact(f.Bytes>>12), exact(f.Bytes>>21)),
		mend: f.moreHugePages(f.setting, f.allowed),
	}
}
