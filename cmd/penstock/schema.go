package main

import (
	"github.com/penstock/penstock/proxy/config"
)

type schemaCmd struct {
	Config string `placeholder:"FILE" help:"Hold this configuration against the schema, too."`
}

// Run prints the schema. A file is held against it first.
func (c *schemaCmd) Run(e *env) error {
	if c.Config != "" {
		if err := e.sayProblems(config.Validate(c.Config)); err != nil {
			return err
		}
	}
	_, err := e.stdout.Write(config.SchemaJSON())
	return err
}
