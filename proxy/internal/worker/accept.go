package worker

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// Why no client is wanted now.
var (
	errFull   = errors.New("the limit is reached")
	errNoRoom = errors.New("the Admitter has no room")
)

// An acceptor is one worker's part of a listening socket.
type acceptor struct {
	*loop.Listener   // nil before it begins to accept
	worker           *worker
	socket           *Listening
	serving          *serving   // for the present service; nil before its first client
	older            []*serving // for earlier services that still have clients
	emptied          int        // connections taken out of the queue while it closes
	failed           bool       // the last attempt to accept has failed
	waits            bool       // for room, in acceptors.waiters
	pausedByAdmitter bool       // it waits because of CanAccept
	closing          bool       // its queue is to be emptied
	closed           bool
	timer            loop.Timer // until there may be room
}

// listen begins to accept from a socket, or tries again later.
func (w *worker) listen(l *Listening) {
	if err := w.startAccepting(l.parts[w.index]); err != nil {
		w.unopened = append(w.unopened, l)
		w.lacks(l, err)
		w.armFDRetry()
	}
}

func (w *worker) startAccepting(a *acceptor) (err error) {
	if a.closed || a.Listener != nil {
		return nil
	}
	a.socket.unblock()
	a.Listener, err = w.loop.Listen(a.socket.FD, &loop.ListenerConfig{Acceptor: a, Before: a.before})
	if err != nil {
		return err
	}
	w.accepting = append(w.accepting, a)
	return nil
}

func (w *worker) reopen() {
	failed := w.unopened
	w.unopened = nil
	for _, l := range failed {
		w.listen(l)
	}
}

// before makes sure that there are resources for a client. Other workers may take the last place between this check and the
// accept: so each worker may accept one client beyond the limit. This client waits for its turn.
func (a *acceptor) before() error {
	if !a.closing {
		g := a.worker.group
		if !g.gate.room() || g.waiting.n.Load() > 0 {
			return errFull
		}
		if admitter := a.socket.service.Load().Admitter; admitter != nil && admitter.CanAccept(a.worker.loop.Now()) != nil {
			return errNoRoom
		}
	}
	if err := a.worker.reserve(); err != nil {
		return err
	}
	if !a.worker.below() { // for the client, beside the spare one for its endpoint
		return syscall.EMFILE
	}
	a.socket.unblock() // last, to leave other processes little time to undo it
	return nil
}

// Accepted takes a client on, or hands it to a worker that has fewer. Without a place the client waits, in the order of
// arrival.
func (a *acceptor) Accepted(fd int, peer netip.AddrPort) {
	w, g := a.worker, a.worker.group
	w.beyond(fd)
	in := accepted{fd: fd, peer: peer, socket: a.socket, service: a.socket.service.Load(), at: w.loop.Now()}
	a.socket.refs.Add(1)
	c := w.newClient(&in)
	if in.service.Admitter != nil && !w.admit(c, &in) {
		return
	}
	reserved := w.reservation()
	to := w
	if placed := g.gate.acquire(); placed {
		g.gate.markFull()
		to = g.leastLoaded(w)
		if to.load.Add(1); to == w {
			w.begin(c, &in, reserved)
			return
		}
		w.counts.HandedOver++
		in.spare = w.passSpare(reserved)
		to.inbox.give(in)
	} else {
		w.descriptors.release(reserved)
		g.waiting.push(in)
		w.wake()
	}
	w.freeClient(c)
}

// admit asks whether a client may come in, before anything is done for it, so that the counters are
// right before the next accept. A client that may not come in is reset.
func (w *worker) admit(c *Client, in *accepted) bool {
	err := in.service.Admitter.Admit(c, identified(c, &in.service.Preread), w.loop.Now())
	if in.admissionToken = c.AdmissionToken; err == nil {
		return true
	}
	w.counts.Accepted++
	w.arrived.note(c, w.loop.Now())
	w.beginRecord(c, in)
	w.noteRefusal(c, err)
	var answer []byte
	if f := in.service.Refusal; f != nil {
		answer = f(c, err)
	}
	w.recordUnjoined(c)
	if len(answer) > 0 {
		_, _ = sendSome(c.fd, answer, 0) // an empty send buffer takes the whole answer
	} else if c.tcp {
		_ = sys.AbortOnClose(c.fd)
	}
	closeSocket(c.fd)
	w.freeClient(c)
	in.socket.Release()
	return false
}

