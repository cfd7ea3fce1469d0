package worker

import "time"

// closeListening ends the worker's part in a socket. One of the workers accepts the clients in
// the queue before that.
func (w *worker) closeListening(l *Listening) {
	a := l.parts[w.index]
	a.closing = true
	a.unshort()
	if a.Listener == nil || l.emptier() != w || w.canceled != nil {
		a.close()
		return
	}
	w.emptying = append(w.emptying, a)
	w.emptyQueues()
}

// emptyBatch is how many clients one turn takes out of a queue that closes.
const emptyBatch = 16

// emptyQueues goes on with the queues of those that close. New clients may join a queue
// all the while, but it is first in, first out, and holds at most the backlog and one:
// no client that came before is behind that many others.
func (w *worker) emptyQueues() {
	began, left := time.Now(), w.emptying[:0]
	for i, a := range w.emptying {
		switch {
		case w.canceled != nil:
		case w.group.gate.holds.Load() > 0:
			left = append(left, a)
			continue
		case time.Since(began) > turnTime:
			left = append(left, w.emptying[i:]...)
			w.wake()
			clear(w.emptying[len(left):])
			w.emptying = left
			return
		case w.empty(a):
			left = append(left, a)
			continue
		}
		a.close()
	}
	clear(w.emptying[len(left):])
	w.emptying = left
}

// empty takes some clients out of a queue, and reports whether there may be more.
func (w *worker) empty(a *acceptor) bool {
	a.failed = false
	n := a.Empty(min(emptyBatch, a.socket.Backlog+1-a.emptied))
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

// close ends the worker's part in a listening socket. It may have none.
func (a *acceptor) close() {
	if a.closed {
		return
	}
	a.closed = true
	w := a.worker
	w.loop.Disarm(&a.timer)
	w.acceptors.remove(a)
	if a.Listener != nil {
		_ = a.Listener.Close() // it only leaves the loop
	}
	if a.socket.openSockets.Add(-1) == 0 {
		w.group.cfg.Host.Closed(a.socket)
	}
	a.socket.unref()
}

// closeAny closes one of the parts that are not closed, and reports whether there was any: no
// client is served any more.
func (t *acceptors) closeAny() bool {
	if last := len(t.accepting) - 1; last >= 0 {
		t.accepting[last].closing = true
		t.accepting[last].close()
		return true
	}
	return false
}
