package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

type proxyCmd struct {
	Listen []string `sep:"none" placeholder:"ADDR" help:"Where to listen: host:port, :port, [ipv6]:port, unix:/path or unix:/path?mode=0660; port 0 lets the kernel choose; of a name the first address is taken. Repeat it for more."`
	To     []string `sep:"none" placeholder:"ADDR" help:"Target: host:port or unix:/path. Repeat it for more, which take turns; when one refuses, the next is tried."`

	engineFlags

	SourceAddress string `placeholder:"IP" help:"Local address to connect to targets from. (default: the kernel chooses)"`

	ConnectTimeout   timeout `default:"5s" placeholder:"TIME" help:"For the attempt to reach one target, all its addresses together. 0 is off, for this and all timeouts. (default: ${default})"`
	IdleTimeout      timeout `default:"1h" placeholder:"TIME" help:"Ends a session in which no byte moved for so long. (default: ${default})"`
	HalfCloseTimeout timeout `default:"1m" placeholder:"TIME" help:"The same, once one side has sent its end of file. (default: ${default})"`
	DrainTimeout     timeout `default:"30s" placeholder:"TIME" help:"How long sessions may go on after SIGTERM, SIGINT or SIGHUP; those that are left are reset over the last tenth of it, and a second signal cuts them at once. (default: ${default})"`
	UserTimeout      timeout `default:"15m" placeholder:"TIME" help:"TCP_USER_TIMEOUT: how long a peer may leave bytes unacknowledged, or its window shut. (default: ${default})"`

	MaxConnections *int `placeholder:"N" help:"Connections served at once; at the limit accepting pauses. (default, and most: what RLIMIT_NOFILE allows)"`

	logFlags
}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *env) error {
	return c.logged(e, func(log, patient *slog.Logger) error {
		cfg, err := c.config()
		if err != nil {
			return usagef("proxy: %w (see: penstock proxy --help)", err)
		}
		defer tune(e, cfg.Loops)()
		cfg.Log = log
		s := &service{form: c.Log, log: log, patient: patient}
		return s.run(e, func(ctx context.Context, opened chan<- server) error { return c.serve(ctx, cfg, opened) })
	})
}

// config makes a server's configuration of the flags.
func (c *proxyCmd) config() (*proxy.Config, error) {
	cfg := &proxy.Config{
		ConnectTimeout:   c.ConnectTimeout.duration(),
		IdleTimeout:      c.IdleTimeout.duration(),
		HalfCloseTimeout: c.HalfCloseTimeout.duration(),
		DrainTimeout:     c.DrainTimeout.duration(),
		Socket:           socket.Options{UserTimeout: c.UserTimeout.orOff()},
	}
	var err error
	if cfg.Listen, err = addresses("--listen", c.Listen); err != nil {
		return nil, err
	}
	if cfg.To, err = addresses("--to", c.To); err != nil {
		return nil, err
	}
	if err = c.engineFlags.config(cfg); err != nil {
		return nil, err
	}
	if err = c.configSource(cfg); err != nil {
		return nil, err
	}
	cfg.MaxConnections = affordable(descriptors(), cfg.Loops)
	if asked := c.MaxConnections; asked != nil {
		if *asked < 1 {
			return nil, errors.New("--max-connections: write 1 or more, or leave it away for what RLIMIT_NOFILE allows")
		}
		cfg.MaxConnections = min(cfg.MaxConnections, *asked)
	}
	if c.UserTimeout.duration() > socket.MaxUserTimeout {
		return nil, fmt.Errorf("--user-timeout: the kernel takes at most %v, write less, or 0 for none", socket.MaxUserTimeout)
	}
	return cfg, nil
}

// configSource sets from where to connect.
func (c *proxyCmd) configSource(cfg *proxy.Config) (err error) {
	if c.SourceAddress == "" {
		return nil
	}
	if cfg.Source, err = netip.ParseAddr(c.SourceAddress); err != nil {
		return fmt.Errorf("--source-address %q: write an IP address of this machine without a port, such as 10.0.0.7", c.SourceAddress)
	}
	return nil
}

// logStart says under which bounds the proxy runs.
func (c *proxyCmd) logStart(cfg *proxy.Config) {
	have := descriptors()
	cfg.Log.Info("starting", "version", version(), "engine", cfg.Engine.String(), "loops", max(cfg.Loops, 0), "to", c.To,
		"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	if c.MaxConnections != nil && *c.MaxConnections > cfg.MaxConnections {
		cfg.Log.Warn("max-connections lowered to what RLIMIT_NOFILE allows", "asked", *c.MaxConnections,
			"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	}
}