// identified reports whether the source of a client is complete: neither later data nor a further question to the kernel
// can add to it. A TCP client without an address counts: it is refused whatever it sends.
func identified(c *Client, p *Preread) bool {
	return c.tcp && (!c.peer.Known() || !p.expectsHeader(c))
}

// Paused is called when accepting failed, or when no client is wanted now. If none is wanted, accepting is suspended until
// there is room. Then only sockets with waiting clients are tried.
func (a *acceptor) Paused(err error) {
	a.failed = true
	w := a.worker
	switch err {
	case errFull:
		a.Suspend()
		w.await(a)
		w.wake() // there may be room by now; if not, the client that makes room sees the pause
	case errNoRoom: // until the pause is over, or a client leaves
		if !a.pausedByAdmitter {
			a.pausedByAdmitter = true
			a.socket.short.Add(1)
		}
		if admitter := a.socket.service.Load().Admitter; admitter != nil {
			if in := admitter.NextSlotIn(w.loop.Now()); in > 0 {
				w.loop.Arm(&a.timer, (*roomTimer)(a), in)
			}
		}
		w.await(a)
	default:
		w.lacks(a.socket, err)
	}
}

type roomTimer acceptor

func (t *roomTimer) Expired(*loop.Timer) {
	if a := (*acceptor)(t); a.pausedByAdmitter && !a.closing {
		a.unshort()
		a.Retry()
	}
}

// without returns a list without an element, if the list has it.
func without[T comparable](list []T, v T) []T {
	if at := slices.Index(list, v); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

func (t *acceptors) await(a *acceptor) {
	if !a.waits {
		a.waits = true
		t.waiters = append(t.waiters, a)
	}
}

func (w *worker) lacks(l *Listening, err error) {
	g := w.group
	if !w.paused {
		w.paused = true
		g.paused.Add(1)
	}
	w.trim(w.needed)
	g.shedMirrors()
	g.cfg.Host.Paused(l, err, g.gate.active.Load(), l.pauses.Add(1))
}

// leastLoaded returns the worker for a client that w has accepted: w, unless another worker has clearly fewer clients.
func (g *Group) leastLoaded(w *worker) *worker {
	own := w.load.Load()
	if own <= 1 {
		return w
	}
	to := slices.MinFunc(g.workers, byLoad)
	if own-to.load.Load() > max(1, own/8) {
		return to
	}
	return w
}

func byLoad(a, b *worker) int { return cmp.Compare(a.load.Load(), b.load.Load()) }

// closeListening ends the worker's part in a socket. Before that, one of the workers accepts the clients in the queue; only
// one does, to keep their order.
func (w *worker) closeListening(l *Listening) {
	a := l.parts[w.index]
	a.closing = true
	a.unshort()
	if a.Listener == nil || w.group.workers[l.number%len(w.group.workers)] != w || w.canceled != nil {
		a.close()
		return
	}
	w.emptying = append(w.emptying, a)
	w.emptyQueues()
}

// emptyBatch is how many clients one turn takes out of a queue that closes.
const emptyBatch = 16

// emptyQueues continues to empty the queues of closing sockets. New clients may join a queue
// meanwhile, but a queue is first in, first out, and holds at most backlog + 1 clients. So after
// this number of clients, no earlier client is left.
func (w *worker) emptyQueues() {
	began := time.Now()
	w.emptying = slices.DeleteFunc(w.emptying, func(a *acceptor) bool {
		switch {
		case w.canceled != nil:
		case w.group.gate.holds.Load() > 0:
			return false
		case time.Since(began) > turnTime:
			w.wake()
			return false
		case w.empty(a):
			return false
		}
		a.close()
		return true
	})
}

// empty takes some clients out of a queue, and reports whether there may be more.
func (w *worker) empty(a *acceptor) bool {
	a.failed = false
	n := a.Empty(min(emptyBatch, maxBacklog+1-a.emptied))
	a.emptied += n
	switch {
	case a.failed:
		w.armFDRetry()
	case n < emptyBatch:
		return false
	default:
		w.wake()
	}
	return true
}

// close ends the worker's part in a listening socket, if it has one.
func (a *acceptor) close() {
	if a.closed {
		return
	}
	a.closed = true
	w := a.worker
	w.loop.Disarm(&a.timer)
	w.waiters, w.accepting = without(w.waiters, a), without(w.accepting, a)
	if a.Listener != nil {
		_ = a.Listener.Close() // it only leaves the loop
	}
	if a.socket.openSockets.Add(-1) == 0 {
		w.group.cfg.Host.Closed(a.socket)
	}
	a.socket.release(part)
}
