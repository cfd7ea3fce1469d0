package arena

import "sync"

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
