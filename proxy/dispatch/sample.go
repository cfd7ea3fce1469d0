package dispatch

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/health"
)

// A sample says of which connections to an endpoint it is noted where they come from: of
// the first of each second, and of a part of the others, by chance, so that nobody takes
// all places by being fast. Those that are not of it cost nothing but this.
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
		case word < second: // one that is later is somebody else's, whose clock is ahead
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

// namedBonds is how many bonds of sources are kept for those who come again.
const namedBonds = 8

// sampled returns the bond of a session, which is one of its client's source if it is one
// of the sample.
func (s *Search) sampled(b *bond, now int64) *bond {
	judged := s.breaker != nil || s.view.Breaker != nil || s.endpoint.judge.Load() != nil
	if !judged || !s.endpoint.sample.take(now) {
		return b
	}
	return b.of(s.from())
}

// from returns the source of the client.
func (s *Search) from() health.Source {
	return health.SourceOf(s.client.Source(), s.listener.cfg.SourcePrefix)
}

// of returns a bond like b for a source. It makes one unless the source is among those that
// came last.
func (b *bond) of(from health.Source) *bond {
	named := b.named.Load()
	if named == nil {
		b.named.CompareAndSwap(nil, new([namedBonds]atomic.Pointer[bond]))
		named = b.named.Load()
	}
	place := &named[from%namedBonds]
	if of := place.Load(); of != nil && of.from == from {
		return of
	}
	of := b.listener.newBond(b.view, b.endpoint, b.breaker)
	of.from = from
	of.limits.Answered = of.heard
	place.Store(of)
	return of
}

// heard is told that the endpoint of a session of the sample has said something in time:
// the session may last for days.
func (b *bond) heard() {
	now := b.listener.now()
	if m := b.endpoint.judge.Load(); m != nil {
		m.Heard(b.from, now)
	}
	for _, breaker := range []*health.Breaker{b.endpoint.breaker.Load(), b.view.Breaker} {
		if breaker != nil {
			breaker.Heard(b.from, now)
		}
	}
}
