package main

import (
	"context"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/metrics"
	"github.com/penstock/penstock/proxy/server"
)

// A loadBalancer is the server of a daemon.
type loadBalancer interface {
	admin.Balancer
	// Summary returns the counters and resources until now.
	Summary() admin.Summary
	// Metrics fills in a sample, as [server.Server.Metrics] does.
	Metrics(m *metrics.Sample)
	// Cut ends Serve at once, and all sessions.
	Cut()
	// Serve accepts clients until ctx ends, drains, and closes everything, as
	// [server.Server.Serve] does.
	Serve(ctx context.Context) error
	// Apply puts a configuration into force: all of it, or nothing and an error.
	Apply(ctx context.Context, cfg *config.Config) error
	// Awaiting returns the keys of a configuration that would wait for a restart, as [server.Server.Awaiting] does.
	Awaiting(next *config.Config) []string
	// LiveUnder returns the changes by hand, and why a configuration would end them.
	LiveUnder(cfg *config.Config) []admin.LiveChange
	// DrainingUnder returns the sessions that drain, and go on doing so under a configuration, by listener, as [server.Server.DrainingUnder] does.
	DrainingUnder(cfg *config.Config) map[string]server.Draining
	// AppliedLive returns the changes by hand that the last Apply has ended, and restored.
	AppliedLive() (ended, restored []admin.LiveChange)
	// ReopenLogs has files that were moved away opened again.
	ReopenLogs()
	// Counter returns one of the status's counters that never decrease.
	Counter(name string) (value int64, known bool)
	// Alive returns when every loop has responded, or with an error when ctx ends.
	Alive(ctx context.Context) error
}

// An opener is openBalancer, or a test's substitute.
type opener func(context.Context, *config.Config, server.Options) (loadBalancer, error)

// openBalancer opens the load balancer: it listens when this returns, and serves no client
// yet. The caller must call Serve. On an error nothing is left open.
func openBalancer(ctx context.Context, cfg *config.Config, o server.Options) (loadBalancer, error) {
	b, err := server.Open(ctx, cfg, o)
	if err != nil {
		return nil, err // not an interface with a nil pointer
	}
	return b, nil
}
