package discovery

import (
	"cmp"
	"net/netip"
	"slices"
)

// plain returns an endpoint for each address.
func plain(addresses []netip.Addr, port uint16) []Endpoint {
	var endpoints []Endpoint
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range slices.Compact(addresses) {
		endpoints = append(endpoints, Endpoint{Address: netip.AddrPortFrom(a, port).String(), Weight: 1})
	}
	return endpoints
}

// A share is an address with its part of the weight of its target.
type share struct {
	address  netip.AddrPort
	priority uint16
	weight   float64
}

// weighted returns endpoints for SRV records and the addresses of their targets, sorted by
// priority and address.
func weighted(services []service, found map[string][]netip.Addr) []Endpoint {
	shares := merge(split(services, found))
	var endpoints []Endpoint
	for i := 0; i < len(shares); {
		j := i
		for j < len(shares) && shares[j].priority == shares[i].priority {
			j++
		}
		level := shares[i:j]
		for k, w := range scale(level) {
			endpoints = append(endpoints, Endpoint{
				Address: level[k].address.String(), Weight: w, Backup: level[k].priority != shares[0].priority,
			})
		}
		i = j
	}
	return endpoints
}

// split gives each address of a target an equal part of the target's weight. Weight 0 is less
// than any other (RFC 2782: "a very small chance"), or the same for all.
func split(services []service, found map[string][]netip.Addr) (shares []share) {
	for _, s := range services {
		weight := float64(s.weight)
		if s.weight == 0 {
			weight = 1.0 / 256
		}
		addresses := found[s.target]
		for _, a := range addresses {
			shares = append(shares, share{netip.AddrPortFrom(a, s.port), s.priority, weight / float64(len(addresses))})
		}
	}
	return shares
}

// merge sorts shares and merges those of the same address. The result has the lowest priority
// value, and all weights of that.
func merge(shares []share) (merged []share) {
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.priority, b.priority), cmp.Compare(a.weight, b.weight))
	})
	for _, s := range shares {
		last := len(merged) - 1
		switch {
		case last < 0 || merged[last].address != s.address:
			merged = append(merged, s)
		case merged[last].priority == s.priority:
			merged[last].weight += s.weight
		}
	}
	slices.SortFunc(merged, func(a, b share) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), a.address.Compare(b.address))
	})
	return merged
}

// scale returns whole weights in the proportion of those of level. They are the smallest that
// are exact to a hundredth, if none exceeds [MaxWeight], or else the nearest up to it. None is
// 0.
func scale(level []share) []int {
	largest := 0.0
	for _, s := range level {
		largest = max(largest, s.weight)
	}
	weights := make([]int, len(level))
	factor := MaxWeight / largest
	for f := 1; float64(f) <= MaxWeight; f++ {
		if try := float64(f) / largest; exact(level, try) {
			factor = try
			break
		}
	}
	for i, s := range level {
		weights[i] = max(int(s.weight*factor+0.5), 1)
	}
	return weights
}

// exact reports whether weights times factor are whole numbers within a hundredth.
func exact(level []share, factor float64) bool {
	for _, s := range level {
		w := s.weight * factor
		whole := float64(int(w + 0.5))
		if whole < 1 || (w-whole) > whole/100 || (whole-w) > whole/100 {
			return false
		}
	}
	return true
}
