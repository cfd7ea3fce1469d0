package arena

import (
	"errors"
	"fmt"
	"sync"

	"github.com/penstock/penstock/internal/closed"
	"github.com/penstock/penstock/internal/feature"
)

// Errors that callers compare with. Get, Bytes and Put return their errors as they
// are, without an allocation.
var (
	// ErrBudget is returned by Get if a chunk is needed and the budget is spent.
	ErrBudget = errors.New("penstock: arena: the budget is used up")

	// ErrStale is returned for a handle that names no slot in use of this Local: the slot
	// was put already, was handed out again since, belongs to another Local, or never
	// existed.
	ErrStale = errors.New("penstock: arena: stale handle")

	// ErrSize is Get's for a size that is not from 1 to MaxSlot.
	ErrSize = errors.New("penstock: arena: there is no slot of that size: ask for 1 to 65536 bytes")

	// ErrClosed is returned after Close. It matches os.ErrClosed.
	ErrClosed error = closed.Error("penstock: arena: the arena is closed, or was not made by New")

	// ErrNotSupported is matched by New's error where there are no arenas. It wraps
	// errors.ErrUnsupported.
	ErrNotSupported = feature.ErrNotSupported
)

// Arena is a mapping and the Locals that share it. Make it with [New]: the zero Arena is a closed one. Its own methods
// are safe for concurrent use, except Close.
type Arena struct {
	memory // owned by the Arena, from New until Close
	config Config
	mapped int64 // bytes of the mapping

	locals []Local
	depots []*depot

	chunks   []chunk  // by offset; each is the Local's that has the chunk
	slots    []slot   // by unit; likewise
	releases releases // by unit; likewise

	fallback error // why the pages are no better
	unbound  error // why nothing is bound where something could be
}

