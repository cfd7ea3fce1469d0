//go:build linux

package core

import (
	"context"
	"time"
)

// A Census counts the clients that are served, by where they came in and what they are bound
// to.
type Census map[Place]Crowd

// A Place is a listener and, once a client is joined, an upstream, by their names.
type Place struct{ Listener, Upstream string }

// A Crowd is the clients of a [Place].
type Crowd struct {
	Clients int
	Oldest  time.Duration // the longest age of one, see [Session]
}

func (c Census) add(at Place, age time.Duration) {
	crowd := c[at]
	crowd.Clients++
	crowd.Oldest = max(crowd.Oldest, age)
	c[at] = crowd
}

// Census counts the clients as [Group.Sessions] lists them, but asks the kernel for nothing.
func (g *Group) Census(ctx context.Context) Census {
	all := make(Census)
	if !g.started.Load() {
		return all
	}
	type found struct {
		census Census
		next   int
	}
	for _, c := range g.cores {
		for at := 0; at >= 0; {
			p, ok := askPart(ctx, g, c, func() (p found) {
				p.census, p.next = c.count(at)
				return p
			})
			if !ok {
				return all
			}
			for place, crowd := range p.census {
				sum := all[place]
				all[place] = Crowd{sum.Clients + crowd.Clients, max(sum.Oldest, crowd.Oldest)}
			}
			at = p.next
		}
	}
	for _, s := range g.handed.list() {
		all.add(Place{s.Listener, s.Upstream}, s.Age)
	}
	return all
}

// count counts some clients from a place on.
func (c *core) count(at int) (Census, int) {
	part := make(Census)
	next := c.pass(at, func(n *conn) bool {
		place, age := Place{Listener: n.role.serving.socket.Name}, time.Duration(0)
		if d := n.role.dial; d != nil {
			age = time.Duration(c.loop.Now() - d.began)
		} else {
			age = n.session.Result().Duration
			if bond := bondOf(n.session.Limits()); bond != nil {
				place.Upstream, _ = bond.Names()
			}
		}
		part.add(place, age)
		return true
	})
	return part, next
}
