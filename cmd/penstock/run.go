package main

import (
	"errors"
	"log/slog"

	"github.com/penstock/penstock/proxy"
)

type runCmd struct {
	configFlag
	Watch bool `help:"Read the configuration again whenever it changes, or a file that it includes."`

	engineFlags

	DrainTimeout timeout `default:"30s" placeholder:"TIME" help:"How long sessions may go on after SIGTERM or SIGINT; those that are left are reset over the last tenth of it, and a second signal cuts them at once. SIGHUP reads the configuration again. 0 is off. (default: ${default})"`

	logFlags

	open opener `kong:"-"` // nil: openBalancer
}

// Run serves what the configuration says until a signal stops it.
func (c *runCmd) Run(e *env) error {
	return c.logged(e, func(log, patient *slog.Logger) error {
		if err := c.given("run"); err != nil {
			return err
		}
		options, err := c.config()
		if err != nil {
			return usagef("run: %w (see: penstock run --help)", err)
		}
		defer tune(e, options.Loops)()
		options.Log = log
		r := newRunning(c, e, options)
		defer r.end()
		s := &service{form: c.Log, log: log, patient: patient, reload: r.reloads.ask}
		return s.run(e, r.serve)
	})
}

// config makes what the flags say of a server's configuration.
func (c *runCmd) config() (*proxy.Config, error) {
	o := &proxy.Config{DrainTimeout: c.DrainTimeout.duration()}
	if err := c.engineFlags.config(o); err != nil {
		return nil, err
	}
	if c.Loops != nil && *c.Loops == 0 {
		return nil, errors.New("--loops 0: what a configuration describes is served by loops: write 1 or more, or leave it away for one for each CPU")
	}
	o.MaxConnections = affordable(descriptors(), o.Loops)
	return o, nil
}
