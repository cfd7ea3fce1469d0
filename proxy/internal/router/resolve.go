package router

import (
	"context"
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/worker"
)

// resolver returns the resolver of the endpoint's host.
func (s *Search) resolver() worker.Resolver { return s.listener.resolverOf(s.endpoint) }

// resolverOf returns the resolver of an endpoint's host.
func (l *Listener) resolverOf(e *Endpoint) worker.Resolver {
	c := &l.cfg
	if c.Circle == nil {
		return c.Resolver
	}
	return &endpointResolver{c.Resolver, e, c.Circle}
}

// An endpointResolver leaves out the addresses of a host that lead back to the endpoint's
// upstream.
type endpointResolver struct {
	worker.Resolver
	endpoint *Endpoint
	circle   func(upstream string, at netip.AddrPort) error
}

// Resolve implements [worker.Resolver]. It fails if all addresses lead back.
func (r *endpointResolver) Resolve(ctx context.Context, host string, timeout time.Duration) (good []netip.Addr, err error) {
	ips, err := r.Resolver.Resolve(ctx, host, timeout)
	if err != nil {
		return nil, err
	}
	var circle error
	for _, ip := range ips {
		if err := r.circle(r.endpoint.upstream.name, netip.AddrPortFrom(ip.Unmap(), r.endpoint.port)); err != nil {
			circle = err
			continue
		}
		good = append(good, ip)
	}
	if len(good) == 0 {
		return nil, circle
	}
	return good, nil
}
