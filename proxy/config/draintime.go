package config

import "time"

// noDrainTime is the drain time of a listener without known upstreams.
const noDrainTime = 5 * time.Minute

// DrainTime returns how long the connections of a listener may last after it is removed. It is
// the longest drain timeout of its upstreams and their fallbacks, which find looks up. 0: they
// are reset at once. find returns nil for an unknown upstream.
func (ln *Listener) DrainTime(find func(name string) *Upstream) time.Duration {
	longest, known := time.Duration(0), false
	see := func(name string) {
		for u := find(name); u != nil; u = find(name) { // the loader has rejected circles
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
