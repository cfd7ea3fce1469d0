package server

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A sessionTable is the sessions of a server, as operators ask for them: those of the loops, and the adopted ones.
type sessionTable struct {
	*registry
	*tasks
	judge
	log     *slog.Logger
	group   *worker.Group
	adopted *adopted
	endings map[*endJob]bool // ends of sessions that are under way; under the server's mu
	byHand  endedByHand      // it has a lock of its own
}

// queryOf returns the query of the loops for one of the API.
func queryOf(q *admin.SessionQuery) (*worker.Query, error) {
	of := &worker.Query{
		Listener: q.Listener, Upstream: q.Upstream, Endpoint: q.Endpoint, Older: q.Older, Idle: q.Idle, Bytes: q.Bytes, State: worker.State(q.State), Lane: q.Engine == admin.EngineLane,
	}
	var err error
	if q.Source != "" {
		if of.Source, err = source.ParseRule(q.Source); err != nil {
			return nil, fmt.Errorf("%w: source: %w", admin.ErrInvalid, err)
		}
	}
	if q.ID != "" {
		if of.ID, err = worker.ParseID(q.ID); err != nil {
			return nil, fmt.Errorf("%w: id: %w", admin.ErrInvalid, err)
		}
	}
	if q.Verdict != "" {
		of.Joined, of.Sample = true, true
	}
	return of, nil
}

// selected yields the sessions of a query, with their verdicts if that is asked for.
func (s *sessionTable) selected(ctx context.Context, q *admin.SessionQuery, of *worker.Query) iter.Seq2[*worker.Session, string] {
	return func(yield func(*worker.Session, string) bool) {
		if of.Sample {
			s.cpu.Look(s.now())
		}
		for one := range s.group.Sessions(ctx, of) {
			verdict := ""
			if one.Sample != nil {
				verdict = s.verdictOf(one.Sample).Kind.String()
			}
			if q.Verdict != "" && q.Verdict != admin.AnyVerdict && q.Verdict != verdict {
				continue
			}
			if !yield(&one, verdict) {
				return
			}
		}
	}
}

// list returns the sessions of a query. It takes a few sessions at a time from where they are
// served, which goes on meanwhile, so the list may be read slowly. One that is sorted is in memory, and so
// are as many more at most.
func (s *sessionTable) list(ctx context.Context, q admin.SessionQuery, o admin.SessionOrder) (admin.SessionList, error) {
	of, err := queryOf(&q)
	if err != nil {
		return admin.SessionList{}, err
	}
	if err := s.named(ctx, of); err != nil {
		return admin.SessionList{}, err
	}
	list := &sessionList{table: s, query: q, of: of, top: o.Top}
	if o.By != "" {
		list.order, list.top = orders[o.By], cmp.Or(o.Top, admin.MaxTop)
		if list.order == nil {
			return admin.SessionList{}, fmt.Errorf("sort: %q: %w: write %s", o.By, admin.ErrInvalid, strings.Join(admin.SessionOrders, ", "))
		}
	}
	return admin.SessionList{Sessions: list.all(ctx), More: func() bool { return list.more }}, nil
}

// A sessionList is the sessions of a query.
type sessionList struct {
	table *sessionTable
	query admin.SessionQuery
	of    *worker.Query
	order func(a, b *admin.Session) int // nil: as they are found
	top   int                           // 0: all
	more  bool                          // there are more than top
}

func (l *sessionList) all(ctx context.Context) iter.Seq[admin.Session] {
	if l.order != nil {
		return l.sorted(ctx)
	}
	return func(yield func(admin.Session) bool) {
		n := 0
		for one := range l.found(ctx) {
			if l.more = l.top > 0 && n == l.top; l.more || !yield(one) {
				return
			}
			n++
		}
	}
}

// found yields all: those of the loops, and those that were adopted from another process.
func (l *sessionList) found(ctx context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		for one, verdict := range l.table.selected(ctx, &l.query, l.of) {
			if !yield(sessionStatus(one, verdict)) {
				return
			}
		}
		for one, verdict := range l.table.selectedAdopted(l.of, l.query.Verdict) {
			if !yield(sessionStatus(one, verdict)) {
				return
			}
		}
	}
}

