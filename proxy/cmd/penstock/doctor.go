package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

// doctorCmd reports the capabilities of this host, or of a running process.
type doctorCmd struct {
	processFlags
	Process bool `help:"The running process, in place of this host: its quotas, limits and fallbacks, by its counters."`
	JSON    bool `name:"json" help:"One JSON object on standard output instead of a text."`
}

// Validate is called by kong once the flags are read.
func (c *doctorCmd) Validate() error {
	if !c.Process && (c.Config != nil || c.File != nil || c.Admin != nil) {
		return cli.Usagef("doctor: a file, --config and --admin are for --process")
	}
	return nil
}

// Run prints the report, and fails if Penstock cannot run here.
func (c *doctorCmd) Run(e *cli.Env) error {
	if c.Process {
		return c.ask(e, "doctor", func(ctx context.Context, client *admin.Client) error {
			report, err := client.Process(ctx)
			if err != nil {
				return err
			}
			return c.write(e, &report)
		})
	}
	report := doctor.Examine(cli.AffordableByDefault)
	report.Checks = append(report.Checks, checkLane())
	return c.write(e, report)
}

// write prints a report, and returns its verdict.
func (c *doctorCmd) write(e *cli.Env, report *doctor.Report) error {
	out, err := display.NewWriter(e.Stdout), error(nil)
	if c.JSON {
		form := json.NewEncoder(out)
		form.SetEscapeHTML(false)
		err = form.Encode(report)
	} else {
		err = report.WriteText(out)
	}
	if err == nil && !report.Able {
		err = errors.New("doctor: something that Penstock cannot run without is missing")
	}
	return err
}
