package health

import "sync"

// A blame counts what befell clients by where they came from, as far as that is known: those
// that it befell most are told apart, however many sources there are.
type blame struct {
	mu    sync.Mutex
	all   int64
	named [4]struct {
		from  Source
		count int64
	}
}

// note counts one of a source; of Anybody nothing is known. It waits for nobody.
func (b *blame) note(from Source) {
	if from == Anybody || !b.mu.TryLock() {
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
	least.count++ // and those of the one before: it is never counted too few
}

// worst returns the source that it befell most, and which part of all those are, at most.
// Without any it is Anybody.
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

// oneSource reports whether it befell one source for the most part, while others are served;
// of which nothing is known if no source is.
func (b *blame) oneSource(m *Member, now int64) bool {
	from, part := b.worst()
	return from == Anybody || part > 0.75 && m.servesOthers(from, now)
}
