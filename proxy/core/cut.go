//go:build linux

package core

import (
	"time"
)

// A Match says which sessions are meant: those that came in at a socket and have a
// bond, which is nil where there is none. It is called on the loops' goroutines, several
// at a time.
type Match func(l *Listening, b Bond) bool

// CutMatching ends the sessions that match, those of goroutines included; their results
// have the cause. Clients that are not joined yet are left alone: who does not want them
// to be joined any more says so when they are, by [Search.Reached]. It returns how many
// sessions were cut, when each one that was there has been looked at. The loops look at
// a few at a time. It may be called at any time by any goroutine but those of the loops.
func (g *Group) CutMatching(match Match, cause error) int {
	cut := 0
	for _, h := range g.handed.all(func(h *Handed) bool { return h.session != nil && match(h.serving.socket, h.bond) }) {
		h.cut(cause)
		cut++
	}
	if !g.started.Load() {
		return cut
	}
	answer := make(chan int, len(g.cores))
	for _, c := range g.cores {
		c.post(func() { c.beginCut(&cutting{match: match, cause: cause, answer: answer}) })
	}
	for range g.cores {
		select {
		case n := <-answer:
			cut += n
		case <-g.ended:
			return cut
		}
	}
	return cut
}

// A cutting is one that goes on, from turn to turn.
type cutting struct {
	match  Match
	cause  error
	answer chan<- int
	at     int // the next place
	n      int // sessions that were cut
}

// cuts are those of a core, one after the other.
type cuts struct{ waiting []*cutting }

func (c *core) beginCut(k *cutting) {
	c.cuts.waiting = append(c.cuts.waiting, k)
	if len(c.cuts.waiting) == 1 {
		c.cutSome()
	}
}

// cutSome goes on with the first one, for as long as one turn may take.
func (c *core) cutSome() {
	k := c.cuts.waiting[0]
	for began, looks := time.Now(), 0; ; looks++ {
		slab := k.at / slabSize
		if slab >= len(c.slabs) {
			break
		}
		if looks%16 == 15 && time.Since(began) > turnTime {
			c.post(c.cutOn)
			return
		}
		n := &c.slabs[slab][k.at%slabSize]
		k.at++
		if n.state == joined && k.match(n.role.serving.socket, bondOf(n.session.Limits())) {
			k.n++
			n.session.Cut(k.cause)
		}
	}
	k.answer <- k.n
	if c.cuts.waiting = c.cuts.waiting[1:]; len(c.cuts.waiting) > 0 {
		c.post(c.cutOn)
	}
}
