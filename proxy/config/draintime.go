package config

import "time"

// noDrainTime is how long connections drain that no upstream says it of.
const noDrainTime = 5 * time.Minute

// DrainTime is how long the connections of a listener may go on without it: as long as the
// most patient of its upstreams, which find looks up and their fallbacks too, gives those of
// an endpoint that is gone. 0: they are reset at once. find returns nil for an upstream that
// there is not.
func (ln *Listener) DrainTime(find func(name string) *Upstream) time.Duration {
	longest, known := time.Duration(0), false
	see := func(name string) {
		for u := find(name); u != nil; u = find(name) { // in no circle, which the loader sees to
			known, longest = true, max(longest, u.DrainTimeout)
			if u.Fallback == nil {
				return
			}
			name = u.Fallback.Upstream
		}
	}
	see(ln.Upstream)
	for i := range ln.Routes {
		see(ln.Routes[i].Upstream)
		for j := range ln.Routes[i].Split {
			see(ln.Routes[i].Split[j].Upstream)
		}
	}
	if !known {
		return noDrainTime
	}
	return longest
}
