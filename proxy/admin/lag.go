package admin

import "time"

// A Lag is how long turns of a loop took, or how late its timers were, in the time between two statuses.
type Lag struct {
	// P99 and Longest are upper bounds, powers of two of a microsecond: of 99 % of the times, and of all.
	P99, Longest time.Duration
	Count        int64
}

// Within returns the lag between two statuses, by [Loop.Lag] or [Loop.TimerLate] of them. If the earlier
// counts are of another process, or nil, it is the lag of all time.
func Within(before, now []int64) (l Lag) {
	counts := make([]int64, len(now))
	copy(counts, now)
	for i, n := range before {
		if i >= len(counts) || counts[i] < n { // counts do not fall: it was another process
			return Within(nil, now)
		}
		counts[i] -= n
	}
	for _, n := range counts {
		l.Count += n
	}
	seen := int64(0)
	for i, n := range counts {
		if n == 0 {
			continue
		}
		l.Longest = time.Microsecond << i
		if seen += n; l.P99 == 0 && seen >= l.Count-l.Count/100 {
			l.P99 = l.Longest
		}
	}
	return l
}
