package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/verdict"
)

// judged is the time of the sessions of an endpoint that have ended, by the cause that limited it, in microseconds.
type judged [verdict.Kinds]atomic.Int64

// Judged notes the verdict of a session that has ended, over all its time. It is safe for concurrent use.
func (e *Endpoint) Judged(v *verdict.Verdict, lasted time.Duration) {
	for k, share := range v.Shares {
		if us := int64(share * float64(lasted.Microseconds())); us > 0 {
			e.judged[k].Add(us)
		}
	}
}

// Limited returns the time of the endpoint's sessions that have ended, in seconds, by the cause that limited it. Sessions
// that were too short for a verdict are not in it.
func (e *Endpoint) Limited() (seconds [verdict.Kinds]float64) {
	for k := range e.judged {
		seconds[k] = float64(e.judged[k].Load()) / 1e6
	}
	return seconds
}
