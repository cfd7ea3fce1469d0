package worker

import (
	"context"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// Loops returns how many loops there are.
func (g *Group) Loops() int { return len(g.workers) }

// Progress has [Host.Lasts] called for each session with a record since whose beginning a whole number of
// intervals has passed between two times of the clock. The loops are asked for a few sessions at a time. It
// returns when that is done, or ctx or the group ends. It is not called by several goroutines at a time.
func (g *Group) Progress(ctx context.Context, from, to int64, every time.Duration) {
	if !g.started.Load() || every <= 0 {
		return
	}
	for _, w := range g.workers {
		for at := 0; at >= 0; {
			next, ok := askPart(ctx, g, w, func() int { return w.progress(at, from, to, int64(every)) })
			if !ok {
				return
			}
			at = next
		}
	}
}

// progress looks at some clients from a place on, and returns the place to go on at.
func (w *worker) progress(at int, from, to, every int64) (next int) {
	return w.pass(at, func(_ int, n *conn) bool {
		if k := n.ref.kept; n.state == joined && k != nil && due(k.Joined(), from, to, every) {
			w.lasts(n, k)
		}
		return true
	})
}

// due reports whether a multiple of an interval since a time is after from, and not after to.
func due(since, from, to, every int64) bool {
	return since != 0 && to > since && (to-since)/every > max(from-since, 0)/every
}

// lasts passes the record of a session that goes on to the host.
func (w *worker) lasts(n *conn, k *kept) {
	if w.records.scratch == nil {
		w.records.scratch = new(record.Record)
	}
	r, b, s := w.records.scratch, n.binding(), k.serving
	k.Unpack(r)
	r.Listener, r.Loop, r.Result = s.socket.Name, w.index, n.result()
	setNames(r, b)
	w.group.cfg.Host.Lasts(s.socket, b, r)
}
