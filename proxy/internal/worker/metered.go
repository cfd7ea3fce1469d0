package worker

// Metered calls read with a [Summary] and, by binding, the bytes of the sessions that run.
// Meanwhile no [Meter] gets those of sessions that have ended, but afterwards: so the sums of
// the meters and the running bytes are together all bytes that were moved, of each session
// once, and no later answer has less of it. The loops go on, and are asked for a few sessions
// at a time. It may be called at any time by any goroutine but those of the loops; read must
// not call it.
func (g *Group) Metered(read func(sum Summary, running map[Binding]*Bytes)) {
	g.metering.Lock()
	defer g.metering.Unlock()
	running := make(bytesByBinding)
	sum := g.summarize(running)
	read(sum, running)
	g.handed.flush()
	for _, w := range g.workers {
		g.flushMeters(w)
	}
}

// flushMeters has a worker report to the meters the bytes that it has held back.
func (g *Group) flushMeters(w *worker) {
	flushed := make(chan struct{})
	w.post(func() {
		w.flush()
		close(flushed)
	})
	select {
	case <-flushed:
	case <-g.ended:
		w.flush()
	}
}

// flush reports to the meters the bytes held back, and holds nothing back any more.
func (w *worker) flush() {
	w.deferred.report()
	w.deferred = nil
}

// note notes the bytes of a session that runs, for a scan by binding.
func (w *statsScan) note(n *conn, b Bytes) {
	if w.running == nil {
		return
	}
	binding := n.binding()
	if binding == nil {
		return
	}
	if binding != w.binding { // most have that of the one before
		w.binding, w.bytes = binding, w.running[binding]
	}
	if w.bytes == nil {
		w.bytes = new(Bytes)
		w.running[binding] = w.bytes
	}
	w.bytes.Add(b)
}
