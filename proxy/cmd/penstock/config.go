package main

import "github.com/penstock/penstock/proxy/cli"

type configCmd struct {
	configFlag
	JSON bool `name:"json" help:"In JSON."`
}

// Run prints a configuration, with the files it includes, and with all defaults.
func (c *configCmd) Run(e *cli.Env) error {
	cfg, err := c.load(e, "config")
	if err != nil {
		return err
	}
	text := cfg.YAML()
	if c.JSON {
		text = cfg.JSON()
	}
	_, err = e.Stdout.Write(text)
	return err
}
