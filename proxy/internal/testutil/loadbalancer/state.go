package loadbalancer

import "github.com/penstock/penstock/proxy/admin"

// Listener returns the status of a listener.
func (b *Instance) Listener(name string) admin.Listener {
	b.T.Helper()
	for _, l := range b.Status().Listeners {
		if l.Name == name {
			return l
		}
	}
	b.T.Fatalf("there is no listener %s", name)
	return admin.Listener{}
}

// At returns the first address of a listener.
func (b *Instance) At(listener string) string {
	b.T.Helper()
	l := b.Listener(listener)
	if len(l.Addresses) == 0 {
		b.T.Fatalf("the listener %s has no address", listener)
	}
	return l.Addresses[0]
}

// Refused returns how many clients of a listener were refused for a reason.
func (b *Instance) Refused(listener, reason string) int64 {
	b.T.Helper()
	return b.Listener(listener).Reasons[reason]
}

// Endpoint returns the status of an endpoint.
func (b *Instance) Endpoint(upstream, name string) admin.Endpoint {
	b.T.Helper()
	for _, u := range b.Status().Upstreams {
		for _, e := range u.Endpoints {
			if u.Name == upstream && e.Name == name {
				return e
			}
		}
	}
	b.T.Fatalf("there is no endpoint %s/%s", upstream, name)
	return admin.Endpoint{}
}

// Count returns a counter.
func (b *Instance) Count(name string) int64 {
	b.T.Helper()
	n, known := b.Counter(name)
	if !known {
		b.T.Fatalf("there is no counter %s", name)
	}
	return n
}

// OneClient has a client, and waits until no client is left. It fails the test if the one became more than most clients.
func (b *Instance) OneClient(of string, most int64, client func()) {
	b.T.Helper()
	before := b.Summary().Connections.Accepted
	client()
	b.Until("the clients are gone", func() bool {
		c := b.Summary().Connections
		if n := c.Accepted - before; n > most {
			b.T.Fatalf("a client of %s became %d, want at most %d", of, n, most)
		}
		return c.Active == 0
	})
}
