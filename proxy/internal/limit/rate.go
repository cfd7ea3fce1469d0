package limit

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// ErrRate means that connections come faster than the limit allows.
var ErrRate = errors.New("connection rate limit reached")

// A Rate limits the connections per second. Its state is one word that several loops advance by compare-and-swap: the
// time at which the connections so far would have come if they had come evenly (the generic cell rate algorithm,
// ITU-T I.371). It decides like golang.org/x/time/rate (TestRateAsReference), but without a mutex that loops would
// share. The zero value limits nothing.
type Rate struct {
	pace atomic.Pointer[interval]
	due  atomic.Int64
}

// An interval is a rate expressed as times.
type interval struct {
	each int64 // nanoseconds from one connection to the next
	slip int64 // how far ahead of its time a connection may come
}

// Set changes the rate to perSecond connections a second; 0 or less means no limit. The connections of one second, at
// least one, may come at once after a pause. What was used of the old rate counts in the new one.
func (r *Rate) Set(perSecond float64) { r.pace.Store(newInterval(perSecond)) }

// newInterval returns nil for no limit.
func newInterval(perSecond float64) *interval {
	if !(perSecond > 0) || perSecond > 1e9 {
		return nil
	}
	each, burst := min(1e9/perSecond, math.MaxInt64/4), max(int(perSecond), 1)
	return &interval{each: max(int64(each), 1), slip: int64(min(each*float64(burst-1), math.MaxInt64/4))}
}

// early returns how long before its time a connection would come now, 0 if it may come.
func (p *interval) early(due, now int64) time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(max(due-p.slip-now, 0))
}

// Spend counts a connection that has come, even if the limit did not allow it; later connections wait longer then. It
// is for callers that ask Until before they accept.
func (r *Rate) Spend(now int64) {
	p := r.pace.Load()
	if p == nil {
		return
	}
	for {
		due := r.due.Load()
		if r.due.CompareAndSwap(due, max(due, now)+p.each) {
			return
		}
	}
}

// GiveBack undoes a Spend: the connection does not count. If the rate was not used up in the meantime, this
// makes no difference for later connections.
func (r *Rate) GiveBack(now int64) {
	p := r.pace.Load()
	if p == nil {
		return
	}
	for {
		due := r.due.Load()
		if due <= now || r.due.CompareAndSwap(due, due-p.each) {
			return
		}
	}
}

// Until returns how long the limit allows no connection from now on, 0 if it allows one now.
func (r *Rate) Until(now int64) time.Duration { return r.pace.Load().early(r.due.Load(), now) }
