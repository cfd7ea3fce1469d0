package main

import (
	"encoding/json"
	"errors"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/cli"
)

// doctorCmd reports the capabilities of this host and this process.
type doctorCmd struct {
	JSON bool `name:"json" help:"One JSON object on standard output instead of a text."`
}

// Run prints the report, and fails if Penstock cannot run here.
func (c *doctorCmd) Run(e *cli.Env) error {
	report := doctor.Examine(doctor.Options{Sessions: cli.AffordableByDefault})
	if err := c.write(e, report); err != nil {
		return err
	}
	if !report.Able {
		return errors.New("doctor: something that Penstock cannot run without is missing")
	}
	return nil
}

func (c *doctorCmd) write(e *cli.Env, report *doctor.Report) error {
	if !c.JSON {
		return report.WriteText(e.Stdout)
	}
	out := json.NewEncoder(e.Stdout)
	out.SetEscapeHTML(false)
	return out.Encode(report)
}
