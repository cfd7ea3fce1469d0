package worker

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// A Watcher is a [Binding] that gets the state of its sessions from [Group.Watch].
type Watcher interface {
	Binding
	// Watch gets the state of a session, at a time of the loops' clock. It is called on the
	// goroutine of a loop, or that of Group.Watch, and must not wait.
	Watch(t relay.Turn, now int64)
}

// Watch reports the state of each running session, since the call before, to its binding if that is
// a [Watcher]. It returns when all were reported, or when the group ends. The loops go on; they
// look at a few sessions in each turn. spent is their time for it, added up. Only one goroutine
// may call Watch.
func (g *Group) Watch() (spent time.Duration) {
	all := g.scanClients(func(w *worker, n *conn) {
		if n.state != joined {
			return
		}
		if watcher, ok := n.binding().(Watcher); ok {
			watcher.Watch(w.turnOf(n), w.loop.Now())
		}
	})
	for _, t := range all {
		spent += t.spent
	}
	began := time.Now()
	g.handed.watch(g.cfg.Now())
	return spent + time.Since(began)
}

// turnOf returns the state of a joined session.
func (w *worker) turnOf(n *conn) relay.Turn {
	if c := n.lane; c != nil && n.carried() {
		return c.turn()
	}
	return n.session.Look()
}

// watch shows those that are joined.
func (b *blockingSessions) watch(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := b.ring.next; h != &b.ring; h = h.next {
		if w, ok := h.binding.(Watcher); ok && h.session != nil {
			w.Watch(h.session.Look(), now)
		}
	}
}
