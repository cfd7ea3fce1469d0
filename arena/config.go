package arena

import (
	"fmt"
	"math/bits"
	"runtime"
)

// The defaults of a Config.
const (
	// DefaultSizePerLocal is the default of Config.Size in bytes for each Local. The mapping is populated, so
	// the memory is resident from the start.
	DefaultSizePerLocal = 4 << 20

	// MinSlot and MaxSlot are the smallest and the largest slot in bytes. The sizes between them are the powers
	// of two.
	MinSlot = 256
	MaxSlot = 64 << 10

	// ChunkSize is the size of a chunk in bytes. A Local takes one chunk from the arena at a time. All slots of
	// a chunk have one size.
	ChunkSize = 64 << 10
)

// MaxLocals is the most Locals that an arena has.
const MaxLocals = 4096

// maxSize is the largest Size: the length of a slice, and units with numbers of 32 bits, allow no more.
const maxSize = min(1<<40, 1<<(bits.UintSize-2))

// Config sets up an arena. The zero value, and nil, mean the defaults.
type Config struct {
	// Size is the budget in bytes that all Locals share, rounded up to whole chunks.
	// The default is DefaultSizePerLocal for each Local. The mapping may be larger,
	// by less than a huge page for each NUMA node.
	Size int64

	// Locals is the number of Locals, GOMAXPROCS by default.
	Locals int

	// Pages says which kind of memory to take. The default, PagesAuto, takes the best
	// kind that is available; any other value fails if its kind is not available.
	Pages Pages

	// Mlock keeps the mapping from being swapped out (mlock(2)). It counts against
	// RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK; New fails beyond that.
	Mlock bool

	// Nodes is the NUMA node of each Local: its slots are bound to that node, and New fails if they cannot be. A
	// Local with -1 is not bound. With nil, Locals are spread over the nodes on which the process may run, see
	// Local.Node; then nothing is bound if there is only one node, or if binding fails (Arena.Unbound says why).
	Nodes []int
}

// withDefaults returns c, which may be nil, with its zero fields filled in.
func (c *Config) withDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Locals == 0 {
		out.Locals = runtime.GOMAXPROCS(0)
	}
	if out.Size == 0 {
		out.Size = int64(out.Locals) * DefaultSizePerLocal
	}
	return out
}

func (c *Config) check() error {
	switch {
	case c.Locals < 1 || c.Locals > MaxLocals:
		return fmt.Errorf("penstock: arena: Locals is %d; use 1 to %d, or 0 for one per P", c.Locals, MaxLocals)
	case c.Size < 0 || c.Size > maxSize:
		return fmt.Errorf("penstock: arena: Size is %d bytes; use 1 to %d, or 0 for %d per Local", c.Size, int64(maxSize), DefaultSizePerLocal)
	case c.Pages < PagesAuto || c.Pages > PagesPlain:
		return fmt.Errorf("penstock: arena: Pages is %d; use PagesAuto, PagesReserved, PagesTransparent or PagesPlain", c.Pages)
	case c.Nodes != nil && len(c.Nodes) != c.Locals:
		return fmt.Errorf("penstock: arena: Nodes has %d entries for %d Locals; use one per Local, or nil", len(c.Nodes), c.Locals)
	}
	for i, n := range c.Nodes {
		if n < -1 || n > maxNode {
			return fmt.Errorf("penstock: arena: Nodes[%d] is %d; use 0 to %d, or -1 for none", i, n, maxNode)
		}
	}
	return nil
}

// maxNode is the largest NUMA node number that a kernel can be built for (CONFIG_NODES_SHIFT is at most 10).
const maxNode = 1023

// Pages is a kind of memory.
type Pages int

// The kinds, best first.
const (
	PagesAuto        Pages = iota // the best kind available
	PagesReserved                 // huge pages of 2 MiB that the administrator has set aside (MAP_HUGETLB)
	PagesTransparent              // huge pages that the kernel makes on demand (MADV_HUGEPAGE)
	PagesPlain                    // pages of the machine's usual size
)

// String returns the kind in words.
func (p Pages) String() string {
	switch p {
	case PagesAuto:
		return "auto"
	case PagesReserved:
		return "reserved huge pages"
	case PagesTransparent:
		return "transparent huge pages"
	case PagesPlain:
		return "plain pages"
	}
	return "unknown pages"
}

// kinds lists the kinds to try for a budget of size bytes. A budget of less than a huge page
// gets no huge page, because that would make the process larger than configured.
func (p Pages) kinds(size int64) []Pages {
	switch {
	case p != PagesAuto:
		return []Pages{p}
	case size < hugeSize:
		return []Pages{PagesPlain}
	}
	return []Pages{PagesReserved, PagesTransparent, PagesPlain}
}
