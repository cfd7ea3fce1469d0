package main

import (
	"log/slog"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
)

type proxyCmd struct {
	Listen []string `sep:"none" placeholder:"ADDR" help:"Where to listen: host:port, :port, [ipv6]:port, unix:/path or unix:/path?mode=0660; port 0 lets the kernel choose. Repeat it for more."`
	To     []string `sep:"none" placeholder:"ADDR" help:"Endpoint: host:port or unix:/path. Repeat it for more, which take turns; when one refuses, the next is tried."`

	SourceAddress string `placeholder:"IP" help:"Local address to connect to endpoints from. (default: the kernel chooses)"`

	ConnectTimeout   cli.Timeout `default:"5s" placeholder:"TIME" help:"For the attempt to reach one endpoint, all its addresses together. 0 is off, for this and all timeouts. (default: ${default})"`
	IdleTimeout      cli.Timeout `default:"1h" placeholder:"TIME" help:"Ends a session in which no byte moved for so long. (default: ${default})"`
	HalfCloseTimeout cli.Timeout `default:"1m" placeholder:"TIME" help:"The same, once one side has sent its end of file. (default: ${default})"`
	UserTimeout      cli.Timeout `default:"30s" placeholder:"TIME" help:"How long a peer may leave bytes unacknowledged, or probes of its closed window or of an idle connection unanswered. (default: ${default})"`

	MaxConnections *int64 `placeholder:"N" help:"Connections served at once; at the limit accepting pauses. (default, and most: as many as RLIMIT_NOFILE allows)"`

	Admin       string `placeholder:"ADDR" help:"Address of the admin API, for penstock status and drain: unix:/path, or 127.0.0.1:PORT. (default: none)"`
	AdminToken  string `placeholder:"FILE" help:"A file with the token of the admin API, which an address of TCP needs (penstock status --token-file FILE)."`
	PrintConfig bool   `help:"Print the configuration of these flags, for penstock run, and exit."`

	serverFlags
	logFlags

	open opener `kong:"-"` // nil: openBalancer
}

// Run serves until a signal stops it.
func (c *proxyCmd) Run(e *cli.Env) error {
	return c.logged(e, func(log *slog.Logger) error {
		text, err := c.write()
		if err != nil {
			return cli.Usagef("proxy: %w (see: penstock proxy --help)", err)
		}
		cfg, problems := config.Parse(text.name, text.bytes(), noVariables)
		if err := text.explain(problems); err != nil {
			return cli.Usagef("proxy: %w (see: penstock proxy --help)", err)
		}
		if c.PrintConfig {
			_, err := e.Stdout.Write(text.bytes())
			return err
		}
		text.rename(cfg.Warnings)
		return c.logFlags.serve(e, "proxy", log, &c.serverFlags, &daemonConfig{source: &flagSource{cfg: cfg}, adminExample: "--admin unix:/run/penstock.sock", open: c.open})
	})
}

// noVariables is the environment of flags: a shell has expanded them.
func noVariables(string) (string, bool) { return "", false }
