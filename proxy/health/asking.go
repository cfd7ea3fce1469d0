package health

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// An answerOf is what an endpoint has said to a [Prober].
type answerOf uint32

const (
	unknown answerOf = iota // nothing yet, or nothing that says something of the endpoint
	yes
	no // there was no answer in time
)

// An asking is a probe that is under way, or has ended.
type asking struct {
	over   atomic.Bool
	answer atomic.Uint32
}

// ask probes an endpoint.
func (u *Unanswered) ask(p Prober, within time.Duration) *asking {
	q := new(asking)
	u.asking.Add(1)
	u.run(func() {
		defer u.asking.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		q.answer.Store(uint32(heardOf(p.Probe(ctx), ctx)))
		q.over.Store(true)
	})
	return q
}

// heardOf is what the end of a probe says. That a connection is refused, or cannot be made
// for want of something here, says nothing of whether the endpoint answers.
func heardOf(err error, ctx context.Context) answerOf {
	switch {
	case err == nil:
		return yes
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return no
	}
	return unknown
}

// heard returns what was said; over, whether it will be nothing more. Of one that is nil
// nothing is wanted.
func (q *asking) heard() (answer answerOf, over bool) {
	if q == nil {
		return yes, true
	}
	return answerOf(q.answer.Load()), q.over.Load()
}
