package main

import (
	"time"

	"github.com/penstock/penstock/proxy/cli"
)

// incidentCmd has endpoints fail under load.
type incidentCmd struct {
	programFlag

	Quick    bool  `help:"Silent endpoints only, configurations off and on, 2 s before, 6 s of incident and 3 s after, clients give up after 2 s: half a minute."`
	Failures names `placeholder:"NAME,..." help:"Failures of the endpoints: silent, slow, refuse (default: all)."`
	Modes    names `placeholder:"NAME,..." help:"Configurations: off, least_conn, defaults, first_byte, on (default: off,defaults,on)."`

	Endpoints int          `default:"9" placeholder:"N" help:"Endpoints (default: ${default})."`
	Failing   *int         `placeholder:"N" help:"How many of them fail (default: a third)."`
	Rate      float64      `default:"500" placeholder:"N" help:"Requests in a second, each on a connection of its own (default: ${default})."`
	Service   cli.Timeout  `default:"5ms" placeholder:"TIME" help:"Time of an answer (default: ${default})."`
	Delay     cli.Timeout  `default:"3s" placeholder:"TIME" help:"How late slow endpoints answer: the mean of times that are exponentially distributed (default: ${default})."`
	Timeout   *cli.Timeout `placeholder:"TIME" help:"When a client gives up (default: 7s)."`
	Within    cli.Timeout  `default:"200ms" placeholder:"TIME" help:"The answer_within of on (default: ${default})."`
	FirstByte cli.Timeout  `default:"500ms" placeholder:"TIME" help:"The first_byte of configurations that have one, and the timeout of the checks of on (default: ${default})."`

	Before *cli.Timeout `placeholder:"TIME" help:"Before the incident (default: 5s)."`
	During *cli.Timeout `placeholder:"TIME" help:"How long the incident is (default: 40s)."`
	After  *cli.Timeout `placeholder:"TIME" help:"After it (default: 10s)."`

	PrintConfigs bool   `help:"Print the configurations, and end."`
	JSON         string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	SVG          string `name:"svg" placeholder:"FILE" help:"Draw it."`
	Strict       bool   `help:"Exit code 1 where on misses a bound."`
}

// Help is kong's text below the summary.
func (*incidentCmd) Help() string {
	return `Requests go through penstock run to a number of endpoints at a steady rate. At a
moment a third of these fall silent (accept, and answer nothing), or slow, or refuse,
and some time later they are well again. That happens behind each configuration:

    off         no checks, no outlier detection, no circuit breaker, no retries
    least_conn  the same with balance: least_conn
    defaults    what is on unless it is turned off
    first_byte  that, and first_byte
    on          defaults, answer_within, and HTTP checks every second

The policy is round_robin in all but least_conn. Reported are the mean, the 99th
percentile and what failed, before, during and after, when the load balancer kept
endpoints away, and when a circuit breaker opened. --print-configs shows the files.`
}

// Bounds of its flags: a number of a second's figures that can be passed on, and of sockets
// that a process may have.
const (
	mostIncident     = 10 * time.Minute
	mostEndpoints    = 1000
	mostIncidentRate = 10000
)

// Validate is called by kong once the flags are read.
func (c *incidentCmd) Validate() error {
	for flag, t := range map[string]*cli.Timeout{
		"service": &c.Service, "delay": &c.Delay, "timeout": c.Timeout, "first-byte": &c.FirstByte, "within": &c.Within,
		"before": c.Before, "during": c.During, "after": c.After,
	} {
		if t != nil && (t.Duration() < time.Millisecond || t.Duration() > mostIncident) {
			return cli.Usagef("--%s %v: write 1ms or more, and at most %v", flag, t.Duration(), mostIncident)
		}
	}
	switch {
	case c.Endpoints < 2 || c.Endpoints > mostEndpoints:
		return cli.Usagef("--endpoints %d: write 2 or more, and at most %d", c.Endpoints, mostEndpoints)
	case c.failing() < 1 || c.failing() > c.Endpoints:
		return cli.Usagef("--failing %d: write 1 or more, and at most the %d that there are", c.failing(), c.Endpoints)
	case !(c.Rate >= 1) || c.Rate > mostIncidentRate:
		return cli.Usagef("--rate %v: write 1 or more, and at most %d", c.Rate, mostIncidentRate)
	case c.JSON == "-" && c.SVG == "-":
		return cli.Usagef("--json and --svg cannot both be standard output")
	}
	return nil
}

// failing is how many endpoints fail.
func (c *incidentCmd) failing() int {
	if c.Failing != nil {
		return *c.Failing
	}
	return max(c.Endpoints/3, 1)
}
