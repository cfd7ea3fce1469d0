package tally

import "sync/atomic"

// Reasons counts events by their reasons. It may be used by any goroutine at any time.
type Reasons struct {
	names  []string // by the number of the reason
	counts []atomic.Int64
}

// NewReasons returns counts for reasons with these names.
func NewReasons(names ...string) *Reasons {
	return &Reasons{names, make([]atomic.Int64, len(names))}
}

// Add counts an event. Its reason is given by number.
func (r *Reasons) Add(of int) { r.counts[of].Add(1) }

// Of returns how many events a reason has.
func (r *Reasons) Of(of int) int64 { return r.counts[of].Load() }

// Total returns how many events there are.
func (r *Reasons) Total() (n int64) {
	for i := range r.counts {
		n += r.Of(i)
	}
	return n
}

// Every returns how many events there are for each reason.
func (r *Reasons) Every() []Count {
	list := make([]Count, len(r.counts))
	for i := range list {
		list[i] = Count{Of: r.names[i], N: r.Of(i)}
	}
	return list
}

// ByReason returns how many events there are for each reason that has a name. If every is set, it includes reasons
// that have not occurred.
func (r *Reasons) ByReason(every bool) map[string]int64 {
	list := make(map[string]int64)
	for _, c := range r.Every() {
		if (c.N > 0 || every) && c.Of != "" {
			list[c.Of] = c.N
		}
	}
	return list
}
