package server

import (
	"strconv"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// adoptedVerdict is that of the time in the lane, by its observations: the time before, in another process, is not known.
func (s *Server) adoptedVerdict(v *lane.View) string {
	sample := verdict.OfLane(v, verdict.Times{})
	return s.verdictOf(&sample).Kind.String()
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

// selects decides whether a query is for an adopted session, and returns its verdict if the query asks for that. A name that is not known is none
// that could be asked for. The lock of the list is held.
func (s *Server) selects(q *worker.Query, wanted string, one *adoptedSession) (of string, ok bool) {
	listener, upstream, name := one.names()
	switch {
	case q.ID != worker.ID{}, q.Listener != "" && q.Listener != listener, q.Upstream != "" && q.Upstream != upstream:
		return "", false
	case q.Endpoint != "" && q.Endpoint != one.endpoint && q.Endpoint != name, q.Source != source.Rule{} && !q.Source.Contains(one.source):
		return "", false
	case one.session.Age() < q.Older, q.Idle > 0 && time.Since(one.active) < q.Idle, q.State != "" && q.State != one.state():
		return "", false
	}
	if n := one.session.Bytes(); int64(n[0]+n[1]) < q.Bytes {
		return "", false
	}
	if wanted == "" {
		return "", true
	}
	v, _ := one.session.Look()
	of = s.adoptedVerdict(&v)
	return of, wanted == admin.AnyVerdict || wanted == of
}

// adoptedSelected returns the adopted sessions of a query, as they are listed.
func (s *Server) adoptedSelected(q *worker.Query, wanted string) (list []admin.Session) {
	a := &s.adopted
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, one := range a.list {
		of, ok := s.selects(q, wanted, one)
		if !ok {
			continue
		}
		listener, upstream, name := one.names()
		n, idle := one.session.Bytes(), time.Since(one.active).Microseconds()
		list = append(list, admin.Session{
			ID: "adopted-" + strconv.Itoa(i), Client: one.client, Listener: listener, Upstream: upstream, Endpoint: one.endpoint, Name: name, EndpointLocal: one.local,
			State: string(one.state()), Loop: -1, AgeUs: one.session.Age().Microseconds(), IdleUs: &idle, Engine: admin.EngineLane, Adopted: true, Verdict: of,
			Bytes: bytesOf(worker.Bytes{ClientToEndpoint: worker.Moved{Lane: int64(n[0])}, EndpointToClient: worker.Moved{Lane: int64(n[1])}}, worker.Bytes{}),
		})
	}
	return list
}

// endAdopted ends the adopted sessions of a query: one that is not quiet, and was to be, goes on.
func (s *Server) endAdopted(q *admin.EndQuery, of *worker.Query, counted *admin.Ended) {
	var touched, kept int64
	ended := s.adopted.cut(func(one *adoptedSession) bool {
		if _, ok := s.selects(of, q.Verdict, one); !ok {
			return false
		}
		touched++
		quiet := time.Since(one.active) >= q.Quiet
		if !quiet && !q.DryRun {
			kept++
		}
		return quiet && !q.DryRun
	}, record.ErrOperator)
	counted.Touched, counted.Ended, counted.Kept = counted.Touched+touched, counted.Ended+ended, counted.Kept+kept
	if !q.DryRun {
		counted.Other += touched - ended - kept // were being reset
	}
}
