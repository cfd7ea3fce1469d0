package proxy

import (
	"maps"
	"slices"
	"sync"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/relay"
)

// sessions is the book of what happened to connections. A session is counted
// from live while it runs and in ended afterwards; it moves from one to the other
// under mu, so that no summary counts it twice or not at all.
type sessions struct {
	mu       sync.Mutex
	conns    Connections
	live     map[*relay.Session]struct{}
	ended    core.Totals
	canceled int64 // sessions that were cut
}

func (b *sessions) accept() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns.Accepted++
	b.conns.Active++
}

// refuse notes the end of a connection that no target took, or that was cut
// before it was joined.
func (b *sessions) refuse(cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns.Active--
	if cut {
		b.canceled++
	} else {
		b.conns.Refused++
	}
}

func (b *sessions) start(s *relay.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live == nil {
		b.live = make(map[*relay.Session]struct{})
	}
	b.live[s] = struct{}{}
}

func (b *sessions) end(s *relay.Session, r relay.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, s)
	b.conns.Active--
	b.ended.Add(r)
	if r.Reason == relay.ReasonCanceled {
		b.canceled++
	}
}

// cutAll cuts the sessions that have been started.
func (b *sessions) cutAll(cause error) {
	b.mu.Lock()
	live := slices.Collect(maps.Keys(b.live))
	b.mu.Unlock()
	for _, s := range live {
		s.Cut(cause)
	}
}

func (b *sessions) active() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns.Active
}

func (b *sessions) summary() core.Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := core.Summary{
		Accepted: b.conns.Accepted, Active: b.conns.Active, Refused: b.conns.Refused, Canceled: b.canceled, Totals: b.ended,
	}
	for s := range b.live {
		sum.Totals.Add(s.Result())
	}
	return sum
}
