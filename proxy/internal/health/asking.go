package health

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// An answerOf is the result of a probe.
type answerOf uint32

const (
	unknown answerOf = iota // none yet, or an error that is not the endpoint's
	yes                     // it closed the connection, or sent something
	no                      // it did neither in time
)

// An asking is a probe that is running, or has ended.
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
		ctx, cancel := context.WithTimeout(u.ctx, within)
		defer cancel()
		q.answer.Store(uint32(heardOf(p.Probe(ctx), ctx)))
		q.over.Store(true)
	})
	return q
}

// heardOf returns the result of a probe that has ended. A refused connect, or a lack of
// descriptors in this process, is no result.
func heardOf(err error, ctx context.Context) answerOf {
	switch {
	case err == nil:
		return yes
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return no
	}
	return unknown
}

// heard returns the result, and whether it is final. The result of nil is yes: no probe was
// needed.
func (q *asking) heard() (answer answerOf, over bool) {
	if q == nil {
		return yes, true
	}
	return answerOf(q.answer.Load()), q.over.Load()
}
