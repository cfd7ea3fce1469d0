package server

import (
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// moves notes bytes that have moved since the last look. The lock of the list is held.
func (s *adoptedSession) moves(now time.Time) {
	if n := s.session.Bytes(); n != s.last {
		s.last, s.active = n, now.Add(-s.session.Idle())
	}
}

// quiet reports whether an end would lose no byte, as far as this process knows: all that was sent is acknowledged, and the endpoint was the last to send, or has
// ended. Of a session in user space it is not known, and its idle time alone counts. The lock of the list is held.
func (s *adoptedSession) quiet() bool {
	v, _ := s.session.Look()
	a, b := &v.Ends[0], &v.Ends[1]
	return !v.InLane || a.Outstanding == 0 && b.Outstanding == 0 && (b.Last || v.EndedBy == 1)
}

// endpointOf returns the endpoint of the adopted session with an ID; nil: it is not known.
func (a *adopted) endpointOf(id worker.ID) *router.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.byID[id]; one != nil {
		return one.to
	}
	return nil
}

// end tries to end sessions, and calls yield with the result of each, as [worker.Group.End] does.
func (a *adopted) end(ids []worker.ID, quiet time.Duration, yield func(worker.ID, worker.EndResult)) {
	for _, id := range ids {
		yield(id, a.endOne(id, quiet))
	}
}

// endOne tries to end one.
func (a *adopted) endOne(id worker.ID, quiet time.Duration) worker.EndResult {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.byID[id]
	if one == nil || one.end.Load() != nil || one.cause != nil {
		return worker.EndedBefore
	}
	if now := time.Now(); quiet > 0 {
		if one.moves(now); now.Sub(one.active) < quiet || !one.quiet() {
			return worker.Busy
		}
	}
	one.reset(record.ErrOperator)
	return worker.EndedNow
}
