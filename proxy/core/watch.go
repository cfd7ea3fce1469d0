//go:build linux

package core

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// A Watcher is a [Bond] that is shown how its sessions stand, by [Group.Watch].
type Watcher interface {
	Bond
	// Watch is shown a session that runs, at a time of the loops' clock. It is called by the
	// goroutine of a loop, or by that of Group.Watch, and must not wait.
	Watch(t relay.Turn, now int64)
}

// Watch shows the sessions that run to their bonds that are [Watcher]s, each one once, and
// returns when they were shown, or when the group ends. The loops go on, and look at a few
// sessions in each of their turns; spent is how much of their time that took, of all together.
// Only one goroutine at a time may call it: what a session has done is told since the call
// before.
func (g *Group) Watch() (spent time.Duration) {
	all := g.tour(func(c *core, n *conn) {
		if n.state != joined {
			return
		}
		if w, ok := bondOf(n.session.Limits()).(Watcher); ok {
			w.Watch(n.session.Look(), c.loop.Now())
		}
	})
	for _, t := range all {
		spent += t.spent
	}
	began := time.Now()
	g.handed.watch(g.cfg.Now())
	return spent + time.Since(began)
}

// watch shows those that are joined.
func (b *book) watch(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := b.ring.next; h != &b.ring; h = h.next {
		if w, ok := h.bond.(Watcher); ok && h.session != nil {
			w.Watch(h.session.Look(), now)
		}
	}
}
