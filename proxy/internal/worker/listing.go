package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// A Session is a client in a list, as it was when the list looked at it.
type Session struct {
	// ID names the client in later requests.
	ID ID
	// Record is the ID of its record; zero: none is kept.
	Record record.ID
	// Client and Endpoint are the two peers: the [source.Source] of the client (from its
	// PROXY header, if there was one), and the address of the endpoint ("unix:" before a
	// path). A peer that is not connected any more is "gone". Endpoint is empty as long as
	// there is none.
	Client, Endpoint string
	// Source is where the client comes from; unknown if it is not connected any more.
	Source source.Source
	// EndpointLocal is this machine's address of the TCP connection to the endpoint. It is empty if there is none, or if it
	// is unknown, as for clients on goroutines.
	EndpointLocal string
	// Listener is the name of the listener; Upstream and EndpointName are the names of the [Binding]. All three may be
	// empty.
	Listener, Upstream, EndpointName string
	State                            State
	// Lane says that the session has left user space, and Adopted that it comes from an earlier process.
	Lane, Adopted bool
	// Binding is the session's binding; nil: it has none, or the client is not joined yet.
	Binding Binding
	// Loop is the index of the loop that serves the client, negative if goroutines do.
	Loop int
	// Age is the time since the client was joined or, before that, accepted.
	Age time.Duration
	// Began is the time at which the age began, by the clock of the loop or of a goroutine.
	Began int64
	// Idle is the time since a byte has moved or, if that was later, the state has changed; negative: unknown.
	Idle time.Duration
	// Sample is the session's known waits; nil if it was not asked for, or the client is not joined.
	Sample *verdict.Sample
	Bytes  // that have been moved so far
}

// State is how far a client has come.
type State string

const (
	// Prereading: the client has not sent its first bytes yet.
	Prereading State = "preread"
	// Dialing: the search for a target is under way.
	Dialing State = "dialing"
	// Waiting: no target has a place, or the search tries again soon.
	Waiting State = "waiting"
	// Responding: the client gets a response in place of a target.
	Responding State = "responding"
	// Joined: the client is joined to a target, and both may send.
	Joined State = "joined"
	// ClientEnded: the client's end of file has been passed on; the endpoint may still send.
	ClientEnded State = "client-ended"
	// EndpointEnded: the same with the endpoint's end of file.
	EndpointEnded State = "endpoint-ended"
	// Ending: both have ended, or the session was cut; it is about to be closed.
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
	s.Bytes = bytesOf(&r)
}

// An ID names a client in a list. A client keeps its ID until it is joined; its session has another, until its end. IDs are
// unique in the process, and comparable.
type ID struct {
	Loop  int   // index of the loop; negative: the client is on goroutines
	Place int64 // on the loop, or its number among the clients on goroutines
	Began int64 // [Session.Began]
}

// onGoroutines is the Loop of IDs of clients on goroutines.
const onGoroutines = -1

// idBase is the number base of an ID as text.
const idBase = 36

// String returns the text of an ID for [ParseID]: 0.2v.5f3k2m9x1, or g.2v.5f3k2m9x1 for a session on goroutines.
func (id ID) String() string {
	loop := "g"
	if id.Loop >= 0 {
		loop = strconv.Itoa(id.Loop)
	}
	return loop + "." + strconv.FormatInt(id.Place, idBase) + "." + strconv.FormatInt(id.Began, idBase)
}

// ErrID is wrapped by the error of [ParseID].
var ErrID = errors.New("not the id of a session")

// ParseID reads the text of an ID of any client, present or not.
func ParseID(text string) (id ID, err error) {
	parts := strings.Split(text, ".")
	if len(parts) == 3 {
		if parts[0] == "g" {
			id.Loop = onGoroutines
		} else {
			var loop uint64
			loop, err = strconv.ParseUint(parts[0], 10, 16)
			id.Loop = int(loop)
		}
		var errs [2]error
		id.Place, errs[0] = strconv.ParseInt(parts[1], idBase, 64)
		id.Began, errs[1] = strconv.ParseInt(parts[2], idBase, 64)
		err = errors.Join(err, errs[0], errs[1])
	}
	if len(parts) != 3 || err != nil || id.Place < 0 || id.String() != text {
		return ID{}, errNoID(text)
	}
	return id, nil
}

