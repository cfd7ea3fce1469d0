package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// An EndResult is the result of an attempt to end a session.
type EndResult uint8

const (
	// EndedBefore: the session is not there any more.
	EndedBefore EndResult = iota
	// EndedNow: this has ended it.
	EndedNow
	// Busy: it goes on, for it is not quiet.
	Busy
)

// End ends sessions of one loop, or of goroutines, by their IDs, and calls yield with the result
// of each in their order. The cause is [record.ErrOperator]. A side is reset unless the other one
// has ended in good order: only the peers know whether they had more to say. With a time of quiet only
// those are ended that are quiet ([relay.Driven.Quiet]) and have moved no byte for so long; others go on.
// Bytes that come in the very moment are met by the reset. 0 ends all.
//
// The loop ends a few at a time: each part takes no longer than listTime and the time of the last
// one. An error is that of ctx, or of a group that ends; a few more may be ended after it was
// returned, so ids must not be changed then.
func (g *Group) End(ctx context.Context, ids []ID, quiet time.Duration, yield func(ID, EndResult)) error {
	if len(ids) == 0 || !g.started.Load() {
		return ctx.Err()
	}
	if ids[0].Loop < 0 {
		g.handed.endSome(ids, quiet, yield)
		return ctx.Err()
	}
	if ids[0].Loop >= len(g.workers) {
		for _, id := range ids {
			yield(id, EndedBefore)
		}
		return nil
	}
	for w := g.workers[ids[0].Loop]; len(ids) > 0; {
		part, ok := askPart(ctx, g, w, func() []EndResult { return w.endSome(ids, quiet) })
		if !ok {
			return cmp.Or(ctx.Err(), ErrEnding)
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
		if len(part) == listLooks || time.Since(began) > listTime {
			break
		}
	}
	return part
}

// end tries to end a session.
func (w *worker) end(id ID, quiet time.Duration) EndResult {
	n := w.at(id.Place)
	if n == nil || n.state != joined || w.loop.Now()-int64(n.result().Duration) != id.Began {
		return EndedBefore
	}
	if quiet > 0 && (n.idle() < quiet || !n.quiet()) {
		return Busy
	}
	n.driven().Cut(record.ErrOperator)
	return EndedNow
}

// at returns the client at a place of a list; nil: there is no such place.
func (p *places) at(place int64) *conn {
	slab := place / int64(slabSize)
	if place < 0 || slab >= int64(len(p.slabs)) {
		return nil
	}
	return &p.slabs[slab][place%int64(slabSize)]
}

// endSome is [Group.End] of clients on goroutines.
func (b *blockingSessions) endSome(ids []ID, quiet time.Duration, yield func(ID, EndResult)) {
	there := make(map[int64]*Offloaded)
	for _, h := range b.all(func(h *Offloaded) bool { return h.session != nil }) {
		there[h.number] = h
	}
	for _, id := range ids {
		h := there[id.Place]
		if h == nil || h.began.UnixNano() != id.Began {
			yield(id, EndedBefore)
			continue
		}
		yield(id, h.endNow(quiet))
	}
}

// endNow tries to end the session of a client on goroutines.
func (h *Offloaded) endNow(quiet time.Duration) EndResult {
	b := h.sessions()
	b.mu.Lock()
	session := h.session
	b.mu.Unlock()
	switch {
	case session == nil:
		return EndedBefore
	case quiet > 0 && !session.Quiet(quiet):
		return Busy
	}
	h.cut(record.ErrOperator)
	return EndedNow
}
