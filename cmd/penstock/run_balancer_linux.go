package main

import (
	"context"

	"github.com/penstock/penstock/proxy/balancer"
	"github.com/penstock/penstock/proxy/config"
)

// openBalancer opens the load balancer: it listens when this returns, and serves nobody
// yet. The caller must call Serve. On an error nothing is left open.
func openBalancer(ctx context.Context, cfg *config.Config, o balancerOptions) (loadBalancer, error) {
	b, err := balancer.Open(ctx, cfg, balancer.Options{Server: o.Server, Sockets: o.Sockets})
	if err != nil {
		return nil, err // and no interface that holds a nil pointer
	}
	return b, nil
}
