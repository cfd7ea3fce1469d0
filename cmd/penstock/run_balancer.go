package main

import (
	"context"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/activation"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
)

// A loadBalancer is what penstock run has serve.
type loadBalancer interface {
	server
	admin.Balancer
	// Serve accepts clients until ctx ends, drains, and closes everything, as
	// [proxy.Server.Serve] does.
	Serve(ctx context.Context) error
	// Apply brings a configuration into force: all of it, or nothing and an error.
	Apply(ctx context.Context, cfg *config.Config) error
	// Counter returns a counter that never falls, of those in the status.
	Counter(name string) (value int64, known bool)
	// Alive returns when every loop has given a sign of life, or with an error when ctx
	// ends.
	Alive(ctx context.Context) error
}

// balancerOptions are what the command line and the surroundings say, beside the file.
type balancerOptions struct {
	// Server has those fields set that are not in the file: those of [engineFlags],
	// MaxConnections to what descriptors allow, DrainTimeout and Log.
	Server *proxy.Config
	// Sockets are what systemd has passed to the process. They are closed by who opens,
	// after the end.
	Sockets *activation.Sockets
}

// An opener is openBalancer, or stands for it.
type opener func(context.Context, *config.Config, balancerOptions) (loadBalancer, error)
