package worker

import (
	"context"
	"iter"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/proxy/internal/source"
)

// A listing is the part of a list that one turn of a worker's loop yields: up to listMost
// clients, of up to listLooks places for them, for which it takes no longer than listTime and
// the time of the last client.
type listing struct {
	sessions []Session
	next     int // the place to go on at; negative: there is none
}

const (
	listMost  = 64
	listLooks = 1024
	listTime  = 250 * time.Microsecond
)

// Sessions yields the clients that a query selects, each one at most once: those that are there
// from the beginning to the end of the listing, and of those that come or leave meanwhile
// some. One whose TLS ends or begins here may be missed while it goes back to its loop. Clients that wait for a place under the limit are not served yet. It ends when ctx
// does. The loops are asked for a few at a time, and do not wait; yield may take its time. It
// may be called at any time by any goroutine but those of the loops.
func (g *Group) Sessions(ctx context.Context, q *Query) iter.Seq[Session] {
	return func(yield func(Session) bool) {
		if !g.started.Load() {
			return
		}
		for i, w := range g.workers {
			at, once := 0, q.ID != ID{}
			if once {
				if i != q.ID.Loop {
					continue
				}
				at = int(q.ID.Place)
			}
			for at >= 0 {
				p, ok := askPart(ctx, g, w, func() listing { return w.list(i, at, q) })
				if !ok {
					return
				}
				for _, s := range p.sessions {
					if !yield(s) {
						return
					}
				}
				if at = p.next; once {
					break
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

// askPart has a worker's loop find out a part of something, unless ctx or the group ends first. A turn has one part
// at most, however many ask: a function that is posted after one has returned is called in the next turn.
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
	part := func() { answer <- find() }
	if g.parts != nil {
		part = func() { g.parts(func() { answer <- find() }) }
	}
	w.post(func() { part(); <-w.part })
	select {
	case p = <-answer:
		return p, true
	case <-ctx.Done():
	case <-g.ended:
	}
	return p, false
}

// list lists some clients from a place on.
func (w *worker) list(index, at int, q *Query) listing {
	var p listing
	p.next = w.pass(at, func(at int, n *conn) bool {
		s := w.outline(n, index, at)
		if !q.takes(&s) {
			return q.ID == ID{} // it is there, or nowhere
		}
		if w.complete(&s, n, q) {
			p.sessions = append(p.sessions, s)
		}
		return len(p.sessions) < listMost
	})
	return p
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
func (w *worker) outline(n *conn, index, at int) Session {
	s := Session{Loop: index, Idle: -1, Listener: n.ref.serving.socket.Name, Adopted: n.is(adopted)}
	if c := n.ref.pending; c != nil {
		s.State, s.Age = c.phase.state(), time.Duration(w.loop.Now()-c.began)
	} else {
		s.SetResult(n.result())
		s.Idle, s.Lane = n.idle(), n.carried()
		s.setBinding(n.binding())
	}
	s.Began = w.loop.Now() - int64(s.Age)
	s.ID = ID{index, int64(at), s.Began}
	return s
}

// clientOf returns where a client comes from, and its name. Addresses are asked for, but where they are kept to
// be logged: an idle session costs nothing for being listed. The name may be left out.
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

// sourceOf returns where a client comes from, and its socket of TCP if that was asked.
func (w *worker) sourceOf(n *conn) (from source.Source, fd int) {
	if c := n.ref.pending; c != nil {
		return c.client.Source(), -1
	}
	if k := n.ref.kept; k != nil {
		from, _ = k.Addresses()
		return from, -1
	}
	if header, ok := w.sources[n]; ok {
		return source.TCP(header), -1
	}
	if n.carried() {
		return w.laneSource(n), -1
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

// endpointLocal is this machine's address of the connection to the endpoint.
func (w *worker) endpointLocal(n *conn) string {
	if _, _, local, ok := w.laneAddresses(n); ok {
		return local.String()
	}
	_, b := n.descriptors()
	return localName(b)
}
