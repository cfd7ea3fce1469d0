package worker

import "time"

// A tour visits all places for clients of a core, a few in each turn of its loop. A client
// stays where it is, so none is met twice.
type tour struct {
	visit func(c *worker, n *conn)
	over  chan<- toured
	at    int // the next place
	spent time.Duration
}

// A toured is the end of a core's tour, and the time that its loop spent on it.
type toured struct {
	core  *worker
	spent time.Duration
}

// tour tours all workers at once. It returns the workers whose tour has ended; that is not all
// of them if the group ends before, and then visit may still be called.
func (g *Group) tour(visit func(c *worker, n *conn)) (all []toured) {
	if !g.started.Load() {
		return nil
	}
	over := make(chan toured, len(g.cores))
	for _, c := range g.cores {
		c.post(func() { c.beginTour(&tour{visit: visit, over: over}) })
	}
	for range g.cores {
		select {
		case one := <-over:
			all = append(all, one)
		case <-g.ended:
			return all
		}
	}
	return all
}

func (c *worker) beginTour(t *tour) {
	c.tours = append(c.tours, t)
	if len(c.tours) == 1 {
		c.tourSome()
	}
}

// tourSome goes on with the first one, for as long as one turn may take.
func (c *worker) tourSome() {
	t, began := c.tours[0], time.Now()
	for looks := 0; ; looks++ {
		slab := t.at / slabSize
		if slab >= len(c.slabs) {
			break
		}
		if looks%16 == 15 && time.Since(began) > turnTime {
			t.spent += time.Since(began)
			c.post(c.tourOn)
			return
		}
		n := &c.slabs[slab][t.at%slabSize]
		t.at++
		t.visit(c, n)
	}
	t.over <- toured{c, t.spent + time.Since(began)}
	if c.tours = c.tours[1:]; len(c.tours) > 0 {
		c.post(c.tourOn)
	}
}
