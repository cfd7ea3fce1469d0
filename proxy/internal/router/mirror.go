package router

import (
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A Mirror sends the bytes of some clients to an endpoint of another upstream as well.
type Mirror struct {
	Snapshot *UpstreamSnapshot
	// Share has two parts. The sessions of the first part are mirrored.
	Share    *lb.WeightedSplit
	Patience time.Duration
	Compare  *worker.Comparison // nil: the endpoint's answers are thrown away
}

// Mirror implements [worker.Search]. The result of a mirror does not count for its endpoint: breakers and outlier detection
// do not learn from it. If the breaker of the endpoint or of the upstream is open, there is no mirror. A running mirror
// counts among the present sessions of upstream and endpoint; all else of it is counted for its listener alone.
func (s *Search) Mirror(int64) *worker.Mirror {
	m, counts := s.mirror, s.listener.state.Mirrors
	if m == nil || m.Share.Next() != 0 {
		return nil
	}
	e, err := m.pick(s)
	switch {
	case err == lb.ErrFull:
		counts.Skip(worker.MirrorFull)
		return nil
	case err != nil:
		counts.Skip(worker.MirrorNoEndpoint)
		return nil
	}
	to := e.upstream.newest.Load() // after a reload this listener may no longer mirror there
	if to.TLS != nil {
		e.Return()
		counts.Skip(worker.MirrorNoEndpoint)
		return nil
	}
	e.upstream.sessions.Add(1)
	l := s.listener
	of := &worker.Mirror{
		Binding: mirrorBinding{endpoint: e}, Addresses: e.fixed, Host: e.host, Port: e.port, Resolver: l.cfg.Resolver,
		Circle:  func(at loop.Address, fd int, connected bool) error { return l.circle(nil, e, at, fd, connected) },
		Timeout: l.cfg.Connect, Patience: m.Patience, Compare: m.Compare, Counts: counts,
		Ended: func() { m.ended(e) },
	}
	if e.Address.Network != "unix" {
		of.Source, of.Congestion = to.Source, to.Congestion
	}
	if v := to.SendProxy; v > 0 {
		connection := s.connection()
		of.Header = proxyproto.Append(nil, v, &connection)
	}
	return of
}

// maxMirrorPicks is how many endpoints with open breakers are skipped.
const maxMirrorPicks = 8

// pick acquires a usable endpoint, by the policy of the upstream.
func (m *Mirror) pick(s *Search) (*Endpoint, error) {
	set := m.Snapshot.Set()
	if set == nil || m.Snapshot.Breaker != nil && m.Snapshot.Breaker.State() != health.Closed {
		return nil, lb.ErrUnavailable
	}
	r := s.request(m.Snapshot)
	for range maxMirrorPicks {
		picked, err := set.Pick(&r)
		if err != nil {
			return nil, err
		}
		e := picked.Of.(*Endpoint)
		state := e.State()
		if b := e.breaker.Load(); (b == nil || b.State() == health.Closed) && !state.Down && !state.Ejected {
			return e, nil
		}
		picked.Return()
		r.Tried = append(r.Tried, picked)
	}
	return nil, lb.ErrUnavailable
}

func (m *Mirror) ended(e *Endpoint) {
	e.upstream.sessions.Add(-1)
	e.Release()
	m.Snapshot.notifyRoom()
}

// A mirrorBinding is the binding of a mirror. Only its names are asked for, because a mirror is no session.
type mirrorBinding struct {
	worker.Binding // nil
	endpoint       *Endpoint
}

func (b mirrorBinding) Names() (upstream, endpoint string) {
	return b.endpoint.upstream.name, b.endpoint.name
}
