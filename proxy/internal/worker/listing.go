package worker

import (
	"context"
	"iter"
	"time"

	"github.com/penstock/penstock/proxy/internal/verdict"
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

// Sessions yields the clients that are served, each one at most once: those that are there
// from the beginning to the end of the listing, and of those that come or leave meanwhile
// some. One whose TLS ends or begins here may be missed while it goes back to its loop. Clients that wait for a place under the limit are not served yet. It ends when ctx
// does. The loops are asked for a few at a time, and do not wait; yield may take its time. It
// may be called at any time by any goroutine but those of the loops.
func (g *Group) Sessions(ctx context.Context) iter.Seq[Session] { return g.Inspect(ctx, nil) }

// Inspect is Sessions, of joined sessions that match, with their Samples. match is called on the loops, and must
// not wait; nil is every client, without a Sample. A Sample takes a system call for each of the two sockets.
func (g *Group) Inspect(ctx context.Context, match func(*Session) bool) iter.Seq[Session] {
	return func(yield func(Session) bool) {
		if !g.started.Load() {
			return
		}
		for i, w := range g.workers {
			for at := 0; at >= 0; {
				p, ok := askPart(ctx, g, w, func() listing { return w.list(i, at, match) })
				if !ok {
					return
				}
				for _, s := range p.sessions {
					if !yield(s) {
						return
					}
				}
				at = p.next
			}
		}
		for _, s := range g.handed.list(match) {
			if ctx.Err() != nil || !yield(s) {
				return
			}
		}
	}
}

// askPart has a worker's loop find out a part of something, unless ctx or the group ends first.
func askPart[T any](ctx context.Context, g *Group, w *worker, find func() T) (p T, ok bool) {
	if ctx.Err() != nil {
		return p, false
	}
	answer := make(chan T, 1)
	w.post(func() { answer <- find() })
	select {
	case p = <-answer:
		return p, true
	case <-ctx.Done():
	case <-g.ended:
	}
	return p, false
}

// list lists some clients from a place on.
func (w *worker) list(index, at int, match func(*Session) bool) listing {
	p := listing{sessions: make([]Session, 0, listMost)}
	p.next = w.pass(at, func(n *conn) bool {
		s := w.describe(n, index)
		switch {
		case match == nil:
		case n.state != joined || !match(&s):
			return true
		default:
			s.Sample = n.sample()
		}
		p.sessions = append(p.sessions, s)
		return len(p.sessions) < listMost
	})
	return p
}

// sample returns what is known of a joined session's waits.
func (n *conn) sample() *verdict.Sample {
	r, legs := n.session.Result(), n.session.Legs()
	r.Legs = &legs
	s := verdict.OfResult(&r, !n.ref.serving.socket.TCP, !n.tcp, -1)
	return &s
}

// describe returns a client's session. Addresses are asked for, but where they are kept to be
// logged: an idle session costs nothing for being listed.
func (w *worker) describe(n *conn, index int) Session {
	s := Session{Loop: index, Idle: -1}
	s.Listener = n.ref.serving.socket.Name
	if c := n.ref.pending; c != nil {
		s.Client, s.State = c.clientName(), c.phase.state()
		s.Age = time.Duration(w.loop.Now() - c.began)
		return s
	}
	if k := n.ref.kept; k != nil {
		s.Client, s.Endpoint = k.names()
	} else {
		a, b := n.session.Descriptors()
		s.Client, s.Endpoint = peerName(a), peerName(b)
		if from, ok := w.sources[n]; ok {
			s.Client = from.String()
		} else if !n.ref.serving.socket.TCP {
			s.Client = unixPeerOf(a).String()
		}
	}
	if n.tcp {
		_, b := n.session.Descriptors()
		s.EndpointLocal = localName(b)
	}
	s.SetResult(n.session.Result())
	s.Began = w.loop.Now() - int64(s.Age)
	s.Idle = n.session.Idle()
	s.setBinding(bindingOf(n.session.Limits()))
	return s
}