// A Query selects clients for a list: clients that match all fields that are set. The zero value selects all.
type Query struct {
	ID                 ID        // zero: any
	Record             record.ID // zero: any
	Listener, Upstream string    // names; empty: any
	Endpoint           string    // a name or an address; empty: any
	Source             source.Rule
	Older              time.Duration // the least age
	Idle               time.Duration // the least known time without a byte
	Bytes              int64         // the least number, both directions together
	State              State         // empty: any
	// Lane selects sessions that have left user space.
	Lane bool
	// Joined selects only sessions, and no clients without an endpoint yet.
	Joined bool
	// Brief leaves out the names and addresses, except for the source, that the query does not ask for.
	Brief bool
	// Sample takes samples of sessions, by two system calls for each.
	Sample bool
	// Accepts decides last; nil accepts all. Loops call it, several at a time, and it must not wait.
	Accepts func(*Session) bool
}

// SetID selects a client by the text of its ID, or of its record's. An ID of 0 is an error: in a Query it would select all.
func (q *Query) SetID(text string) (err error) {
	var ok bool
	if q.Record, ok = record.ParseID(text); ok && !q.Record.IsZero() {
		return nil
	}
	q.Record = record.ID{}
	if q.ID, err = ParseID(text); err == nil && q.ID == (ID{}) {
		err = errNoID(text)
	}
	return err
}

func errNoID(text string) error {
	return fmt.Errorf("%q: %w: use an id from penstock sessions, such as 0.2v.5f3k2m9x1, or from the session log", text, ErrID)
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
	case q.ID != ID{} && s.ID != q.ID, !q.Record.IsZero() && s.Record != q.Record:
		return false
	}
	return q.Endpoint == "" || s.State.HasEndpoint()
}

// takesSource decides by the client's source.
func (q *Query) takesSource(s *Session) bool {
	return q.Source == source.Rule{} || q.Source.Contains(s.Source)
}

// takesEndpoint decides by the endpoint, when its address is known.
func (q *Query) takesEndpoint(s *Session) bool {
	return q.Endpoint == "" || s.EndpointName == q.Endpoint || s.Endpoint == q.Endpoint
}

// accepts lets the caller decide.
func (q *Query) accepts(s *Session) bool { return q.Accepts == nil || q.Accepts(s) }

// One turn of a worker's loop yields up to listMost clients, of up to listLooks places for them, and takes at most
// turnTime plus the time of the last passLooks clients.
const (
	listMost  = 64
	listLooks = 1024
	passLooks = 16
)

// Sessions yields the clients that a query selects, each at most once: all clients that exist during the whole listing, and
// some that come or leave meanwhile. It may miss a client with TLS that ends or begins here, while it goes back to its
// loop, and it misses clients that wait for a place under the limit. It ends when ctx does. The loops are asked for a few
// clients at a time, and do not wait; yield may take its time. Any goroutine but the loops' may call it.
func (g *Group) Sessions(ctx context.Context, q *Query) iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for part := range g.onLoops(ctx, q) {
			for _, s := range part {
				if !yield(s) {
					return
				}
			}
		}
		for _, s := range g.handed.list(q) {
			if ctx.Err() != nil || !yield(s) {
				return
			}
		}
	}
}

// onLoops yields the clients on the loops, a few at a time. It ends when ctx or the group does.
func (g *Group) onLoops(ctx context.Context, q *Query) iter.Seq[[]Session] {
	type found struct {
		part []Session
		next int
	}
	return func(yield func([]Session) bool) {
		if !g.started.Load() {
			return
		}
		for _, w := range g.workers {
			for at := 0; at >= 0; {
				p, ok := askPart(ctx, g, w, func() (p found) { p.part, p.next = w.list(at, q); return p })
				if !ok || !yield(p.part) {
					return
				}
				at = p.next
			}
		}
	}
}

// askPart makes a worker's loop compute a part of a result, unless ctx or the group ends first.
// Each caller gets at most one part in a turn, because a function that is posted after another has
// returned is called in the next turn.
func askPart[T any](ctx context.Context, g *Group, w *worker, find func() T) (p T, ok bool) {
	if ctx.Err() != nil {
		return p, false
	}
	select {
	case w.part <- struct{}{}:
	case <-ctx.Done():
		return p, false
	case <-g.ended:
		return p, false
	}
	answer := make(chan T, 1)
	w.post(func() {
		g.parts(func() { answer <- find() })
		<-w.part
	})
	select {
	case p = <-answer:
		return p, true
	case <-ctx.Done():
	case <-g.ended:
	}
	select {
	case p = <-answer: // also if everything ends because of it
		return p, true
	default:
		return p, false
	}
}

