package pool

// magazineSize is the most items of one magazine: how many operations share the
// price of one visit to the depot.
const magazineSize = 64

// smallMagazine is the least lim of a processor from which others have to take, so that it
// sends them its surplus sooner. BenchmarkRatio/crossP/batch=1 shows the difference.
const smallMagazine = 16

// A magazine is a stack of idle items. The holder of its shard, or of the depot, may use it.
//
// At any time low ≤ n ≤ lim ≤ len(items), and items beyond n are zero, so that no magazine
// keeps garbage alive. The n items and the lim-n free slots are all accounted for in MaxIdle:
// see depot.
//
// low is the low-water mark, the least n since the last sweep. items[:low] have not moved
// since then; any above was pushed after it. Hence a sweep that drops items[:low] drops
// exactly the items that were idle for the whole interval.
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
	if mutant != noLowWater {
		m.low = min(m.low, n)
	}
	x := m.items[n]
	var zero T
	m.items[n] = zero
	return x
}

// split moves the k items that are idle for longest to dst, which is as
// large. The slots that they leave stay with the magazine.
func (m *magazine[T]) split(k uint32, dst []T) magazine[T] {
	copy(dst, m.items[:k])
	d := magazine[T]{items: dst, n: k, low: min(k, m.low), lim: k}
	m.shift(k)
	return d
}

// shift drops the k items that are idle for longest.
func (m *magazine[T]) shift(k uint32) {
	copy(m.items, m.items[k:m.n])
	clear(m.items[m.n-k : m.n])
	m.n -= k
	m.low -= min(k, m.low)
}

// shed removes the k items that are idle for longest and returns them. A magazine
// that loses all gives its array away with them.
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
