package dispatch

import "sync/atomic"

// Refusals returns how many clients were refused, for whatever reason.
func (d *Door) Refusals() int64 { return total(d.refused[:]) }

// Refusals returns how many clients got neither an endpoint nor the fallback, for whatever
// reason.
func (u *Upstream) Refusals() int64 { return total(u.refused[:]) }

// Fallbacks returns how many clients went to the fallback.
func (u *Upstream) Fallbacks() int64 { return u.fallbacks.Load() }

// Held returns how many clients had to wait because nobody could serve them.
func (u *Upstream) Held() int64 { return u.holds.Load() }

// LastResorts returns how many connections were made as a last resort.
func (u *Upstream) LastResorts() int64 { return u.lastResort.Load() }

// LastResortsAnswered returns in how many of these the endpoint has sent a byte.
func (u *Upstream) LastResortsAnswered() int64 { return u.resortAnswered.Load() }

func total(counts []atomic.Int64) (n int64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// Fault reports whether a reason for which a listener refuses clients, as in [DoorCounts], is
// a fault: the other reasons are what its rules say, or what clients have sent.
func Fault(reason string) bool {
	switch reason {
	case refusedSources.String(), refusedUpstream.String(), refusedOther.String():
		return true
	}
	return false
}
