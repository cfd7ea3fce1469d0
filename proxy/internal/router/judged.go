package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// judged is the time of sessions that have ended, by the cause that limited it, in microseconds.
type judged [verdict.Kinds]atomic.Int64

func (j *judged) add(v *verdict.Verdict, lasted time.Duration) {
	for k, share := range v.Shares {
		if us := int64(share * float64(lasted.Microseconds())); us > 0 {
			j[k].Add(us)
		}
	}
}

func (j *judged) seconds() (seconds [verdict.Kinds]float64) {
	for k := range j {
		seconds[k] = float64(j[k].Load()) / 1e6
	}
	return seconds
}

// Judged notes the verdict of a session that has ended, over all its time, for its listener, upstream and endpoint. It does
// nothing for a binding of others. It is safe for concurrent use.
func Judged(b worker.Binding, v *verdict.Verdict, lasted time.Duration) {
	if b, ok := b.(*binding); ok {
		b.listener.state.judged.add(v, lasted)
		b.snapshot.upstream.judged.add(v, lasted)
		b.endpoint.judged.add(v, lasted)
	}
}

// Limited returns the time of the sessions that have ended, in seconds, by the cause that limited it. Sessions that
// were too short for a verdict are not in it.
func (e *Endpoint) Limited() [verdict.Kinds]float64 { return e.judged.seconds() }

// Limited is [Endpoint.Limited] of all endpoints.
func (u *Upstream) Limited() [verdict.Kinds]float64 { return u.judged.seconds() }

// Limited is [Endpoint.Limited] of the clients of a listener.
func (state *ListenerState) Limited() [verdict.Kinds]float64 { return state.judged.seconds() }
