package worker

import (
	"slices"

	"github.com/penstock/penstock/loop"
)

// mostFull is how many sessions of a loop wait for a place in the lane. Others stay in user space for good.
const mostFull = 4096

// A laneFull is the sessions that have found the lane full. They are tried again in turn, and as soon as one finds it full still
// the others wait as well.
type laneFull struct {
	worker *worker
	list   []laneCandidate
	timer  loop.Timer
}

// add has a session be tried again.
func (q *laneFull) add(c laneCandidate) {
	if len(q.list) < mostFull && !c.conn.is(waitsLane) {
		c.conn.set(waitsLane, true)
		q.list = append(q.list, c)
	}
	if w := q.worker; !q.timer.Armed() {
		w.loop.Arm(&q.timer, q, laneRetry*w.lanes.after)
	}
}

// Expired implements [loop.Expirer].
func (q *laneFull) Expired(*loop.Timer) {
	w := q.worker
	q.list = slices.DeleteFunc(q.list, func(c laneCandidate) bool { return !w.goesOn(c) })
	for range min(laneBatch, len(q.list)) {
		c := q.list[0]
		q.list = q.list[1:]
		left := len(q.list)
		c.conn.set(waitsLane, false)
		if w.askLane(c, true); len(q.list) > left {
			break // it is full still
		}
	}
	if len(q.list) > 0 && !q.timer.Armed() {
		w.loop.Arm(&q.timer, q, laneRetry*w.lanes.after)
	}
}
