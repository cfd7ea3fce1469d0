package worker

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/relay"
)

// A clientScan visits all places for clients of a worker, a few in each turn of its loop. A client keeps its place, so none
// is met twice.
type clientScan struct {
	visit func(w *worker, n *conn)
	over  func(spent time.Duration) // called by the loop at the end, with the whole time
	at    int                       // the next place
	spent time.Duration
}

// scanClients scans all workers at once, and returns the time that the loops have spent. If the group ends first, visit may
// still be called afterwards.
func (g *Group) scanClients(visit func(w *worker, n *conn)) (spent time.Duration) {
	if !g.started.Load() {
		return 0
	}
	onAll(g, func(w *worker, over func(time.Duration)) { w.scanClients(visit, over) }, func(one time.Duration) { spent += one })
	return spent
}

func (w *worker) scanClients(visit func(w *worker, n *conn), over func(spent time.Duration)) {
	w.clientScans = append(w.clientScans, &clientScan{visit: visit, over: over})
	if len(w.clientScans) == 1 {
		w.scanSomeClients()
	}
}

// scanSomeClients continues the first scan, for as long as one turn may take.
func (w *worker) scanSomeClients() {
	t, began := w.clientScans[0], time.Now()
	t.at = w.pass(t.at, func(_ int, n *conn) bool { t.visit(w, n); return true })
	if t.spent += time.Since(began); t.at >= 0 {
		w.post(w.scanClientsOn)
		return
	}
	if t.over != nil {
		t.over(t.spent)
	}
	if w.clientScans = w.clientScans[1:]; len(w.clientScans) > 0 {
		w.post(w.scanClientsOn)
	}
}

// Recount counts the present sessions by their sources that were not counted before, see [Admitter]. It does not wait.
func (g *Group) Recount() {
	for _, w := range g.workers {
		w.post(func() {
			w.scanClients(func(w *worker, n *conn) {
				if n.state == joined {
					n.admissionToken = w.counted(n.ref.serving, n.admissionToken, func() source.Source { from, _ := w.sourceOf(n); return from })
				}
			}, nil)
		})
	}
}

// counted returns the token of a client that is counted by its source, if sources are counted now.
func (w *worker) counted(s *serving, admissionToken uint64, from func() source.Source) uint64 {
	if a := s.service.Admitter; a != nil {
		if count := a.Uncounted(admissionToken); count != nil {
			return count(from(), w.loop.Now())
		}
	}
	return admissionToken
}

// A Match reports whether it selects the sessions of a socket with a binding, nil for none. Loops call it, several at a
// time.
type Match func(l *Listening, b Binding) bool

// CutMatching ends the sessions that match; their results have the cause. A session in the lane that is being reset already
// does not count again. Clients that are not joined yet are left alone:
// [Search.Reached] may still refuse them. CutMatching looks at all present sessions, a few in each turn of a loop, and then
// returns how many it has cut. Any goroutine but the loops' may call it.
func (g *Group) CutMatching(match Match, cause error) int {
	var cut atomic.Int64
	g.cutMirrorsMatching(match)
	g.scanClients(func(_ *worker, n *conn) {
		if n.state == joined && n.result().Reason == relay.ReasonNone && match(n.ref.serving.socket, n.binding()) {
			cut.Add(1)
			n.driven().Cut(cause)
		}
	})
	return int(cut.Load())
}

// A Spread says when the sessions that are left at the end of a drain are cut: a few at a time,
// at random, over the last tenth of the drain, so that their clients do not all come back at the
// same moment. The last step, at the end of the time, cuts the rest.
type Spread struct {
	First time.Duration // from the drain's begin to the first step
	Every time.Duration // between two steps
	Steps int
}

// The bounds of a Spread.
const (
	mostSpread = 30 * time.Second
	leastStep  = 10 * time.Millisecond
	mostSteps  = 50
)

// NewSpread returns the steps of a drain of the given duration.
func NewSpread(within time.Duration) Spread {
	over := min(within/10, mostSpread)
	steps := min(max(int(over/leastStep), 1), mostSteps)
	every := over / time.Duration(steps)
	return Spread{First: within - time.Duration(steps-1)*every, Every: every, Steps: steps}
}

// Cuts reports whether a remaining session is cut in a step (counted from 0): at random, so
// that each step cuts about the same number, and in the last step always.
func (s Spread) Cuts(step int) bool { return step >= s.Steps-1 || rand.IntN(s.Steps-step) == 0 }

// An EndResult is the result of an attempt to end a session.
type EndResult uint8

