package worker

import (
	"time"

	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// A Session is an entry of a list: a client at the moment at which it was looked at.
type Session struct {
	// ID names it in later requests.
	ID ID
	// Client and Endpoint are the two peers: the client's [source.Source], which is of its
	// PROXY header if there was one, and the endpoint's address, "unix:" before a path;
	// "gone" for one that is not connected any more. Endpoint is empty while there is none.
	Client, Endpoint string
	// Source is where the client comes from; unknown if it is not connected any more.
	Source source.Source
	// EndpointLocal is this machine's address of the connection to an endpoint of TCP, empty if there is none, or it is
	// not known: sessions on goroutines have none here.
	EndpointLocal string
	// Listener is the name of where it came in, Upstream and EndpointName are the names of its
	// [Binding]; all three may be empty.
	Listener, Upstream, EndpointName string
	State                            State
	// Lane says that it has left user space, and Adopted that a process before this one has had it.
	Lane, Adopted bool
	// Binding is its binding; nil: it has none, or is not joined yet.
	Binding Binding
	// Loop is the index of the loop that serves it, negative where there are goroutines.
	Loop int
	// Age is the time since it was joined, and before that since it was accepted.
	Age time.Duration
	// Began is when that was, by the clock of its loop, or of a goroutine.
	Began int64
	// Idle is for how long no byte has moved, or since its state has changed if that was
	// later; negative if that is not known.
	Idle time.Duration
	// Sample is what is known of its waits; nil if that was not asked for, or it is not joined.
	Sample *verdict.Sample
	// ClientToEndpoint and EndpointToClient are the bytes that have been moved so far.
	ClientToEndpoint, EndpointToClient Moved
}

// State is how far a client has come.
type State string

const (
	// Prereading: it has not sent its first bytes yet.
	Prereading State = "preread"
	// Dialing: a target is looked for.
	Dialing State = "dialing"
	// Waiting: there was no place at a target, or it is tried again soon.
	Waiting State = "waiting"
	// Responding: it is sent a response, and no target.
	Responding State = "responding"
	// Joined: it is joined to one, and both may send.
	Joined State = "joined"
	// ClientEnded: half of the session is left, since the client's end of file has been
	// passed on.
	ClientEnded State = "client-ended"
	// EndpointEnded: likewise, and it was the endpoint's.
	EndpointEnded State = "endpoint-ended"
	// Ending: both have ended, or it was cut; it is about to be closed.
	Ending State = "ending"
)

// SetResult fills in the counters of a joined session from its result; its a is the client.
func (s *Session) SetResult(r relay.Result) {
	const eof = relay.ReasonEOF
	client, endpoint := r.AToB.Reason == eof, r.BToA.Reason == eof
	switch {
	case r.Reason != relay.ReasonNone, client && endpoint:
		s.State = Ending
	case client, r.First == relay.SideA: // in the lane a direction that has ended has no reason
		s.State = ClientEnded
	case endpoint, r.First == relay.SideB:
		s.State = EndpointEnded
	default:
		s.State = Joined
	}
	s.Age = r.Duration
	s.ClientToEndpoint = movedBy(&r.AToB)
	s.EndpointToClient = movedBy(&r.BToA)
}

// setBinding fills in a session's binding, with its names.
func (s *Session) setBinding(b Binding) {
	if b != nil {
		s.Binding = b
		s.Upstream, s.EndpointName = b.Names()
	}
}
