package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/relay"
)

type proxyCmd struct {
	Listen []string `sep:"none" placeholder:"ADDR" help:"Where to listen: host:port, :port, [ipv6]:port, unix:/path or unix:/path?mode=0660; port 0 lets the kernel choose. Repeat it for more."`
	To     []string `sep:"none" placeholder:"ADDR" help:"Target: host:port or unix:/path. Repeat it for more, which take turns; when one refuses, the next is tried."`
	Engine string   `enum:"auto,splice,copy" default:"auto" placeholder:"auto|splice|copy" help:"How bytes are moved. (default: ${default})"`

	ConnectTimeout   timeout `default:"5s" placeholder:"TIME" help:"For the attempt to reach one target, all its addresses together. 0 is off, for this and all timeouts. (default: ${default})"`
	IdleTimeout      timeout `default:"1h" placeholder:"TIME" help:"Ends a session in which no byte moved for so long. (default: ${default})"`
	HalfCloseTimeout timeout `default:"1m" placeholder:"TIME" help:"The same, once one side has sent its end of file. (default: ${default})"`
	DrainTimeout     timeout `default:"30s" placeholder:"TIME" help:"How long sessions may go on after SIGTERM or SIGINT; a second signal cuts them at once. (default: ${default})"`
	UserTimeout      timeout `default:"15m" placeholder:"TIME" help:"TCP_USER_TIMEOUT: how long a peer may leave bytes unacknowledged, or its window shut. (default: ${default})"`

	MaxConnections int `default:"0" placeholder:"N" help:"Connections served at once; at the limit accepting pauses. (default, and most: what RLIMIT_NOFILE allows)"`

	Log      string `enum:"text,json" default:"text" placeholder:"text|json" help:"Form of the log on standard error, and of the summary on standard output. (default: ${default})"`
	LogLevel string `enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least level to log: debug (a line for each session), info, warn or error. (default: ${default})"`
}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *env) error {
	cfg, err := c.config()
	if err != nil {
		return usagef("proxy: %w (see: penstock proxy --help)", err)
	}
	cfg.Log = newLogger(e.stderr, c.Log, c.LogLevel)
	server, err := proxy.Open(context.Background(), cfg)
	if errors.Is(err, socket.ErrAddress) {
		return usagef("proxy: --to: %w", err)
	}
	if err != nil {
		return c.fail(cfg.Log, err)
	}
	c.logStart(cfg)
	return c.fail(cfg.Log, c.serve(e, server, cfg.Log))
}

// serve runs the server until it has ended, and obeys signals meanwhile. A reader
// of summaries that has gone is no failure of the proxy's.
func (c *proxyCmd) serve(e *env, server *proxy.Server, log *slog.Logger) error {
	summarize := func() {
		if err := writeSummary(e.stdout, c.Log, server.Summary()); err != nil {
			log.Warn("summary not written", "error", err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	for {
		select {
		case err := <-served:
			summarize()
			return err
		case s := <-e.signals:
			switch {
			case isSummary(s):
				summarize()
			case ctx.Err() != nil:
				server.Cut()
			default:
				stop()
			}
		}
	}
}

// config makes a server's configuration of the flags.
func (c *proxyCmd) config() (*proxy.Config, error) {
	cfg := &proxy.Config{
		ConnectTimeout:   c.ConnectTimeout.duration(),
		IdleTimeout:      c.IdleTimeout.duration(),
		HalfCloseTimeout: c.HalfCloseTimeout.duration(),
		DrainTimeout:     c.DrainTimeout.duration(),
		Socket:           socket.Options{UserTimeout: c.UserTimeout.orOff()},
		MaxConnections:   c.MaxConnections,
	}
	var err error
	if cfg.Listen, err = addresses("--listen", c.Listen); err != nil {
		return nil, err
	}
	if cfg.To, err = addresses("--to", c.To); err != nil {
		return nil, err
	}
	if cfg.Engine, err = relay.ParseEngine(c.Engine); err != nil {
		return nil, err
	}
	if c.MaxConnections < 0 {
		return nil, errors.New("--max-connections: write 1 or more, or leave it away for what RLIMIT_NOFILE allows")
	}
	cfg.MaxConnections = affordable(descriptors())
	if c.MaxConnections > 0 {
		cfg.MaxConnections = min(cfg.MaxConnections, c.MaxConnections)
	}
	return cfg, nil
}

// logStart says under which bounds the proxy runs.
func (c *proxyCmd) logStart(cfg *proxy.Config) {
	have := descriptors()
	cfg.Log.Info("starting", "version", version(), "engine", cfg.Engine.String(), "to", c.To,
		"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	if c.MaxConnections > cfg.MaxConnections {
		cfg.Log.Warn("max-connections lowered to what RLIMIT_NOFILE allows", "asked", c.MaxConnections,
			"max_connections", cfg.MaxConnections, "rlimit_nofile", have)
	}
}

// fail reports why the program ends: in the log where that is what others parse,
// otherwise as the line that run writes.
func (c *proxyCmd) fail(log *slog.Logger, err error) error {
	if err == nil || c.Log != "json" {
		return err
	}
	log.Error(err.Error())
	return exitCode(exitError)
}
