package worker

import (
	"context"
	"errors"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay"
)

// A Rejoin is what a client that was handed over brings back to its loop.
type Rejoin struct {
	// A and B are the sockets of the client and of its endpoint, on no loop, with TCP_NODELAY if they are of
	// TCP. Their IDs and events are the loop's to set.
	A, B relay.Socket
	// Early is the client's bytes that the endpoint has got already, A.Moved of them; nil: none.
	Early []byte
	// Reached is [Search.Reached].
	Reached func(now int64) (*relay.Limits, error)
	// Mirrorer is asked for the session's mirror, after Reached; nil: it has none.
	Mirrorer Mirrorer
	// Rewriting is asked for the session's Rewriter, after Reached; nil: it has none.
	Rewriting Rewriting
	// Ended is called on the loop at the end of the session, before the client's place is free. It must not wait.
	Ended func()
}

// Rejoin has the client's session run on the loop that the client came from: it is counted, listed and cut there,
// and [Offloaded.End] must not be called. It returns when the session has begun, and may have ended. With an
// error it has not begun, and both sockets were reset; End is still to be called.
func (h *Offloaded) Rejoin(r *Rejoin) error {
	begun := make(chan error, 1)
	err := h.worker.loop.Post(func() { begun <- h.worker.rejoin(h, r) })
	if err == nil {
		select {
		case err = <-begun:
		case <-h.worker.group.ended: // a loop has failed
			select {
			case err = <-begun:
			default:
				err = ErrEnding
				r.reset()
			}
		}
	} else {
		r.reset()
	}
	if err == nil {
		h.cancel(context.Canceled)
	}
	return err
}

// rejoin is Rejoin on the loop.
func (w *worker) rejoin(h *Offloaded, r *Rejoin) error {
	if w.canceled != nil {
		h.cancel(w.canceled)
	}
	s := h.serving
	n := w.take(client{fd: r.A.FD, socket: s.socket})
	n.ref = &s.listenerRef
	limits, err := w.register(h, r, n)
	if err != nil {
		w.free(n)
		w.loop.Drop(r.A.ID)
		w.loop.Drop(r.B.ID)
		r.reset()
		return err
	}
	if limits == nil {
		limits = s.service.Limits
	}
	h.sessions().back(h)
	w.active++
	w.load.Add(1)
	s.clients++
	w.note(n, h.Client)
	n.admissionToken = h.Client.AdmissionToken
	if rec := h.record; rec != nil {
		h.record = nil
		rec.Joined = w.loop.Now()
		n.ref = w.keep(rec, s, bindingOf(limits))
	}
	w.ends[n] = r.Ended
	var m *mirroring
	if r.Mirrorer != nil {
		m = w.mirror(r.Mirrorer, s, r.Early)
		r.A.Mirror = m.relay()
	}
	if by := r.Rewriting; by != nil && by.Rewritten() != relay.SideNone {
		r.A, r.B = rewrite(by, r.A, r.B)
	}
	if r.A.Layer == nil {
		r.A.Gate, r.A.Free = h.hello.gate(w, r.A.Moved, new(int32))
	}
	n.set(isTCP, r.B.TCP)
	session := w.takeSession(n)
	w.windows.begin(n)
	if s.service.Lane != LaneOff {
		w.awaitLane(n)
	}
	w.driver.StartLimited(session, r.A, r.B, n, limits)
	m.reach()
	return nil
}

// register has the loop watch both sockets, unless the client has been cut or may not go on.
func (w *worker) register(h *Offloaded, r *Rejoin, n *conn) (limits *relay.Limits, err error) {
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx)
	}
	var errA, errB error
	r.A.ID, errA = w.loop.Add(r.A.FD, whichClient, n)
	r.B.ID, errB = w.loop.Add(r.B.FD, whichEndpoint, n)
	if err := errors.Join(errA, errB); err != nil {
		return nil, err
	}
	return r.Reached(w.loop.Now())
}

// reset resets both sockets.
func (r *Rejoin) reset() {
	for _, s := range []*relay.Socket{&r.A, &r.B} {
		if s.TCP {
			_ = sys.AbortOnClose(s.FD)
		}
		closeSocket(s.FD)
	}
}

// back takes out one that has gone back to its loop.
func (b *blockingSessions) back(h *Offloaded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.next.prev, h.prev.next = h.prev, h.next
	b.active--
}
