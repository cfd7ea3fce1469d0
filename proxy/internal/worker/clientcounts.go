package worker

import (
	"context"
	"time"
)

// A ClientCounts counts the clients that are served, by listening socket and binding.
type ClientCounts map[CountKey]ClientCount

// A CountKey is a listener and, once a client is joined, an upstream, by their names.
type CountKey struct{ Listener, Upstream string }

// A ClientCount is the clients of a [CountKey].
type ClientCount struct {
	Clients int
	Oldest  time.Duration // the longest age of one, see [Session]
}

func (c ClientCounts) add(at CountKey, age time.Duration) {
	crowd := c[at]
	crowd.Clients++
	crowd.Oldest = max(crowd.Oldest, age)
	c[at] = crowd
}

// ClientCounts counts the clients as [Group.Sessions] lists them, but asks the kernel for nothing.
func (g *Group) ClientCounts(ctx context.Context) ClientCounts {
	all := make(ClientCounts)
	if !g.started.Load() {
		return all
	}
	type found struct {
		counts ClientCounts
		next   int
	}
	for _, w := range g.workers {
		for at := 0; at >= 0; {
			p, ok := askPart(ctx, g, w, func() (p found) {
				p.counts, p.next = w.count(at)
				return p
			})
			if !ok {
				return all
			}
			for place, crowd := range p.counts {
				sum := all[place]
				all[place] = ClientCount{sum.Clients + crowd.Clients, max(sum.Oldest, crowd.Oldest)}
			}
			at = p.next
		}
	}
	for _, s := range g.handed.list(new(Query)) {
		all.add(CountKey{s.Listener, s.Upstream}, s.Age)
	}
	return all
}

// count counts some clients from a place on.
func (w *worker) count(at int) (ClientCounts, int) {
	part := make(ClientCounts)
	next := w.pass(at, func(_ int, n *conn) bool {
		place, age := CountKey{Listener: n.ref.serving.socket.Name}, time.Duration(0)
		if c := n.ref.pending; c != nil {
			age = time.Duration(w.loop.Now() - c.began)
		} else {
			age = n.result().Duration
			if binding := n.binding(); binding != nil {
				place.Upstream, _ = binding.Names()
			}
		}
		part.add(place, age)
		return true
	})
	return part, next
}
