package router

import "sync/atomic"

// Refusals returns how many clients were refused, for whatever reason.
func (state *ListenerState) Refusals() int64 { return total(state.refused[:]) }

// Accepted returns how many clients have come.
func (state *ListenerState) Accepted() int64 { return state.accepted.Load() }

// DeniedByHand returns how many were refused because an operator has denied their source.
func (state *ListenerState) DeniedByHand() int64 { return state.refused[refusedDenied].Load() }

// Refusals are the clients that got neither an endpoint of an upstream nor its fallback. They
// do not keep the upstream in memory.
type Refusals struct {
	counts [refusals]atomic.Int64
}

// Refusals returns the upstream's, which count on.
func (u *Upstream) Refusals() *Refusals { return u.refused }

// Total returns how many there are.
func (r *Refusals) Total() int64 { return total(r.counts[:]) }

// ByReason returns how many there are for each reason that there was.
func (r *Refusals) ByReason() map[string]int64 {
	return byName(r.counts[:], func(i int) string { return refusal(i).String() })
}

func total(counts []atomic.Int64) (n int64) {
	for i := range counts {
		n += counts[i].Load()
	}
	return n
}

// byName returns the counts that there are, by their names.
func byName(counts []atomic.Int64, name func(int) string) map[string]int64 {
	list := make(map[string]int64)
	for i := range counts {
		if n := counts[i].Load(); n > 0 {
			list[name(i)] = n
		}
	}
	return list
}

// Fault reports whether a reason for which a listener refuses clients, as in [ListenerCounts],
// is a fault: the other reasons are its rules, or bytes that clients have sent.
func Fault(reason string) bool {
	switch reason {
	case refusedSources.String(), refusedFilterFailed.String(), refusedUpstream.String(), refusedOther.String():
		return true
	}
	return false
}
