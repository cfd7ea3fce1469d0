package limit

import (
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// ErrRate says that connections come faster than they may.
var ErrRate = errors.New("connection rate limit reached")

// A Rate is how many connections may come a second. It is one word that several loops
// move on by compare-and-swap: the time at which the connections so far would have
// come, had they come evenly (the generic cell rate algorithm, ITU-T I.371). It decides as
// golang.org/x/time/rate does (TestRateAsReference), which has a mutex that the loops
// would share. The zero value limits nothing.
type Rate struct {
	pace atomic.Pointer[interval]
	due  atomic.Int64
}

// An interval is a rate as times.
type interval struct {
	each int64 // nanoseconds from one connection to the next
	slip int64 // how far ahead of its time one may come: the burst but one
	rate float64
}

// Set changes the rate to so many connections a second, 0 or less for no limit.
// burst is how many may come at once after a time in which none came, at least 1; 0
// means as many as a second gives. The used part of the old one counts in the new.
func (r *Rate) Set(perSecond float64, burst int) { r.pace.Store(newInterval(perSecond, burst)) }

// newInterval returns nil for no limit.
func newInterval(perSecond float64, burst int) *interval {
	if !(perSecond > 0) || perSecond > 1e9 {
		return nil
	}
	if burst <= 0 {
		burst = max(int(perSecond), 1)
	}
	each := min(1e9/perSecond, math.MaxInt64/4)
	return &interval{
		each: max(int64(each), 1),
		slip: int64(min(each*float64(burst-1), math.MaxInt64/4)),
		rate: perSecond,
	}
}

// early is how much before its time a connection would be that comes now, 0 if it may.
func (p *interval) early(due, now int64) time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(max(due-p.slip-now, 0))
}

// Take counts a connection that comes now, and reports whether it may; one that may
// not is not counted.
func (r *Rate) Take(now int64) bool {
	p := r.pace.Load()
	if p == nil {
		return true
	}
	for {
		due := r.due.Load()
		if p.early(due, now) > 0 {
			return false
		}
		if r.due.CompareAndSwap(due, max(due, now)+p.each) {
			return true
		}
	}
}

// Spend counts a connection that has come, whether or not it may: those to come have to wait
// the longer. It is for callers that ask Until before they accept.
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

// GiveBack undoes a Spend or Take: the connection is one that does not count. If the rate
// has not been used up meanwhile anyway, this changes nothing for those to come.
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

// Until returns how long it takes until Take would succeed, 0 if it would now.
func (r *Rate) Until(now int64) time.Duration { return r.pace.Load().early(r.due.Load(), now) }

// PerSecond returns the rate, 0 if there is no limit.
func (r *Rate) PerSecond() float64 {
	if p := r.pace.Load(); p != nil {
		return p.rate
	}
	return 0
}
