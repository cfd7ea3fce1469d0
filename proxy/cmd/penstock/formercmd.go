package main

import (
	"cmp"
	"fmt"

	"github.com/penstock/penstock/proxy/cli"
)

// The commands drain, weight and fmt are gone. They answer with what to use instead, and change nothing.

type formerDrainCmd struct {
	adminFlags
	Listener string
	Upstream string
	Endpoint string
	Process  bool
	Undo     bool
	Rest     []string `arg:"" optional:""`
}

// Run returns the present spelling.
func (c *formerDrainCmd) Run(*cli.Env) error {
	now := "penstock process drain, penstock listener drain NAME, or penstock endpoint drain UPSTREAM ENDPOINT"
	switch {
	case c.Process:
		now = "penstock process drain"
	case c.Listener != "":
		now = "penstock listener drain " + c.Listener
	case c.Upstream != "" || c.Endpoint != "":
		verb := "drain"
		if c.Undo {
			verb = "ready"
		}
		now = fmt.Sprintf("penstock endpoint %s %s %s", verb, cmp.Or(c.Upstream, "UPSTREAM"), cmp.Or(c.Endpoint, "ENDPOINT"))
	}
	return cli.Usagef("'penstock drain' was renamed, nothing was changed. Use %s", now)
}

type formerWeightCmd struct {
	adminFlags
	Upstream string
	Endpoint string
	Weight   []string `arg:"" optional:""`
}

// Run returns the present spelling.
func (c *formerWeightCmd) Run(*cli.Env) error {
	weight := "N"
	if len(c.Weight) == 1 {
		weight = c.Weight[0]
	}
	return cli.Usagef("'penstock weight' was renamed, nothing was changed. Use penstock endpoint weight %s %s %s",
		cmp.Or(c.Upstream, "UPSTREAM"), cmp.Or(c.Endpoint, "ENDPOINT"), weight)
}

type formerFmtCmd struct {
	Write, Check bool
	Config       []string
	Rest         []string `arg:"" optional:""`
}

// Run says that a formatter of YAML does it.
func (c *formerFmtCmd) Run(*cli.Env) error {
	return cli.Usagef("'penstock fmt' was removed, nothing was changed. Use any formatter of YAML, and penstock check")
}

// routeFlag is a flag that was given.
func routeFlag(route *int) string {
	if route == nil {
		return ""
	}
	return fmt.Sprintf(" --route %d", *route)
}
