package main

import (
	"context"
	"errors"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// serve opens a server, passes it on, and serves. A stop while it opens is no
// error: nothing was cut.
func (c *proxyCmd) serve(ctx context.Context, cfg *proxy.Config, opened chan<- server) error {
	s, err := proxy.Open(ctx, cfg)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		cfg.Log.Info("stopped before it listened", "error", err)
		return nil
	case errors.Is(err, socket.ErrAddress):
		return usagef("proxy: --to: %w", err)
	default:
		return err
	}
	opened <- s
	c.logStart(cfg)
	return s.Serve(ctx)
}
