package main

import (
	"github.com/penstock/penstock/proxy/config"
)

type schemaCmd struct {
	Config string `placeholder:"FILE" help:"Hold this configuration against the schema first; its problems are told as check tells them."`
}

// Run prints the schema. A file is checked and held against it first: the schema alone would
// find less, and could not say where.
func (c *schemaCmd) Run(e *env) error {
	if c.Config != "" {
		if _, err := (&configFlag{Config: c.Config}).load(e, "schema"); err != nil {
			return err
		}
		if err := e.sayProblems(config.Validate(c.Config)); err != nil {
			return err
		}
	}
	_, err := e.stdout.Write(config.SchemaJSON())
	return err
}
