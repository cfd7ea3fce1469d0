package router

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/health"
)

// A sample is the connections to an endpoint of which the source is noted: the first of each
// second, and a part of the others, by chance, so that no source takes all places by being
// fast. Others cost nothing but this.
type sample struct {
	word atomic.Uint64 // the second, and in the lowest bits how many of it were taken
}

const (
	sampleFirst = 16
	sampleOneIn = 4

	sampleBits = 8
	sampleMask = 1<<sampleBits - 1
)

// take reports whether a connection is of the sample.
func (s *sample) take(now int64) bool {
	second := uint64(now/1e9) << sampleBits
	for {
		switch word := s.word.Load(); {
		case word < second: // a later one is that of another loop, with a clock that is ahead
			if s.word.CompareAndSwap(word, second|1) {
				return true
			}
		case word&sampleMask >= sampleFirst:
			return rand.Uint32()%sampleOneIn == 0
		case s.word.CompareAndSwap(word, word+1):
			return true
		}
	}
}

// namedBindings is how many bindings of sources are kept for clients that come again.
const namedBindings = 8

// sampled returns the binding of a session, which is one of its client's source if it is one
// of the sample.
func (s *Search) sampled(b *binding, now int64) *binding {
	judged := s.breaker != nil || s.snapshot.Breaker != nil || s.endpoint.monitor.Load() != nil
	if !judged || !s.endpoint.sample.take(now) {
		return b
	}
	return b.of(s.from())
}

// from returns the source of the client.
func (s *Search) from() health.Source {
	return health.SourceOf(s.client.Source(), s.listener.cfg.SourcePrefix)
}

// of returns a binding like b for a source. It makes one unless the source is among those that
// came last.
func (b *binding) of(from health.Source) *binding {
	named := b.named.Load()
	if named == nil {
		b.named.CompareAndSwap(nil, new([namedBindings]atomic.Pointer[binding]))
		named = b.named.Load()
	}
	place := &named[from%namedBindings]
	if of := place.Load(); of != nil && of.from == from {
		return of
	}
	of := b.listener.newBinding(b.snapshot, b.endpoint, b.breaker, b.key)
	of.from = from
	of.limits.Answered = of.heard
	place.Store(of)
	return of
}

// heard is called when the endpoint of a session of the sample has sent a byte in time: the
// session may last for days.
func (b *binding) heard() {
	now := b.listener.now()
	if m := b.endpoint.monitor.Load(); m != nil {
		m.GotData(b.from, now)
	}
	for _, breaker := range []*health.Breaker{b.endpoint.breaker.Load(), b.snapshot.Breaker} {
		if breaker != nil {
			breaker.GotData(b.from, now)
		}
	}
}
