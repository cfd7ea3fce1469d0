package main

import (
	"log/slog"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/server"
)

// serverFlags are the flags of commands that serve, beside those of their configuration.
type serverFlags struct {
	engineFlags

	DrainDelay   cli.Timeout `default:"0s" placeholder:"TIME" help:"How long the process still accepts after SIGTERM or SIGINT, while GET /readyz fails, so that balancers in front of it stop sending; then it drains. A second signal ends it at once. (default: ${default})"`
	DrainTimeout cli.Timeout `default:"30s" placeholder:"TIME" help:"How long sessions may go on after SIGTERM or SIGINT; those that are left are reset over the last tenth of it, and a second signal cuts them at once. 0 is off. (default: ${default})"`
}

// options returns the server's options, without those that fit sets.
func (f *serverFlags) options() (*server.Options, error) {
	o := &server.Options{DrainTimeout: f.DrainTimeout.Duration()}
	if err := f.engineFlags.config(o); err != nil {
		return nil, err
	}
	return o, nil
}

// serve runs a daemon until a signal stops it.
func (f *logFlags) serve(e *cli.Env, command string, log *slog.Logger, flags *serverFlags, c *daemonConfig) error {
	options, err := flags.options()
	if err != nil {
		return cli.Usagef("%s: %w (see: penstock %[1]s --help)", command, err)
	}
	defer tune(e)()
	options.Log, options.Version = log, cli.Version()
	c.fits, c.drainDelay = true, max(flags.DrainDelay.Duration(), 0)
	r := newDaemon(c, e, options)
	defer r.end()
	s := &service{form: f.Log, log: log}
	if c.file {
		s.reload = r.reloads.fire
	}
	return s.run(e, r.serve)
}
