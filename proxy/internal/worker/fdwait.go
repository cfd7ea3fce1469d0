package worker

import (
	"time"

	"github.com/penstock/penstock/loop"
)

// A client that lacks a descriptor waits for fdRetryPause at a time when no other connection ends
// first, and for fdPatience in all. Without the latter, clients that were accepted with the last
// descriptors would wait for each other.
const (
	fdRetryPause = 100 * time.Millisecond
	fdPatience   = 5 * time.Second
)

// descriptors are those for the sockets of the next clients, and the clients that wait for one.
type descriptors struct {
	fdReserve    FDReserve
	reserved     bool             // one of the reserve is for the next client that is accepted
	waitingForFD []*pendingClient // in the order in which they began to wait
	fdRetry      loop.Timer
}

// reserve ensures that there is a descriptor for the next client, of whatever socket.
func (t *descriptors) reserve() error {
	if t.reserved {
		return nil
	}
	err := t.fdReserve.Reserve()
	t.reserved = err == nil
	return err
}

// reservation takes the descriptor of reserve, and reports whether there is one.
func (t *descriptors) reservation() bool {
	r := t.reserved
	t.reserved = false
	return r || t.fdReserve.Reserve() == nil
}

// releaseReserve is the end of the need of a descriptor, if there was one.
func (t *descriptors) releaseReserve(reserved bool) {
	if reserved {
		t.fdReserve.Release()
	}
}

// unreserve is releaseReserve of a client, once.
func (t *descriptors) unreserve(c *pendingClient) {
	t.releaseReserve(c.reserved)
	c.reserved = false
}

// stopWaiting takes a client from those that wait.
func (t *descriptors) stopWaiting(c *pendingClient) {
	for i, s := range t.waitingForFD {
		if s == c {
			t.waitingForFD = append(t.waitingForFD[:i], t.waitingForFD[i+1:]...)
			return
		}
	}
}

// waitForFD goes on with a client that got no descriptor: with those of idle pipes, or with
// the one that was reserved for it, or later. Meanwhile no other client is accepted.
func (w *worker) waitForFD(c *pendingClient, err error) {
	now := w.loop.Now()
	switch {
	case w.shedMirrors(), w.group.cfg.Host.Trim() > 0, w.fdReserve.Claim():
		w.search(c)
		return
	case c.waitsForFD == 0:
		c.waitsForFD = now
		w.group.gate.holds.Add(1)
		w.group.shedMirrors()
		w.group.wake()
	case now-c.waitsForFD > int64(fdPatience):
		w.refuse(c, err)
		return
	}
	w.waitingForFD = append(w.waitingForFD, c)
	w.armFDRetry()
}

// armFDRetry schedules another attempt of clients that failed for want of a resource.
func (w *worker) armFDRetry() {
	if !w.fdRetry.Armed() {
		w.loop.Arm(&w.fdRetry, (*fdRetryTimer)(w), fdRetryPause)
	}
}

// fdAvailable notes that a client does not wait for a descriptor, or not any more.
func (w *worker) fdAvailable(c *pendingClient) {
	if c.waitsForFD == 0 {
		return
	}
	c.waitsForFD = 0
	w.stopWaiting(c)
	w.group.gate.holds.Add(-1)
	w.group.wake()
}

// retryWaitingForFD tries again for the clients that wait for a descriptor, in their order, as
// long as that helps.
func (w *worker) retryWaitingForFD(all bool) {
	for range len(w.waitingForFD) {
		if len(w.waitingForFD) == 0 {
			return
		}
		c := w.waitingForFD[0]
		w.waitingForFD = w.waitingForFD[:copy(w.waitingForFD, w.waitingForFD[1:])]
		before := len(w.waitingForFD)
		w.search(c)
		if !all && len(w.waitingForFD) > before {
			return
		}
	}
}

// fdRetryTimer is a worker whose clients have waited for descriptors for a while.
type fdRetryTimer worker

func (h *fdRetryTimer) Expired(*loop.Timer) {
	w := (*worker)(h)
	w.retryWaitingForFD(true)
	w.reopen()
	w.emptyQueues()
}
