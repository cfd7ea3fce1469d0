package main

type configCmd struct {
	configFlag
	JSON bool `name:"json" help:"In JSON."`
}

// Run prints a configuration, with what it includes, and with all defaults.
func (c *configCmd) Run(e *env) error {
	cfg, err := c.load(e, "config")
	if err != nil {
		return err
	}
	text := cfg.YAML()
	if c.JSON {
		text = cfg.JSON()
	}
	_, err = e.stdout.Write(text)
	return err
}
