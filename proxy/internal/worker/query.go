package worker

import (
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
)

// A Query selects clients for a list. The zero value selects all. All that is set must be true of
// a client.
type Query struct {
	ID                 ID     // zero: any
	Listener, Upstream string // names; empty: any
	Endpoint           string // a name or an address; empty: any
	Source             source.Rule
	Older              time.Duration // the least age
	Idle               time.Duration // the least time without a byte, which must be known
	Bytes              int64         // the least number, of both directions
	State              State         // empty: any
	// Lane selects sessions that have left user space.
	Lane bool
	// Joined selects sessions alone, and no clients that have no endpoint yet.
	Joined bool
	// Brief leaves out names and addresses that the query does not ask for, but for the source.
	Brief bool
	// Sample has the Samples of sessions taken, by two system calls for each.
	Sample bool
	// Accepts is asked last; nil accepts all. It is called on the loops, several at a time, and must not wait.
	Accepts func(*Session) bool
}

// HasEndpoint reports whether the client is joined to an endpoint, or was.
func (s State) HasEndpoint() bool {
	return s == Joined || s == ClientEnded || s == EndpointEnded || s == Ending
}

// takes decides by what is known without a system call.
func (q *Query) takes(s *Session) bool {
	switch {
	case q.Lane && !s.Lane, q.Joined && !s.State.HasEndpoint(), q.State != "" && s.State != q.State:
		return false
	case q.Listener != "" && s.Listener != q.Listener, q.Upstream != "" && s.Upstream != q.Upstream:
		return false
	case s.Age < q.Older, s.Idle < q.Idle && q.Idle > 0:
		return false
	case q.Bytes > 0 && s.ClientToEndpoint.All()+s.EndpointToClient.All() < q.Bytes:
		return false
	case q.ID != ID{} && s.ID != q.ID:
		return false
	}
	return q.Endpoint == "" || s.State.HasEndpoint()
}

// takesSource decides by the client's source.
func (q *Query) takesSource(s *Session) bool {
	return q.Source == source.Rule{} || q.Source.Contains(s.Source)
}

// takesEndpoint decides by the endpoint, whose address is known.
func (q *Query) takesEndpoint(s *Session) bool {
	return q.Endpoint == "" || s.EndpointName == q.Endpoint || s.Endpoint == q.Endpoint
}

// accepts asks the caller.
func (q *Query) accepts(s *Session) bool { return q.Accepts == nil || q.Accepts(s) }