// New maps an arena and populates it, so that a shortage of memory is an error of New
// and not a signal later. With PagesAuto it tries huge pages that were set aside,
// transparent ones, then plain ones. nil stands for the zero Config. Close it when
// every slot has been put.
func New(cfg *Config) (*Arena, error) {
	c := cfg.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	nodes, err := place(c.Locals, c.Nodes)
	a := &Arena{config: c, unbound: err}
	err = a.open(nodes)
	if err != nil && nodes != nil && c.Nodes == nil { // not insisted on
		a.unbound = err
		err = a.open(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("penstock: arena: new: %d bytes: %w", c.Size, err)
	}
	return a, nil
}

// Errors of New that are not the pages' fault.
var (
	// ErrBind is matched by New's error if memory could not be bound to a node of Config.Nodes.
	ErrBind = errors.New("the memory is not bound to its node")

	// ErrLock is matched by New's error if memory could not be locked.
	ErrLock = errors.New("the memory is not locked")
)

// open maps the memory and divides it. nodes is nil if nothing is to be bound.
func (a *Arena) open(nodes []int) error {
	rs := regions(a.config.Size, nodes)
	if err := a.mapBest(rs); err != nil {
		return err
	}
	if invariants {
		poison(a.bytes)
	}
	a.mapped = int64(len(a.bytes))
	a.chunks = make([]chunk, len(a.bytes)/ChunkSize)
	a.slots = make([]slot, len(a.bytes)/MinSlot)
	a.releases = newReleases(len(a.slots))
	for _, r := range rs {
		a.depots = append(a.depots, newDepot(r))
	}
	a.locals = make([]Local, a.config.Locals)
	for i := range a.locals {
		a.locals[i].init(a, a.depotOf(nodes, i))
	}
	return nil
}

// depotOf returns the depot of the node of a Local.
func (a *Arena) depotOf(nodes []int, local int) *depot {
	for _, d := range a.depots {
		if nodes != nil && d.node == nodes[local] {
			return d
		}
	}
	return a.depots[0]
}

// mapBest maps the first kind of pages that there is, and lays out rs for it.
func (a *Arena) mapBest(rs []region) error {
	var missed []error
	for _, p := range a.config.Pages.kinds(a.config.Size) {
		m, err := mapPages(p, rs, lay(rs, p), a.config.Mlock)
		if err == nil {
			a.memory, a.fallback = m, errors.Join(missed...)
			return nil
		}
		missed = append(missed, fmt.Errorf("%v: %w", p, err))
		if errors.Is(err, ErrBind) || errors.Is(err, ErrLock) {
			break // it is not the pages' fault
		}
	}
	return missed[len(missed)-1]
}

// Local returns the Local of that number, from 0. It panics if there is none.
func (a *Arena) Local(i int) *Local { return &a.locals[i] }

// Locals returns their number.
func (a *Arena) Locals() int { return len(a.locals) }

// Pages returns the kind of memory that the arena has: PagesTransparent only if the kernel
// reports that some of it really is in huge pages. Like Fallback and Unbound it never changes,
// and is safe for concurrent use, Close included.
func (a *Arena) Pages() Pages { return a.pages }

// Fallback returns why the memory is no better: the kinds that were tried with PagesAuto
// before Pages. It is nil if there was none.
func (a *Arena) Fallback() error { return a.fallback }

// Unbound returns why no Local is bound to a node on a machine with several. It is nil if they
// are, or if there is one node only.
func (a *Arena) Unbound() error { return a.unbound }

// Close unmaps the memory. The owners of all Locals must have stopped before; slices from
// Bytes must not be touched any more. If slots are in use, Close changes nothing and returns
// an error that says how many. A second Close returns ErrClosed.
func (a *Arena) Close() error {
	if a.bytes == nil {
		return ErrClosed
	}
	out := int64(0)
	for i := range a.locals {
		out += a.locals[i].out()
	}
	if out > 0 {
		return fmt.Errorf("penstock: arena: close: %d slots are still in use: put them back first", out)
	}
	if invariants {
		a.checkAll()
	}
	for i := range a.locals {
		a.locals[i].trim()      // its last chunk, if any: Get asks the depot from now on
		a.locals[i].bytes = nil // the heap may be there one day
	}
	for _, d := range a.depots {
		d.close()
	}
	if err := a.unmap(); err != nil {
		return fmt.Errorf("penstock: arena: close: %w", err)
	}
	return nil
}

// A region is the part of the mapping for one node.
type region struct {
	node   int // -1: not bound
	chunks int // of the budget
	offset int64
	bytes  int64 // of the mapping: the chunks, rounded up
}

// regions divides the budget over the nodes of the Locals, by their number. nodes
// is nil if nothing is to be bound. Each node gets one chunk at least, so the sum
// may be larger than size.
func regions(size int64, nodes []int) []region {
	chunks := int((size + ChunkSize - 1) / ChunkSize)
	if nodes == nil {
		return []region{{node: -1, chunks: chunks}}
	}
	var out []region
	seen := 0
	for _, n := range nodesOf(nodes) {
		before := chunks * seen / len(nodes)
		seen += count(nodes, n)
		out = append(out, region{node: n, chunks: max(1, chunks*seen/len(nodes)-before)})
	}
	return out
}

// lay places the regions one after the other, each rounded up to whole pages of that
// kind, and returns their total length. Several nodes cannot share a huge page,
// whatever the kernel makes of the mapping later.
func lay(rs []region, p Pages) int64 {
	granule := int64(ChunkSize)
	if p != PagesPlain || len(rs) > 1 {
		granule = hugeSize
	}
	at := int64(0)
	for i := range rs {
		r := &rs[i]
		r.offset = at
		r.bytes = (int64(r.chunks)*ChunkSize + granule - 1) / granule * granule
		at += r.bytes
	}
	return at
}

// hugeSize is the size of the huge pages that are asked for, in bytes.
const hugeSize = 2 << 20

// nodesOf returns the different nodes in the order in which they come.
func nodesOf(nodes []int) (different []int) {
	for _, n := range nodes {
		if count(different, n) == 0 {
			different = append(different, n)
		}
	}
	return different
}

func count(nodes []int, node int) (n int) {
	for _, x := range nodes {
		if x == node {
			n++
		}
	}
	return n
}

// A depot has the chunks of one node that no Local has, or all of them where
// nothing is bound.
type depot struct {
	node int // -1: not bound

	mu     sync.Mutex
	free   []int32 // the next one last
	chunks int     // of the depot, in it or out
	least  int     // the fewest that were ever free
	closed bool
}

func newDepot(r region) *depot {
	d := &depot{node: r.node, chunks: r.chunks, least: r.chunks, free: make([]int32, r.chunks)}
	for i := range d.free {
		d.free[i] = int32(r.offset/ChunkSize) + int32(r.chunks-1-i)
	}
	return d
}

// take returns a chunk, ErrBudget or ErrClosed.
func (d *depot) take() (int32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return none, ErrClosed
	}
	last := len(d.free) - 1
	if last < 0 {
		return none, ErrBudget
	}
	n := d.free[last]
	d.free = d.free[:last]
	d.least = min(d.least, last)
	return n, nil
}

func (d *depot) give(n int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, n)
}

// used returns how many bytes Locals have, and the most that they have had.
func (d *depot) used() (now, peak int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(d.chunks-len(d.free)) * ChunkSize, int64(d.chunks-d.least) * ChunkSize
}

func (d *depot) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}
