package proxy

import (
	"maps"
	"slices"
	"sync"

	"github.com/penstock/penstock/relay"
)

// Summary is what a [Server] has done and holds. Sessions that still run are in
// it with what they have moved so far. Its JSON form is part of the interface of
// the program.
type Summary struct {
	Connections Connections      `json:"connections"`
	Bytes       Bytes            `json:"bytes"`
	Lost        int64            `json:"lost"`      // bytes, see [relay.Flow]
	Fallbacks   map[string]int64 `json:"fallbacks"` // by [relay.Fallback], those that occurred
	Pipes       Pipes            `json:"pipes"`
}

// Connections are counts of clients.
type Connections struct {
	Accepted int64 `json:"accepted"` // ever
	Active   int64 `json:"active"`   // now: being connected to a target, or joined
	Refused  int64 `json:"refused"`  // reset, because no target could be reached
}

// Bytes are what destinations took, by direction.
type Bytes struct {
	ClientToEndpoint Moved `json:"client_to_endpoint"`
	EndpointToClient Moved `json:"endpoint_to_client"`
}

// Moved are bytes by engine.
type Moved struct {
	Spliced int64 `json:"spliced"`
	Copied  int64 `json:"copied"`
}

// Pipes are counts of pipes.
type Pipes struct {
	Made   int64 `json:"made"`   // ever
	Reused int64 `json:"reused"` // leases that were served by an idle pipe
	Leased int64 `json:"leased"` // now
	Idle   int64 `json:"idle"`   // now
}

// Summary returns what the server has done until now. It may be called at any
// time by any goroutine, also after Serve has returned.
func (s *Server) Summary() Summary {
	sum := s.sessions.summary()
	pipes := s.relay.Stats().Pipes
	sum.Pipes = Pipes{Made: pipes.Made, Reused: pipes.Reused, Leased: pipes.Leased, Idle: pipes.Idle}
	return sum
}

// sessions is the book of what happened to connections. A session is counted
// from live while it runs and in ended afterwards; it moves from one to the other
// under mu, so that no summary counts it twice or not at all.
type sessions struct {
	mu       sync.Mutex
	conns    Connections
	live     map[*relay.Session]struct{}
	ended    totals
	canceled int64 // sessions that were cut
}

// totals are sums over sessions.
type totals struct {
	bytes     Bytes
	lost      int64
	fallbacks relay.Fallbacks
}

func (t *totals) add(r relay.Result) {
	t.bytes.ClientToEndpoint.add(r.AToB)
	t.bytes.EndpointToClient.add(r.BToA)
	t.lost += r.AToB.Lost + r.BToA.Lost
	for i := range t.fallbacks {
		t.fallbacks[i] += r.AToB.Fallbacks[i] + r.BToA.Fallbacks[i]
	}
}

func (m *Moved) add(f relay.Flow) {
	m.Spliced += f.Spliced
	m.Copied += f.Copied
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
	b.ended.add(r)
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

func (b *sessions) cut() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.canceled
}

func (b *sessions) summary() Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.ended
	for s := range b.live {
		sum.add(s.Result())
	}
	fallbacks := make(map[string]int64)
	for reason, n := range sum.fallbacks.All() {
		fallbacks[reason.String()] = n
	}
	return Summary{Connections: b.conns, Bytes: sum.bytes, Lost: sum.lost, Fallbacks: fallbacks}
}
