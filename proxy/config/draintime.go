package config

import "time"

// noDrainTime is the drain time of a listener without known upstreams.
const noDrainTime = 5 * time.Minute

// DrainTime returns how long the connections of a listener may last after it is removed. It is
// the longest drain timeout of its upstreams and their fallbacks, which find looks up. 0: they
// are reset at once. find returns nil for an unknown upstream.
func (ln *Listener) DrainTime(find func(name string) *Upstream) time.Duration {
	longest, known := time.Duration(0), false
	for u := range ln.reaches(find) {
		known, longest = true, max(longest, u.DrainTimeout)
	}
	if !known {
		return noDrainTime
	}
	return longest
}
