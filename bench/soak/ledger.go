package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
)

// settleTime bounds the wait for descriptors to be closed and sums to be right.
const settleTime = 10 * time.Second

// laneSettleTime is that of sessions that have left user space, which linger for 10 s, and up to 40 s if packets come late.
const laneSettleTime = time.Minute

// Bounds of the growth of a proxy's memory: for the remains of each of the connections at
// once, and a generous one for everything else.
const (
	growth     = 256 << 20
	growthEach = 128 << 10
)

// state is the proxy's account, and the resources it is seen to hold.
type state struct {
	*contestant.Account
	process.Memory
	held held
}

// ledger is the accounts of the proxy at moments without connections, and the bytes that must
// have moved until then.
type ledger struct {
	first, last state
	rssMost     int64
	exact, torn flows // sums over the rounds that are over
	rounds      []Round
}

// Round is the traffic of one round.
type Round struct {
	N     int   `json:"n"`
	Rough bool  `json:"rough"` // with connections that were torn down in the middle
	Opens int64 `json:"connections"`
	// Exact are connections of which all bytes had to arrive; Torn are the others.
	ExactClient Flow `json:"exact_from_clients"`
	ExactServer Flow `json:"exact_from_servers"`
	TornClient  Flow `json:"torn_from_clients"`
	TornServer  Flow `json:"torn_from_servers"`
	// Moved and Lost are the proxy's figures.
	MovedToEndpoint int64 `json:"moved_to_endpoint"`
	MovedToClient   int64 `json:"moved_to_client"`
	Lost            int64 `json:"lost"`
}

// look asks the proxy and looks at it.
func (s *soak) look(ctx context.Context) (st state, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Patience, fmt.Errorf("no summary within %v", s.Patience))
	defer cancel()
	if st.Account, err = s.proxy.Account(ctx); err != nil {
		return st, err
	}
	if st.Memory, err = s.proxy.Memory(); err != nil {
		return st, err
	}
	pids, err := s.proxy.Pids()
	if err == nil {
		st.held, err = descriptors(pids)
	}
	return st, err
}

// firstLooks is how often the proxy is looked at before the first connection.
const firstLooks = 5

// open looks at the proxy before the first connection: several times, because its end of the
// connection that asked for the summary may still be open at a look, which would hide a leak.
func (l *ledger) open(ctx context.Context, s *soak) error {
	for n := range firstLooks {
		st, err := s.look(ctx)
		if err != nil {
			return err
		}
		if n == 0 || st.held.sum() <= l.first.held.sum() {
			l.first = st
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.last, l.rssMost = l.first, l.first.RssAnon
	return nil
}

// close waits until no end holds a connection of the round, then checks the accounts.
func (l *ledger) close(ctx context.Context, s *soak, r *round) error {
	patient, cancel := context.WithTimeout(ctx, s.Patience)
	_, err := s.proxy.Settle(patient)
	cancel()
	if err == nil {
		err = s.origin.settle(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.violate(fmt.Sprintf("round %d: %v", r.n, err))
		}
		return context.Cause(ctx)
	}
	r.finish()
	return l.settle(ctx, s, r)
}

// settle waits until the account is in order.
func (l *ledger) settle(ctx context.Context, s *soak, r *round) error {
	end := time.Now().Add(s.settling)
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 250*time.Millisecond) {
		st, err := s.look(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", r.n, err)
		}
		entry := l.entry(st, r)
		complaints := append(l.complaints(s, st, r), entry.complaints()...)
		if len(complaints) == 0 {
			l.book(st, r, entry)
			return nil
		}
		if time.Now().After(end) {
			l.book(st, r, entry)
			s.violate(complaints...)
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func (l *ledger) book(st state, r *round, entry Round) {
	l.last, l.rssMost = st, max(l.rssMost, st.RssAnon)
	l.exact.add(r.exact)
	l.torn.add(r.torn)
	l.rounds = append(l.rounds, entry)
}

// entry returns the traffic of a round.
func (l *ledger) entry(st state, r *round) Round {
	return Round{
		N: int(r.n), Rough: rough(r.n), Opens: st.Summary.Connections.Accepted - l.last.Summary.Connections.Accepted,
		ExactClient: r.exact[client], ExactServer: r.exact[server], TornClient: r.torn[client], TornServer: r.torn[server],
		MovedToEndpoint: st.ClientToEndpoint - l.last.ClientToEndpoint,
		MovedToClient:   st.EndpointToClient - l.last.EndpointToClient,
		Lost:            st.Summary.Lost - l.last.Summary.Lost,
	}
}

// missing are the bytes that were sent and not received.
func (e *Round) missing() int64 {
	return e.TornClient.Sent - e.TornClient.Received + e.TornServer.Sent - e.TornServer.Received
}

// complaints returns the faults in the bytes of a round. If a kernel dropped bytes of a
// connection that was torn down, the proxy may or may not have moved them.
func (e *Round) complaints() (all []string) {
	for _, d := range []struct {
		name        string
		moved       int64
		exact, torn Flow
	}{
		{"client to endpoint", e.MovedToEndpoint, e.ExactClient, e.TornClient},
		{"endpoint to client", e.MovedToClient, e.ExactServer, e.TornServer},
	} {
		low, high := d.exact.Received+d.torn.Received, d.exact.Sent+d.torn.Sent
		switch {
		case d.moved >= low && d.moved <= high:
		case low == high:
			all = append(all, fmt.Sprintf("round %d: summary: %s: expected %d bytes, got %d", e.N, d.name, low, d.moved))
		default:
			all = append(all, fmt.Sprintf("round %d: summary: %s: expected from %d bytes, received, to %d, sent, got %d", e.N, d.name, low, high, d.moved))
		}
	}
	if missing := e.missing(); e.Lost < 0 || e.Lost > missing {
		all = append(all, fmt.Sprintf("round %d: summary: lost: expected at most the %d bytes sent and not received, got %d", e.N, missing, e.Lost))
	}
	return all
}

// complaints returns the other faults.
func (l *ledger) complaints(s *soak, st state, r *round) (all []string) {
	sum := st.Summary
	equal := func(what string, want, got int64) {
		if want != got {
			all = append(all, fmt.Sprintf("round %d: %s: expected %d, got %d", r.n, what, want, got))
		}
	}
	// Of some the lossy link has lost the end of the handshake, and a reset came first.
	if n := s.tally.done[opened].Load(); !s.Lane || sum.Connections.Accepted < n-n/100 || sum.Connections.Accepted > n {
		equal("summary: connections accepted", n, sum.Connections.Accepted)
	}
	equal("summary: connections active", 0, sum.Connections.Active)
	equal("summary: connections refused", 0, sum.Connections.Refused)
	equal("summary: pipes leased", 0, sum.Pipes.Leased)
	equal("connections without a byte that ended in order at the origin", r.silent, r.ended)
	if s.Lane {
		for _, fault := range s.laneComplaints(sum.Lane) {
			all = append(all, fmt.Sprintf("round %d: %s", r.n, fault))
		}
	}
	for _, leak := range l.first.held.leaks(st.held, sum.Pipes.Idle-l.first.Summary.Pipes.Idle) {
		all = append(all, fmt.Sprintf("round %d: %s", r.n, leak))
	}
	if most := l.first.RssAnon + growth + int64(s.Connections)*growthEach; st.RssAnon > most {
		all = append(all, fmt.Sprintf("round %d: RssAnon of the proxy: expected at most %d bytes, got %d", r.n, most, st.RssAnon))
	}
	return all
}