// list lists some clients from a place on. For a query by ID it looks only at the place in the ID.
func (w *worker) list(at int, q *Query) (sessions []Session, next int) {
	once := q.ID != ID{}
	if once {
		if q.ID.Loop != w.index {
			return nil, -1
		}
		at = int(q.ID.Place)
	}
	next = w.pass(at, func(at int, n *conn) bool {
		if s := w.outline(n, at); q.takes(&s) && w.complete(&s, n, q) {
			sessions = append(sessions, s)
		}
		return !once && len(sessions) < listMost
	})
	if once {
		next = -1
	}
	return sessions, next
}

// complete fills in the part of a session that costs system calls, unless the query does not select it.
func (w *worker) complete(s *Session, n *conn, q *Query) bool {
	if s.Source, s.Client = w.clientOf(n, q.Brief); !q.takesSource(s) {
		return false
	}
	if n.state == joined && (!q.Brief || q.Endpoint != "" && q.Endpoint != s.EndpointName) {
		s.Endpoint = w.endpointName(n)
	}
	if !q.takesEndpoint(s) || !q.accepts(s) {
		return false
	}
	if n.state == joined && n.tcp() && !q.Brief {
		s.EndpointLocal = w.endpointLocal(n)
	}
	if n.state == joined && q.Sample {
		s.Sample = n.sample()
	}
	return true
}

// outline returns the part of a client's session that costs no system call.
func (w *worker) outline(n *conn, at int) Session {
	s := Session{Loop: w.index, Idle: -1, Listener: n.ref.serving.service.Name, Adopted: n.is(adopted)}
	if c := n.ref.pending; c != nil {
		s.State, s.Age = c.phase.state(), time.Duration(w.loop.Now()-c.began)
		if c.Record != nil {
			s.Record = c.ID
		}
	} else {
		s.SetResult(n.result())
		s.Idle, s.Lane = n.idle(), n.carried()
		if s.Binding = n.binding(); s.Binding != nil {
			s.Upstream, s.EndpointName = s.Binding.Names()
		}
		if k := n.ref.kept; k != nil {
			s.Record = k.ID()
		}
	}
	s.Began = w.loop.Now() - int64(s.Age)
	s.ID = ID{w.index, int64(at), s.Began}
	return s
}

// clientOf returns where a client comes from and, unless brief, its name. It asks the kernel for addresses that are not
// kept for the log, so that an idle session needs no memory to be listed.
func (w *worker) clientOf(n *conn, brief bool) (from source.Source, name string) {
	from, fd := w.sourceOf(n)
	switch {
	case brief:
	case from.Known() || fd < 0:
		name = from.String()
	default:
		name = peerName(fd)
	}
	return from, name
}

// sourceOf returns where a client comes from, and its TCP socket if the kernel was asked.
func (w *worker) sourceOf(n *conn) (from source.Source, fd int) {
	if c := n.ref.pending; c != nil {
		return c.Source(), -1
	}
	if k := n.ref.kept; k != nil {
		from, _ = k.Addresses()
		return from, -1
	}
	if header, ok := w.sources[n]; ok {
		return source.TCP(header), -1
	}
	if n.carried() {
		if client, _, _, ok := w.laneAddresses(n); ok {
			from = source.TCP(client)
		}
		return from, -1
	}
	a, _ := n.descriptors()
	if !n.ref.serving.socket.TCP {
		return unixPeerOf(a), -1
	}
	if peer, err := sys.PeerName(a); err == nil {
		from = source.TCP(peer.AddrPort)
	}
	return from, a
}

// endpointName names the endpoint of a session.
func (w *worker) endpointName(n *conn) string {
	if k := n.ref.kept; k != nil {
		_, name := k.Addresses()
		return name
	}
	if _, endpoint, _, ok := w.laneAddresses(n); ok {
		return endpoint.String()
	}
	_, b := n.descriptors()
	return peerName(b)
}

// endpointLocal returns this machine's address of the connection to the endpoint.
func (w *worker) endpointLocal(n *conn) string {
	if _, _, local, ok := w.laneAddresses(n); ok {
		return local.String()
	}
	_, b := n.descriptors()
	if name, err := sys.LocalName(b); err == nil && name.AddrPort.IsValid() {
		return name.AddrPort.String()
	}
	return ""
}
