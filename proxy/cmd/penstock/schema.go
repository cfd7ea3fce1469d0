package main

import (
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
)

type schemaCmd struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"Hold this configuration against the schema first; its problems are printed as by check."`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`
}

// Run prints the schema. A file is checked and validated against it first: the schema alone
// would find less, and could not report the position.
func (c *schemaCmd) Run(e *cli.Env) error {
	if c.Config != nil || c.File != nil {
		f := &configFlag{Config: c.Config, File: c.File}
		if _, err := f.load(e, "schema"); err != nil {
			return err
		}
		if err := reportProblems(e, config.Validate(f.path)); err != nil {
			return err
		}
	}
	_, err := e.Stdout.Write(config.SchemaJSON())
	return err
}
