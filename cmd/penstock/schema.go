package main

import (
	"github.com/penstock/penstock/proxy/config"
)

type schemaCmd struct {
	File   *string `arg:"" optional:"" placeholder:"FILE" help:"Hold this configuration against the schema first; its problems are told as check tells them."`
	Config *string `placeholder:"FILE" help:"The same, as a flag."`
}

// Run prints the schema. A file is checked and held against it first: the schema alone would
// find less, and could not say where.
func (c *schemaCmd) Run(e *env) error {
	if c.Config != nil || c.File != nil {
		f := &configFlag{Config: c.Config, File: c.File}
		if _, err := f.load(e, "schema"); err != nil {
			return err
		}
		if err := e.sayProblems(config.Validate(f.path)); err != nil {
			return err
		}
	}
	_, err := e.stdout.Write(config.SchemaJSON())
	return err
}
