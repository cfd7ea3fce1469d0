// Package fanout sends requests to many targets each, a bounded number at a time, and in turn between their sources.
// [Lines] shares the places of any bounded queue between sources.
package fanout

import (
	"errors"
	"slices"
	"sync"
)

const (
	// MaxJobs is how many jobs a queue has at most, jobs that are being sent included.
	MaxJobs = 64
	// MaxSends is how many sends of a queue run at a time.
	MaxSends = 32
)

// ErrOverload is the error of a job for which there is no place.
var ErrOverload = errors.New("too many requests to cancel a query are being sent")

// A Job is one request to some targets.
type Job struct {
	// Source is where it comes from. Sources have their turns one after the other.
	Source uint64
	// Targets is called once, when the job has a place, and returns how many targets there are. It must not use the queue.
	Targets func() int
	// Send sends to one target; required. It is called on goroutines of the queue, for several targets at a time.
	Send func(target int)
	// Done is called once, when all sends have returned, or with [ErrOverload] before any was made; required.
	Done func(error)

	targets, next, sent int
	place               Place
}

// A Queue is the jobs of many sources. The zero value is an empty one. It is safe for concurrent use.
type Queue struct {
	mu    sync.Mutex
	lines Lines[*Job]
	turn  []*Job // of each source the oldest job with targets that are still to be sent to, the next one first
	jobs  int
	sends int // goroutines
}

// Add queues a job, and does not wait for it. A queue has most jobs at most, and [MaxJobs]. If it is full, the newest job that has
// not begun of the source with the most of them makes room for a job of a source with fewer; otherwise the job itself ends with
// [ErrOverload]. Done may be called before Add returns.
func (q *Queue) Add(j *Job, most int) {
	q.mu.Lock()
	out := q.enter(j, min(most, MaxJobs))
	if out != j {
		if j.targets = j.Targets(); j.targets == 0 {
			q.leave(j)
		} else if before := j.place.at.Prev(); before == nil || before.Value.(*Job).begun() {
			q.turn = append(q.turn, j)
		}
		for range min(j.targets, MaxSends-q.sends) {
			q.sends++
			go q.run()
		}
	}
	q.mu.Unlock()
	if out != nil {
		out.Done(ErrOverload)
	}
	if out != j && j.targets == 0 {
		j.Done(nil)
	}
}

// enter gives a job a place. It returns the job that has to go for that, or has got none.
func (q *Queue) enter(j *Job, most int) (out *Job) {
	if q.jobs >= most {
		if out = q.lines.NewestOfMore(j.Source, 1, func(j *Job) bool { return j.next == 0 }); out == nil {
			return j
		}
		q.drop(out)
	}
	j.place = q.lines.Add(j.Source, j, nil)
	q.jobs++
	return out
}

// begun reports whether all sends of the job have begun.
func (j *Job) begun() bool { return j.next == j.targets }

// drop takes out a job that has not begun. It is the last of its line.
func (q *Queue) drop(j *Job) {
	q.leave(j)
	q.turn = slices.DeleteFunc(q.turn, func(other *Job) bool { return other == j })
}

// leave gives up a job's place.
func (q *Queue) leave(j *Job) {
	q.jobs--
	q.lines.Remove(j.place)
}

// run makes sends for as long as there are any.
func (q *Queue) run() {
	for {
		j, target := q.take()
		if j == nil {
			return
		}
		j.Send(target)
		q.mu.Lock()
		j.sent++
		over := j.sent == j.targets
		if over {
			q.leave(j)
		}
		q.mu.Unlock()
		if over {
			j.Done(nil)
		}
	}
}

// take returns the next target, of the source that has the turn; nil: there is none, and the goroutine ends.
func (q *Queue) take() (*Job, int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turn) == 0 {
		q.turn = nil
		q.sends--
		return nil, 0
	}
	j := q.turn[0]
	q.turn = q.turn[1:]
	target, next := j.next, j.place.at
	if j.next++; j.begun() {
		next = next.Next()
	}
	if next != nil {
		q.turn = append(q.turn, next.Value.(*Job))
	}
	return j, target
}