const (
	// EndedBefore: the session has ended before.
	EndedBefore EndResult = iota
	// EndedNow: this attempt has ended it.
	EndedNow
	// Busy: it is not quiet, and goes on.
	Busy
)

// End ends sessions of one loop by their IDs, and calls yield with the result of each, in order. The cause is
// [record.ErrOperator], or [record.ErrOperatorNow] if quiet is 0. A side is reset unless the other side has sent an end of
// file: only the peers know whether they had more to send. quiet, unless 0, ends only sessions that are quiet
// ([relay.Driven.Quiet]) and have moved no byte for this time. Bytes that arrive at this very moment meet the reset.
//
// The loop ends a few sessions at a time: each part takes no longer than turnTime and the time of the last one. The error
// is from ctx. A few more sessions may end after an error, so ids must not be changed then.
func (g *Group) End(ctx context.Context, ids []ID, quiet time.Duration, yield func(ID, EndResult)) error {
	if len(ids) == 0 || !g.started.Load() {
		return ctx.Err()
	}
	if ids[0].Loop < 0 || ids[0].Loop >= len(g.workers) { // clients on goroutines are not joined yet
		for _, id := range ids {
			yield(id, EndedBefore)
		}
		return nil
	}
	for w := g.workers[ids[0].Loop]; len(ids) > 0; {
		part, ok := askPart(ctx, g, w, func() []EndResult { return w.endSome(ids, quiet) })
		switch {
		case ctx.Err() != nil && !ok:
			return ctx.Err()
		case !ok: // the group has ended, and all sessions with it
			part = make([]EndResult, len(ids))
		}
		for i, e := range part {
			yield(ids[i], e)
		}
		ids = ids[len(part):]
	}
	return nil
}

// endSome tries to end some sessions, at least one.
func (w *worker) endSome(ids []ID, quiet time.Duration) []EndResult {
	began := time.Now()
	part := make([]EndResult, 0, min(len(ids), listLooks))
	for _, id := range ids {
		part = append(part, w.end(id, quiet))
		if len(part) == listLooks || time.Since(began) > turnTime {
			break
		}
	}
	return part
}

func (w *worker) end(id ID, quiet time.Duration) EndResult {
	n := w.at(id.Place)
	if n == nil || n.state != joined || w.loop.Now()-int64(n.result().Duration) != id.Began {
		return EndedBefore
	}
	if quiet > 0 && (n.idle() < quiet || !n.quiet()) {
		return Busy
	}
	cause := record.ErrOperator
	if quiet == 0 {
		cause = record.ErrOperatorNow
	}
	n.driven().Cut(cause)
	return EndedNow
}

// at returns the client at a place, or nil if there is no such place.
func (p *places) at(place int64) *conn {
	slab := place / int64(slabSize)
	if place < 0 || slab >= int64(len(p.slabs)) {
		return nil
	}
	return &p.slabs[slab][place%int64(slabSize)]
}

// Loops returns the number of loops.
func (g *Group) Loops() int { return len(g.workers) }

// Progress calls [Host.Lasts] for each session with a record if its age reaches a multiple of every after from, and not
// after to (times of the clock). The loops look at a few sessions in each turn. Progress returns at the end, or when the
// group ends. Only one goroutine may call it at a time.
func (g *Group) Progress(from, to int64, every time.Duration) {
	g.scanClients(func(w *worker, n *conn) {
		if k := n.ref.kept; n.state == joined && k != nil && due(k.Joined(), from, to, int64(every)) {
			r, b := w.unpack(k), n.binding()
			r.Result = n.result()
			setNames(r, b)
			w.group.cfg.Host.Lasts(k.serving.socket, b, r)
		}
	})
}

// due reports whether, after from and until to, the time since since has reached a multiple of every.
func due(since, from, to, every int64) bool {
	return since != 0 && to > since && (to-since)/every > max(from-since, 0)/every
}

// Watch reports to the binding of each running session, if any, how the session has changed since the previous call. It
// returns when all are reported, or when the group ends. The loops look at a few sessions in each turn; spent is the sum of
// their time for this. Only one goroutine may call Watch.
func (g *Group) Watch() (spent time.Duration) {
	return g.scanClients(func(w *worker, n *conn) {
		if n.state != joined {
			return
		}
		switch b := n.binding(); {
		case b == nil:
		case n.lane != nil && n.carried():
			b.Watch(n.lane.turn(), w.loop.Now())
		default:
			b.Watch(n.session.Look(), w.loop.Now())
		}
	})
}