// sorted yields the first ones by the order. At most twice as many are in memory.
func (l *sessionList) sorted(ctx context.Context) iter.Seq[admin.Session] {
	return func(yield func(admin.Session) bool) {
		var kept []admin.Session
		first := func() {
			slices.SortStableFunc(kept, func(a, b admin.Session) int { return l.order(&a, &b) })
			if len(kept) > l.top {
				kept, l.more = kept[:l.top], true
			}
		}
		for one := range l.found(ctx) {
			if kept = append(kept, one); len(kept) >= 2*l.top {
				first()
			}
		}
		first()
		for _, one := range kept {
			if !yield(one) {
				return
			}
		}
	}
}

// orders are those of [admin.SessionOrders].
var orders = map[string]func(a, b *admin.Session) int{
	"age":      largest(func(s *admin.Session) int64 { return s.AgeUs }),
	"idle":     largest(idleOf),
	"bytes":    largest(func(s *admin.Session) int64 { return s.Bytes.ClientToEndpoint.All() + s.Bytes.EndpointToClient.All() }),
	"in":       largest(func(s *admin.Session) int64 { return s.Bytes.ClientToEndpoint.All() }),
	"out":      largest(func(s *admin.Session) int64 { return s.Bytes.EndpointToClient.All() }),
	"client":   byText(func(s *admin.Session) string { return s.Client }),
	"listener": byText(func(s *admin.Session) string { return s.Listener }),
	"upstream": byText(func(s *admin.Session) string { return s.Upstream }),
	"endpoint": byText(func(s *admin.Session) string { return cmp.Or(s.Name, s.Endpoint) }),
	"state":    byText(func(s *admin.Session) string { return s.State }),
	"verdict":  byText(func(s *admin.Session) string { return s.Verdict }),
}

// idleOf is negative for a session of which that is not known.
func idleOf(s *admin.Session) int64 {
	if s.IdleUs == nil {
		return -1
	}
	return *s.IdleUs
}

func largest(of func(*admin.Session) int64) func(a, b *admin.Session) int {
	return func(a, b *admin.Session) int { return cmp.Compare(of(b), of(a)) }
}

func byText(of func(*admin.Session) string) func(a, b *admin.Session) int {
	return func(a, b *admin.Session) int { return cmp.Compare(of(a), of(b)) }
}

func sessionStatus(session *worker.Session, verdict string) admin.Session {
	s := admin.Session{
		ID: session.ID.String(), Client: session.Client, Listener: session.Listener, Upstream: session.Upstream, Endpoint: session.Endpoint, EndpointLocal: session.EndpointLocal, Name: session.EndpointName,
		State: string(session.State), Loop: session.Loop, AgeUs: session.Age.Microseconds(), Verdict: verdict, Adopted: session.ID.Adopted(),
		Bytes: bytesOf(worker.Bytes{ClientToEndpoint: session.ClientToEndpoint, EndpointToClient: session.EndpointToClient}, worker.Bytes{}),
	}
	s.Engine = engineOf(session)
	if session.Idle >= 0 {
		us := session.Idle.Microseconds()
		s.IdleUs = &us
	}
	return s
}

// engineOf is how the bytes of a session move now, or have moved.
func engineOf(s *worker.Session) string {
	spliced, copied := s.ClientToEndpoint.Spliced+s.EndpointToClient.Spliced, s.ClientToEndpoint.Copied+s.EndpointToClient.Copied
	switch {
	case s.Lane:
		return admin.EngineLane
	case spliced > 0 && copied > 0:
		return "both"
	case spliced > 0:
		return "splice"
	case copied > 0:
		return "copy"
	}
	return ""
}

// Sessions implements [admin.Balancer].
func (s *Server) Sessions(ctx context.Context, q admin.SessionQuery, o admin.SessionOrder) (admin.SessionList, error) {
	return s.sessionTable.list(ctx, q, o)
}

// EndSessions implements [admin.Balancer].
func (s *Server) EndSessions(ctx context.Context, q admin.EndQuery, by string) (admin.Ended, error) {
	return s.sessionTable.end(ctx, q, by)
}

// StopEnding implements [admin.Balancer].
func (s *Server) StopEnding(by string) admin.Stopped { return s.sessionTable.stopEnding(by) }

// Sources implements [admin.Balancer].
func (s *Server) Sources(ctx context.Context, q admin.SourceQuery) (admin.Sources, error) {
	return s.sessionTable.sources(ctx, q)
}

// Why implements [admin.Balancer].
func (s *Server) Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error) {
	return s.sessionTable.why(ctx, q)
}
