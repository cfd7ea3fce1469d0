package server

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// adoptedVerdict judges the time in the lane, by its observations: the time before, in another process, is not known, and for CPUs of this one no session in the lane waits.
func adoptedVerdict(v *lane.View) verdict.Verdict {
	sample := verdict.OfLane(v, verdict.Times{})
	return verdict.Of(&sample)
}

// state is that of a session of which an end of file was carried, or of none.
func (s *adoptedSession) state() worker.State {
	switch s.endedBy() {
	case 0:
		return worker.ClientEnded
	case 1:
		return worker.EndpointEnded
	}
	return worker.Joined
}

// alsoUnknown returns what is added to the names of listeners, and of upstreams, where there are sessions of which that is not known: [admin.UnknownName].
func (a *adopted) alsoUnknown() (listener, upstream string) {
	const also = ", " + admin.UnknownName
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.list {
		if s.end.Load() != nil {
			continue
		}
		if s.listener == "" {
			listener = also
		}
		if s.upstream == "" {
			upstream = also
		}
	}
	return listener, upstream
}

// selects decides whether a query is for the session. A name that is not known is [admin.UnknownName]. The lock of the list is held.
func (s *adoptedSession) selects(q *worker.Query) bool {
	listener, upstream, name := s.names()
	switch {
	case s.end.Load() != nil, q.ID != worker.ID{} && q.ID != s.id, q.Listener != "" && q.Listener != orUnknown(listener), q.Upstream != "" && q.Upstream != orUnknown(upstream):
		return false
	case q.Endpoint != "" && q.Endpoint != s.endpoint && q.Endpoint != name, q.Source != source.Rule{} && !q.Source.Contains(s.source):
		return false
	case s.session.Age() < q.Older, q.Idle > 0 && time.Since(s.active) < q.Idle, q.State != "" && q.State != s.state():
		return false
	}
	if n := s.session.Bytes(); int64(n[0]+n[1]) < q.Bytes {
		return false
	}
	return q.Accepts == nil || q.Accepts(&worker.Session{ID: s.id, Client: s.client, Source: s.source})
}

// selectsBy is selects of a query that may ask for a verdict, or for any, which it returns then.
func (s *adoptedSession) selectsBy(q *worker.Query, wanted string) (of string, ok bool) {
	if !s.selects(q) {
		return "", false
	}
	if wanted == "" {
		return "", true
	}
	v, _ := s.session.Look()
	judged := adoptedVerdict(&v)
	of = judged.Kind.String()
	return of, wanted == admin.AnyVerdict || wanted == of
}

// describe returns the session as those of the loops are described: its bytes, and its sample if that is asked for, are of its time in the lane. The lock of the list
// is held.
func (s *adoptedSession) describe(q *worker.Query) *worker.Session {
	listener, upstream, name := s.names()
	n := s.session.Bytes()
	of := &worker.Session{
		ID: s.id, Client: s.client, Source: s.source, Listener: listener, Upstream: upstream, Endpoint: s.endpoint, EndpointName: name, EndpointLocal: s.local,
		State: s.state(), Lane: true, Loop: -1, Age: s.session.Age(), Began: s.id.Began, Idle: time.Since(s.active),
		ClientToEndpoint: worker.Moved{Lane: int64(n[0])}, EndpointToClient: worker.Moved{Lane: int64(n[1])},
	}
	if q.Sample {
		v, _ := s.session.Look()
		sample := verdict.OfLane(&v, verdict.Times{})
		of.Sample = &sample
	}
	return of
}

// selectedAdopted yields the adopted sessions of a query, with their verdicts if it is for one, or for any. No lock is held meanwhile.
func (s *sessionTable) selectedAdopted(q *worker.Query, wanted string) iter.Seq2[*worker.Session, string] {
	return func(yield func(*worker.Session, string) bool) {
		a := s.adopted
		a.mu.Lock()
		all := slices.Clone(a.list)
		a.mu.Unlock()
		for _, one := range all {
			a.mu.Lock()
			of, ok := one.selectsBy(q, wanted)
			var described *worker.Session
			if ok {
				described = one.describe(q)
			}
			a.mu.Unlock()
			if ok && !yield(described, of) {
				return
			}
		}
	}
}

// everySession yields the clients of a query: those of the loops, and then adopted sessions.
func (s *sessionTable) everySession(ctx context.Context, q *worker.Query) iter.Seq[*worker.Session] {
	return func(yield func(*worker.Session) bool) {
		for one := range s.group.Sessions(ctx, q) {
			if !yield(&one) {
				return
			}
		}
		for one := range s.selectedAdopted(q, "") {
			if ctx.Err() != nil || !yield(one) {
				return
			}
		}
	}
}
