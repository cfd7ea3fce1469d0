package arena

import (
	"errors"
	"fmt"
	"sync"

	"github.com/penstock/penstock/internal/closed"
	"github.com/penstock/penstock/internal/feature"
)

// Errors that callers compare with. Get, Bytes and Put return them unwrapped, without an allocation.
var (
	// ErrBudget is returned by Get if it needs a chunk and the budget is used up.
	ErrBudget = errors.New("penstock: arena: the budget is used up")

	// ErrStale is returned for a handle that names no slot in use of this Local: the slot was put already, was
	// handed out again since, belongs to another Local, or never existed.
	ErrStale = errors.New("penstock: arena: stale handle")

	// ErrSize is returned by Get for a size that is not from 1 to MaxSlot.
	ErrSize = errors.New("penstock: arena: there is no slot of that size: ask for 1 to 65536 bytes")

	// ErrClosed is returned after Close. It matches os.ErrClosed.
	ErrClosed error = closed.Error("penstock: arena: the arena is closed, or was not made by New")

	// ErrNotSupported is matched by New's error on systems without arenas. It wraps errors.ErrUnsupported.
	ErrNotSupported = feature.ErrNotSupported
)

// Arena is a mapping and the Locals that share it. Make it with [New]: the zero Arena is closed. Its own
// methods are safe for concurrent use, except Close.
type Arena struct {
	memory // owned by the Arena, from New until Close
	config Config
	mapped int64 // bytes of the mapping

	locals []Local
	depots []*depot

	chunks   []chunk  // by offset; each belongs to the Local that has the chunk
	slots    []slot   // by unit; owned like chunks
	releases releases // by unit; owned like chunks

	fallback error // why the pages are no better, see Fallback
	unbound  error // see Unbound
}

// New maps an arena and populates it, so that a shortage of memory is an error of New and not a signal later.
// With PagesAuto it tries huge pages that were set aside, then transparent ones, then plain pages. nil means
// the zero Config. Close the arena when every slot has been put.
func New(cfg *Config) (*Arena, error) {
	c := cfg.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	nodes, err := place(c.Locals, c.Nodes)
	a := &Arena{config: c, unbound: err}
	err = a.open(nodes)
	if err != nil && nodes != nil && c.Nodes == nil { // the nodes are not required
		a.unbound = err
		err = a.open(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("penstock: arena: new: %d bytes: %w", c.Size, err)
	}
	return a, nil
}

// Errors of New that have nothing to do with the kind of pages.
var (
	// ErrBind is matched by New's error if memory could not be bound to a node of Config.Nodes.
	ErrBind = errors.New("the memory is not bound to its node")

	// ErrLock is matched by New's error if memory could not be locked.
	ErrLock = errors.New("the memory is not locked")
)

// open maps the memory and divides it. nodes is nil if nothing is bound.
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

// depotOf returns the depot of a Local's node.
func (a *Arena) depotOf(nodes []int, local int) *depot {
	for _, d := range a.depots {
		if nodes != nil && d.node == nodes[local] {
			return d
		}
	}
	return a.depots[0]
}

// mapBest maps the best available kind of pages, and lays out rs for it.
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
			break // no other kind of pages would help
		}
	}
	return missed[len(missed)-1]
}

// Local returns the Local with number i, from 0. It panics if there is none.
func (a *Arena) Local(i int) *Local { return &a.locals[i] }

// Locals returns the number of Locals.
func (a *Arena) Locals() int { return len(a.locals) }

// Pages returns the kind of memory that the arena has. It is PagesTransparent only if the kernel reports that
// some of the memory really is in huge pages. Pages, Fallback and Unbound never change, and are safe for
// concurrent use, even with Close.
func (a *Arena) Pages() Pages { return a.pages }

// Fallback returns why the memory is no better: the errors of the kinds that PagesAuto tried first. It is nil if
// there were none.
func (a *Arena) Fallback() error { return a.fallback }

// Unbound returns why no Local is bound to a node on a machine with several nodes. It is nil if Locals are
// bound, or if there is only one node.
func (a *Arena) Unbound() error { return a.unbound }

// Close unmaps the memory. The owners of all Locals must have stopped before; do not touch slices from Bytes
// any more. If slots are in use, Close changes nothing and returns an error that says how many. A second Close
// returns ErrClosed.
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
		a.locals[i].trim()      // its last chunk, if any: from now on Get asks the depot
		a.locals[i].bytes = nil // part of the heap may be there one day
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
	chunks int // of the budget, for this node
	offset int64
	bytes  int64 // of the mapping: the chunks, rounded up to whole pages
}

// regions divides the budget over the nodes, in proportion to their Locals. nodes is nil if nothing is bound.
// Each node gets at least one chunk, so the sum may be larger than size.
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

// lay places the regions one after the other, each rounded up to whole pages of kind p, and returns their total
// length. Nodes never share a huge page, whatever the kernel makes of the mapping later.
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

// hugeSize is the size of a huge page in bytes.
const hugeSize = 2 << 20

// nodesOf returns the different nodes in order of appearance.
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

// A depot holds the chunks of one node that no Local has, or of the whole arena if nothing is bound.
type depot struct {
	node int // -1: not bound

	mu     sync.Mutex
	free   []int32 // the next chunk is last
	chunks int     // free or taken
	least  int     // the fewest chunks that were ever free
	closed bool
}

func newDepot(r region) *depot {
	d := &depot{node: r.node, chunks: r.chunks, least: r.chunks, free: make([]int32, r.chunks)}
	for i := range d.free {
		d.free[i] = int32(r.offset/ChunkSize) + int32(r.chunks-1-i)
	}
	return d
}

// take returns a chunk, or ErrBudget or ErrClosed.
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

// used returns how many bytes Locals have, and the most that they ever had.
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
