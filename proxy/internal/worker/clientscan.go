package worker

import "time"

// A clientScan visits all places for clients of a worker, a few in each turn of its loop. A client
// stays where it is, so none is met twice.
type clientScan struct {
	visit func(w *worker, n *conn)
	over  chan<- scanned
	at    int // the next place
	spent time.Duration
}

// A scanned is the end of a worker's scan, and the time that its loop spent on it.
type scanned struct {
	worker *worker
	spent  time.Duration
}

// scanClients scans all workers at once. It returns the workers whose scan has ended; that is not all
// of them if the group ends before, and then visit may still be called.
func (g *Group) scanClients(visit func(w *worker, n *conn)) (all []scanned) {
	if !g.started.Load() {
		return nil
	}
	over := make(chan scanned, len(g.workers))
	for _, w := range g.workers {
		w.post(func() { w.beginClientScan(&clientScan{visit: visit, over: over}) })
	}
	for range g.workers {
		select {
		case one := <-over:
			all = append(all, one)
		case <-g.ended:
			return all
		}
	}
	return all
}

func (w *worker) beginClientScan(t *clientScan) {
	w.clientScans = append(w.clientScans, t)
	if len(w.clientScans) == 1 {
		w.scanSomeClients()
	}
}

// scanSomeClients continues the first scan, for as long as one turn may take.
func (w *worker) scanSomeClients() {
	t, began := w.clientScans[0], time.Now()
	for looks := 0; ; looks++ {
		slab := t.at / slabSize
		if slab >= len(w.slabs) {
			break
		}
		if looks%16 == 15 && time.Since(began) > turnTime {
			t.spent += time.Since(began)
			w.post(w.scanClientsOn)
			return
		}
		n := &w.slabs[slab][t.at%slabSize]
		t.at++
		t.visit(w, n)
	}
	t.over <- scanned{w, t.spent + time.Since(began)}
	if w.clientScans = w.clientScans[1:]; len(w.clientScans) > 0 {
		w.post(w.scanClientsOn)
	}
}
