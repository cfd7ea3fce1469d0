package relay

import "github.com/penstock/penstock/pipe"

// Of the bytes that a session's pipe holds the mirror may take only a part, for its pipe is full by slots. Then the session's
// sink gets that part first, since tee(2) begins at the first unread byte, and the mirror takes the rest after it, once its own
// pipe was drained, or into a second one. It is behind if there is no room then: the session never waits for it.

// offer gives the mirror, if there is one, the n bytes at the head of a session's pipe, and returns how many of them the sink
// may get before the next offer: all, if there is no mirror any more.
func (d *direction) offer(n int) int {
	m := d.mirror()
	if m == nil {
		return n
	}
	if m.teed == 0 {
		m.tee(d.held.pipe.(*pipe.Pipe), n)
	}
	if m.is(mirrorOver) {
		return n
	}
	return min(m.teed, n)
}

// passed notes that the sink, or a buffer for it, has got n bytes of a session's pipe.
func (d *direction) passed(n int) {
	if m := d.mirror(); m != nil {
		m.teed = max(m.teed-n, 0)
	}
}

// tee takes a copy of the n bytes that a pipe holds, or of as many as there is room for, none of which were taken before.
// If there is none for any the mirror ends.
func (m *Mirror) tee(from *pipe.Pipe, n int) {
	m.drain()
	if m.is(mirrorOver) || !m.lease(m.drv.relay.cfg.MaxPipeSize, n) {
		return
	}
	k, err := from.Tee(m.pipe, n)
	if full(k, err) && m.another() {
		k, err = from.Tee(m.pipe, n)
	}
	m.wait()
	switch {
	case k > 0:
		m.teed = k
		m.runs.add(k, true)
		if m.observer != nil {
			m.observer.Skipped(k)
		}
		m.recall()
	case full(k, err):
		m.undelivered(n)
		m.end(MirrorBehind, nil)
	default:
		m.undelivered(n)
		m.failed("tee", err)
	}
}

// full reports whether a write to a pipe, or a tee, has found no room.
func full(n int, err error) bool { return n <= 0 && (err == nil || wouldBlock(err)) }

// another leases a second pipe, and reports whether there is one now: the first one is full, and is drained before it.
func (m *Mirror) another() bool {
	if m.older != nil {
		return false
	}
	p, err := m.drv.pipe(m.pipe.Size())
	if err != nil {
		return false
	}
	m.older, m.pipe = m.pipe, p.(*pipe.Pipe)
	return true
}

// drainPipe has the shadow sent what the older pipe holds, or the other one if there is none.
func (m *Mirror) drainPipe() (int, error) {
	p := m.pipe
	if m.older != nil {
		p = m.older
	}
	n, err := m.socket.drain(p, p.Len())
	teed := m.runs.remove(n)
	m.res.Teed += int64(teed)
	m.res.Copied += int64(max(n, 0) - teed)
	if p == m.older && p.Len() == 0 {
		m.drv.returnPipe(p)
		m.older = nil
	}
	return n, err
}
