package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// Tally returns the counts of its clients' connections and sessions.
func (state *ListenerState) Tally() tally.Counts { return state.tally.Read() }

// Tally returns the counts of connections to its endpoints, and of their sessions.
func (u *Upstream) Tally() tally.Counts { return u.tally.Read() }

// Tally returns the counts of connections to it, and of their sessions.
func (e *Endpoint) Tally() tally.Counts { return e.tally.Read() }

// Transitions returns how often the verdict of its checks has changed.
func (e *Endpoint) Transitions() int64 { return e.transitions.Load() }

// Ejections returns how often outlier detection has ejected it.
func (e *Endpoint) Ejections() int64 { return e.ejections.Load() }

// countConnect counts a connection to an endpoint, which took the time since that was picked.
func (s *Search) countConnect(now int64) {
	loop, took := s.client.Loop(), time.Duration(now-s.start)
	s.listener.state.tally.Connected(loop, took)
	s.snapshot.upstream.tally.Connected(loop, took)
	s.endpoint.tally.Connected(loop, took)
}

var (
	_ worker.EndCounter = (*binding)(nil)
	_ worker.EndCounter = originalDst{}
)

// Counted implements [worker.EndCounter].
func (b *binding) Counted(loop int, r relay.Result, err error) {
	why := closeOf(&r, err)
	b.listener.state.tally.Ended(loop, r.Duration, why)
	b.snapshot.upstream.tally.Ended(loop, r.Duration, why)
	b.endpoint.tally.Ended(loop, r.Duration, why)
}

// Counted implements [worker.EndCounter].
func (o originalDst) Counted(loop int, r relay.Result, err error) {
	o.state.tally.Ended(loop, r.Duration, closeOf(&r, err))
}

// closeOf is the reason that a session ended, with an error or nil; its a is the client.
func closeOf(r *relay.Result, err error) tally.Close {
	switch r.Reason {
	case relay.ReasonEOF:
		return bySide(r.First, tally.ClientClosed, tally.EndpointClosed)
	case relay.ReasonReset:
		return bySide(r.Culprit, tally.ClientReset, tally.EndpointReset)
	case relay.ReasonError:
		return bySide(r.Culprit, tally.ClientFailed, tally.EndpointFailed)
	case relay.ReasonIdle:
		return tally.Idle
	case relay.ReasonHalfClose:
		return tally.HalfClose
	case relay.ReasonLifetime:
		return tally.Lifetime
	case relay.ReasonFirstByte:
		return tally.FirstByte
	case relay.ReasonCanceled:
		if errors.Is(err, record.ErrOperator) {
			return tally.Operator
		}
		return tally.Canceled
	}
	return tally.Other
}

func bySide(side relay.Side, client, endpoint tally.Close) tally.Close {
	switch side {
	case relay.SideA:
		return client
	case relay.SideB:
		return endpoint
	}
	return tally.Other
}

// EveryRefusal returns how many clients were refused for each reason, with the reasons that did not occur.
func (state *ListenerState) EveryRefusal() []tally.Count {
	return everyName(state.refused[:], func(i int) string { return admissionReject(i).String() })
}

// Every is [Refusals.ByReason] with the reasons that did not occur.
func (r *Refusals) Every() []tally.Count {
	return everyName(r.counts[:], func(i int) string { return refusal(i).String() })
}

// everyName returns counts with their names.
func everyName(counts []atomic.Int64, name func(int) string) []tally.Count {
	list := make([]tally.Count, len(counts))
	for i := range counts {
		list[i] = tally.Count{Of: name(i), N: counts[i].Load()}
	}
	return list
}
