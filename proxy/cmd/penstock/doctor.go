package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/lane"
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

// staysCost is the cost of sessions that may not leave user space.
const staysCost = "sessions stay in user space: small messages take about three times as long, and twice the CPU, see lane.md"

// checkLane finds out whether sessions could leave user space here: the module lane is no part of the library, and so
// not of its doctor.
func checkLane() doctor.Check {
	c := doctor.Check{Name: "lane", State: doctor.OK, Found: "sessions of listeners with lane may leave user space", Mend: []string{}}
	err := lane.Probe()
	if err == nil {
		return c
	}
	c.State, c.Found, c.Cost = doctor.Unknown, err.Error(), "if it is missing, "+staysCost
	var missing *lane.Unavailable
	if errors.As(err, &missing) {
		c.State, c.Found, c.Cost = doctor.Unused, "without "+strings.Join(missing.Missing, ", "), staysCost
		c.Mend = []string{"for lane: auto or require of a listener: a process with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on Linux 6.6 or later, x86-64, with BTF"}
	}
	return c
}

// checkRunningLane is the check lane of a process; false: no listener wants it, and there is none.
func checkRunningLane(l *admin.Lane) (c doctor.Check, there bool) {
	if l == nil || !l.Wanted && l.State != admin.LaneOn {
		return c, false
	}
	c = doctor.Check{Name: "lane", State: doctor.OK, Mend: []string{}}
	c.Found = fmt.Sprintf("%s; %d of %s in the lane", l.State, l.Active, plural(l.Most, "session", "sessions"))
	if l.Why != "" {
		c.Found += "; " + l.Why
	}
	switch l.State {
	case admin.LaneOff:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock lane on"}
	case admin.LaneBusy:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"wait for the end of the process that has the lane", "bpftool net, which has one that was forgotten"}
	case admin.LaneUnavailable:
		c.State, c.Cost, c.Mend = doctor.Degraded, staysCost, []string{"penstock doctor, which has what is missing", "penstock check, which has what is wrong with devices and pins"}
	}
	if l.PinsProblem != "" {
		c.State, c.Cost, c.Found = doctor.Degraded, "the death of the process ends the sessions in the lane", c.Found+"; "+l.PinsProblem
		c.Mend = []string{"remove what is left in the directory of lane.pins: the process pins all anew", "a restart, if the directory itself was removed"}
	}
	return c, true
}
