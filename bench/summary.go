package bench

import "github.com/penstock/penstock/proxy/admin"

// Since returns the counts between the summary before and s. States, which are
// no counts (active connections, leased and idle pipes), are taken from s.
func Since(before, s *admin.Summary) *admin.Summary {
	d := *s
	d.Connections.Accepted -= before.Connections.Accepted
	d.Connections.Refused -= before.Connections.Refused
	d.Bytes.ClientToEndpoint = moved(before.Bytes.ClientToEndpoint, s.Bytes.ClientToEndpoint)
	d.Bytes.EndpointToClient = moved(before.Bytes.EndpointToClient, s.Bytes.EndpointToClient)
	d.Lost -= before.Lost
	d.Pipes.Made -= before.Pipes.Made
	d.Pipes.Reused -= before.Pipes.Reused
	d.Fallbacks = make(map[string]int64)
	for reason, n := range s.Fallbacks {
		if n -= before.Fallbacks[reason]; n != 0 {
			d.Fallbacks[reason] = n
		}
	}
	return &d
}

// moved is Since for one direction.
func moved(before, m admin.ByEngine) admin.ByEngine {
	return admin.ByEngine{Spliced: m.Spliced - before.Spliced, Copied: m.Copied - before.Copied, Lane: m.Lane - before.Lane}
}
