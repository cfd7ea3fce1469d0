package main

import (
	"log/slog"

	"github.com/penstock/penstock/proxy/cli"
)

type runCmd struct {
	configFlag
	Watch bool `help:"Read the configuration again whenever it changes, or a file that it includes."`

	serverFlags
	logFlags

	open opener `kong:"-"` // nil: openBalancer
}

// Run serves the configuration until a signal stops it.
func (c *runCmd) Run(e *cli.Env) error {
	return c.logged(e, func(log *slog.Logger) error {
		if err := c.given("run"); err != nil {
			return err
		}
		file := newFileSource(c.path, e.Environment())
		return c.logFlags.serve(e, "run", log, &c.serverFlags, &daemonConfig{source: file, file: true, watches: c.Watch, adminExample: adminExample, open: c.open})
	})
}
