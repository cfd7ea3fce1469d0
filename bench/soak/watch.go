package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// watch asks the proxy for summaries now and then while it is busy, until watching
// ends. No request is under way when it returns: a late answer would be taken for the
// next.
func (s *soak) watch(ctx, watching context.Context, r *round) {
	times := rand.New(rand.NewPCG(s.Seed, uint64(r.n)))
	last := s.ledger.last
	for {
		select {
		case <-watching.Done():
			return
		case <-time.After(time.Duration(200+times.IntN(1000)) * time.Millisecond):
		}
		st, err := s.look(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.violate(fmt.Sprintf("round %d: %v", r.n, err))
			}
			return
		}
		s.tally.count(summaries)
		if wrong := s.doubts(last, st, r); len(wrong) > 0 {
			s.violate(wrong...)
		}
		s.ledger.rssMost = max(s.ledger.rssMost, st.RssAnon)
		s.tell(st, r)
		last = st
	}
}

// doubts returns the figures that are impossible, even while connections come and go.
func (s *soak) doubts(before, now state, r *round) (all []string) {
	a, b := now.Summary, before.Summary
	for _, d := range []struct {
		what      string
		low, n, h int64
	}{
		{"connections accepted", b.Connections.Accepted, a.Connections.Accepted, s.tally.dialed.Load()},
		{"connections active", 0, a.Connections.Active, a.Connections.Accepted},
		{"connections refused", 0, a.Connections.Refused, 0},
		{"client to endpoint", before.ClientToEndpoint, now.ClientToEndpoint, s.tally.offered[client].Load()},
		{"endpoint to client", before.EndpointToClient, now.EndpointToClient, s.tally.offered[server].Load()},
		{"pipes leased", 0, a.Pipes.Leased, 2 * a.Connections.Accepted},
	} {
		if d.n < d.low || d.n > d.h {
			all = append(all, fmt.Sprintf("round %d: summary while busy: %s: expected from %d to %d, got %d", r.n, d.what, d.low, d.h, d.n))
		}
	}
	return all
}

// tell calls Watch.
func (s *soak) tell(st state, r *round) {
	if s.Watch == nil {
		return
	}
	s.Watch(Progress{
		Elapsed: time.Since(s.began), Round: int(r.n), Opened: s.tally.done[opened].Load(), Arrived: s.tally.done[arrivals].Load(),
		Active: st.Active, RssAnon: st.RssAnon, Settling: time.Now().After(r.until),
	})
}
