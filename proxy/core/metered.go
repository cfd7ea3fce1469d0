//go:build linux

package core

// Metered calls read with a [Summary] and, by bond, with what the sessions that run have
// moved. Meanwhile no [Meter] is told of sessions that have ended, but afterwards: so what
// the meters have been told and what runs is together all that was moved, of each session
// once, and no later answer has less of it. The loops go on, and are asked for a few
// sessions at a time. It may be called at any time by any goroutine but those of the loops;
// read must not call it.
func (g *Group) Metered(read func(sum Summary, running map[Bond]*Bytes)) {
	g.metering.Lock()
	defer g.metering.Unlock()
	running := make(tally)
	sum := g.summarize(running)
	read(sum, running)
	g.handed.tell()
	for _, c := range g.cores {
		g.letTell(c)
	}
}

// letTell has a core tell the meters what it has held back.
func (g *Group) letTell(c *core) {
	told := make(chan struct{})
	c.post(func() {
		c.tell()
		close(told)
	})
	select {
	case <-told:
	case <-g.ended:
		c.tell()
	}
}

// tell tells the meters what was held back, and holds nothing back any more.
func (c *core) tell() {
	c.held.tell()
	c.held = nil
}

// note notes what a session that runs has moved, for a walk that wants to know by bond.
func (w *walk) note(n *conn, b Bytes) {
	if w.running == nil {
		return
	}
	bond := bondOf(n.session.Limits())
	if bond == nil {
		return
	}
	if bond != w.bond { // most have that of the one before
		w.bond, w.bytes = bond, w.running[bond]
	}
	if w.bytes == nil {
		w.bytes = new(Bytes)
		w.running[bond] = w.bytes
	}
	w.bytes.Add(b)
}
