package router

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/fanout"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// endsTLS reports whether the TLS of a client ends in this process.
func (l *Listener) endsTLS(c *worker.Client) bool { return l.cfg.TLS != nil && !l.servesPlain(c) }

// servesPlain reports whether a client may speak without TLS though the listener has a certificate: one of PostgreSQL,
// that has not asked for it.
func (l *Listener) servesPlain(c *worker.Client) bool {
	p := l.cfg.Preread.Postgres
	return p != nil && !p.RequireTLS && !c.Postgres.TLS
}

// routesLater reports whether the client's route depends on its startup message of PostgreSQL, which is encrypted, and
// ends here.
func (s *Search) routesLater() bool {
	return s.listener.cfg.Preread.Postgres != nil && s.listener.endsTLS(s.client)
}

// Cancels count the requests of a listener's clients of PostgreSQL to cancel a query.
type Cancels struct {
	// Requests is how many came; Sent, to how many endpoints they were sent, and Failed, to how many that failed.
	Requests, Sent, Failed atomic.Int64
	// Queue has those that are being sent.
	Queue fanout.Queue
}

// Cancels returns the counts of the listener.
func (state *ListenerState) Cancels() *Cancels { return &state.cancels }

// A CancelTarget is an endpoint that may have the query which a CancelRequest is about.
type CancelTarget struct {
	Endpoint *Endpoint
	Snapshot *UpstreamSnapshot
	resolver worker.Resolver
}

// CancelTargets returns the endpoints that a client of the listener may have a session with: those of all its upstreams,
// fallbacks included, whatever the verdicts on them are, most of them at most. Those that have sessions come first.
func (l *Listener) CancelTargets(most int) (list []CancelTarget) {
	seen := make(map[*Endpoint]bool)
	add := func(snap *UpstreamSnapshot) {
		for ; snap != nil; snap = snap.Fallback {
			set := snap.Set()
			if set == nil {
				continue
			}
			for _, m := range set.Members() {
				if e := m.Endpoint.Of.(*Endpoint); !seen[e] && len(list) < most {
					seen[e] = true
					list = append(list, CancelTarget{e, snap, l.resolverOf(e)})
				}
			}
		}
	}
	add(l.cfg.Default)
	for i := range l.cfg.Routes {
		add(l.cfg.Routes[i].Snapshot)
		for _, snap := range l.cfg.Routes[i].Snapshots {
			add(snap)
		}
	}
	slices.SortStableFunc(list, func(a, b CancelTarget) int { return idle(a.Endpoint) - idle(b.Endpoint) })
	return list
}

// idle is 1 for an endpoint without sessions, and 0 for others.
func idle(e *Endpoint) int {
	if e.Active() > 0 {
		return 0
	}
	return 1
}

// Addresses returns where the endpoint is, or where its host was found to be, within a time.
func (t *CancelTarget) Addresses(ctx context.Context, timeout time.Duration) ([]loop.Address, error) {
	e := t.Endpoint
	if len(e.fixed) > 0 {
		return e.fixed, nil
	}
	ips, err := t.resolver.Resolve(ctx, e.host, timeout)
	addrs := make([]loop.Address, len(ips))
	for i, ip := range ips {
		addrs[i].AddrPort = netip.AddrPortFrom(ip.Unmap(), e.port)
	}
	return addrs, err
}

// Host returns the endpoint's host, for the certificate of its TLS.
func (t *CancelTarget) Host() string { return t.Endpoint.host }

// Header returns the PROXY header for the endpoint of a client's connection; nil: it gets none.
func (t *CancelTarget) Header(l *Listener, c *worker.Client) []byte {
	if t.Snapshot.SendProxy == 0 {
		return nil
	}
	return proxyproto.Append(nil, t.Snapshot.SendProxy, &proxyproto.Connection{
		Source: c.Source().AddrPort(), Destination: l.destination(c), TLVs: c.Header.TLVs, Local: c.Header.Local,
	})
}
