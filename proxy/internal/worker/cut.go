package worker

// A Match says which sessions are meant: those that came in at a socket and have a
// binding, which is nil where there is none. It is called on the loops' goroutines, several
// at a time.
type Match func(l *Listening, b Binding) bool

// CutMatching ends the sessions that match, those of goroutines included; their results have
// the cause. Clients that are not joined yet are left alone: [Search.Reached] may still refuse
// them. It returns how many sessions were cut, when each one that was there has been looked
// at. The loops look at a few at a time. It may be called at any time by any goroutine but
// those of the loops.
func (g *Group) CutMatching(match Match, cause error) int {
	cut := 0
	for _, h := range g.handed.all(func(h *Offloaded) bool { return h.session != nil && match(h.serving.socket, h.binding) }) {
		h.cut(cause)
		cut++
	}
	g.cutMirrorsMatching(match)
	counts := make([]int, len(g.workers)) // each its worker's, until that has been scanned
	all := g.scanClients(func(w *worker, n *conn) {
		if n.state == joined && match(n.ref.serving.socket, n.binding()) {
			counts[w.index]++
			n.driven().Cut(cause)
		}
	})
	for _, t := range all {
		cut += counts[t.worker.index]
	}
	return cut
}
