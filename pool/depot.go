package pool

import (
	"slices"
	"sync"
	"sync/atomic"
)

// The depot is where processors exchange items, by whole magazines, and it keeps the bound. At any time each of
// MaxIdle slots is either free (counted in free), or reserved for one magazine of a shard (counted in its lim),
// or taken by an item in the depot:
//
//	MaxIdle = free + Σ shards' lim + Σ depot's n
//
// Items fill only reserved slots, so there are never more than MaxIdle. A shard reserves for a whole magazine
// at once, which keeps the shared counter off the fast path. When slots run out, unused reservations are called
// back (see reclaim), so that a Put is refused only when MaxIdle items are idle.
//
// The depot's mutex is taken last: by a caller that is inside a shard or inside all of them. A caller that has
// entered a shard is pinned and must not block: see core.lockDepot.
type depot[T any] struct {
	mu    sync.Mutex
	size  uint32        // of a magazine
	full  []magazine[T] // with lim = n > 0; the oldest first
	spare [][]T         // cleared arrays of magazines, for reuse
	free  int           // free slots

	count atomic.Int32 // len(full), readable without mu
}

// maxSpare bounds the arrays that are kept for reuse.
const maxSpare = 64

// reserve takes at most want slots. When few are left it takes at most half of them, so that others need not call
// them back.
func (d *depot[T]) reserve(want uint32) uint32 {
	n := min(int(want), d.free-d.free/2)
	d.free -= n
	return uint32(n)
}

// unreserve frees the unfilled slots of m.
func (d *depot[T]) unreserve(m *magazine[T]) {
	d.free += int(m.lim - m.n)
	m.lim = m.n
}

// array returns an empty array for a magazine.
func (d *depot[T]) array() []T {
	if n := len(d.spare); n > 0 {
		a := d.spare[n-1]
		d.spare[n-1] = nil
		d.spare = d.spare[:n-1]
		return a
	}
	return make([]T, d.size)
}

// store takes m over, even if it is empty.
func (d *depot[T]) store(m magazine[T]) {
	d.unreserve(&m)
	switch {
	case m.n > 0:
		d.full = append(d.full, m)
		d.count.Store(int32(len(d.full)))
	case m.items != nil && len(d.spare) < maxSpare:
		d.spare = append(d.spare, m.items)
	}
}

// load replaces one of the two empty magazines of s by the depot's newest, if there is one.
func (d *depot[T]) load(s *shard[T]) bool {
	n := len(d.full)
	if n == 0 {
		return false
	}
	s.size = min(2*s.size, d.size)
	d.store(s.prev)
	s.prev = s.loaded
	s.loaded = d.full[n-1]
	d.full[n-1] = magazine[T]{}
	d.full = d.full[:n-1]
	d.count.Store(int32(n - 1))
	return true
}

// widen makes room in the loaded magazine of s, if both its magazines are full and slots are free.
func (d *depot[T]) widen(s *shard[T]) bool {
	if d.free == 0 {
		return false
	}
	if s.loaded.lim >= s.size {
		s.swap()
	}
	if s.loaded.lim >= s.size {
		d.store(s.loaded)
		s.loaded = magazine[T]{}
	}
	if s.loaded.items == nil {
		s.loaded.items = d.array()
	}
	s.loaded.lim += d.reserve(s.size - s.loaded.lim)
	return true
}

// surrender moves some idle items of s to the depot: one of two magazines, or the older half of a single one. It
// makes the magazines of s smaller, so that further items come to the depot unasked. They grow when s loads items
// from the depot.
func (d *depot[T]) surrender(s *shard[T]) {
	s.size = max(s.size/2, min(smallMagazine, d.size))
	if s.loaded.n == 0 {
		s.swap()
	}
	if s.prev.n > 0 {
		d.store(s.prev)
		s.prev = magazine[T]{}
	} else if k := (s.loaded.n + 1) / 2; k > 0 {
		// The items take their slots with them.
		m := s.loaded.split(k, d.array())
		s.loaded.lim -= k
		d.store(m)
	}
	d.clip(&s.loaded, s.size)
}

// clip frees the slots of m beyond size.
func (d *depot[T]) clip(m *magazine[T], size uint32) {
	if size = max(size, m.n); size < m.lim {
		d.free += int(m.lim - size)
		m.lim = size
	}
}

// compact removes the empty magazines.
func (d *depot[T]) compact() {
	d.full = slices.DeleteFunc(d.full, func(m magazine[T]) bool { return m.n == 0 })
	d.count.Store(int32(len(d.full)))
}

// magazineSize is the largest number of items in a magazine: so many operations share the cost of one visit to
// the depot.
const magazineSize = 64

// smallMagazine is the least lim of a processor from which others have to take. The smaller lim is, the sooner its
// surplus comes to the depot. BenchmarkRatio/crossP/batch=1 shows the difference.
const smallMagazine = 16

// A magazine is a stack of idle items. The holder of its shard, or of the depot, may use it.
//
// At any time low ≤ n ≤ lim ≤ len(items), and items beyond n are zero, so that no magazine keeps garbage alive.
// MaxIdle accounts for the n items and the lim-n free slots: see depot.
//
// low is the low-water mark, the least n since the last sweep. items[:low] have not moved since then; any item
// above was pushed later. Hence a sweep that drops items[:low] drops exactly the items that were idle for the
// whole interval.
type magazine[T any] struct {
	items       []T
	n, low, lim uint32
}

func (m *magazine[T]) push(x T) {
	m.items[m.n] = x
	m.n++
}

func (m *magazine[T]) pop() T {
	m.n--
	n := m.n
	m.low = min(m.low, n)
	x := m.items[n]
	var zero T
	m.items[n] = zero
	return x
}

// split moves the k items that were idle longest to dst, an array of the same size. Their slots stay with m.
func (m *magazine[T]) split(k uint32, dst []T) magazine[T] {
	copy(dst, m.items[:k])
	d := magazine[T]{items: dst, n: k, low: min(k, m.low), lim: k}
	m.shift(k)
	return d
}

// shift drops the k items that were idle longest.
func (m *magazine[T]) shift(k uint32) {
	copy(m.items, m.items[k:m.n])
	clear(m.items[m.n-k : m.n])
	m.n -= k
	m.low -= min(k, m.low)
}

// shed removes the k items that were idle longest and returns them. If that is all, it returns the magazine's
// own array.
func (m *magazine[T]) shed(k uint32) []T {
	if k == m.n {
		out := m.items[:k]
		m.items, m.n, m.low, m.lim = nil, 0, 0, 0
		return out
	}
	out := append([]T(nil), m.items[:k]...)
	m.shift(k)
	m.lim -= k
	return out
}
