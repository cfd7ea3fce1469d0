package health

import "sync"

// A blame counts events by the client's source, as far as that is known. It keeps the sources
// with the most events, however many sources there are (Misra and Gries, 1982; Metwally et
// al., "Space-Saving", 2005).
type blame struct {
	mu    sync.Mutex
	all   int64
	named [4]struct {
		from  Source
		count int64
	}
}

// note counts an event. It ignores UnsampledSource, and any event for which it would have to
// wait.
func (b *blame) note(from Source) {
	if from == UnsampledSource || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.all++
	least := &b.named[0]
	for i := range b.named {
		n := &b.named[i]
		if n.from == from {
			n.count++
			return
		}
		if n.count < least.count {
			least = n
		}
	}
	least.from = from
	least.count++ // the count of the former source is kept: counts may be too high, not too low
}

// worst returns the source with the most events and an upper bound of its share. If there are
// no events, it returns UnsampledSource.
func (b *blame) worst() (from Source, part float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := int64(0)
	for _, n := range b.named {
		if n.count > most {
			from, most = n.from, n.count
		}
	}
	return from, float64(most) / float64(max(b.all, 1))
}

func (b *blame) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = 0
	clear(b.named[:])
}

// oneSource reports whether most events may be one source's while others are served.
func (b *blame) oneSource(m *OutlierMonitor, now int64) bool {
	from, part := b.worst()
	return from == UnsampledSource || part > 0.75 && m.servesOthers(from, now)
}
