package main

import (
	"time"

	"github.com/penstock/penstock/proxy/cli"
)

// rollingCmd has endpoints restart, die and fall silent, behind Penstock and others.
type rollingCmd struct {
	programFlag

	Quick     bool              `help:"One round, endpoints away for 1 s, 50 clients in a second, which give up after 3 s: about a minute."`
	Scenarios names             `name:"scenario" placeholder:"NAME,..." help:"Failures of the endpoints: rolling, pair, brief, single, refusing, resetting, mute, frozen (default: all)."`
	Peers     names             `placeholder:"NAME,..." help:"Contestants: penstock, haproxy, haproxy-observe, nginx, nginx-tuned, penstock-checks, haproxy-checks (default: all that are installed). One that is named and not installed is exit code 1."`
	Rounds    *int              `placeholder:"N" help:"Rounds of every scenario (default: 2)."`
	Seconds   *float64          `placeholder:"S" help:"How long an endpoint is away; all other times are in proportion (default: 4)."`
	Rate      *float64          `placeholder:"N" help:"Clients in a second, of each contestant (default: 100)."`
	Timeout   *cli.Timeout      `placeholder:"TIME" help:"When a client gives up (default: 10s)."`
	Binary    map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"An executable to use: haproxy=PATH, nginx=PATH; repeats."`

	PrintConfigs bool   `help:"Print the configurations that the contestants would get, and end."`
	JSON         string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format       string `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
	Strict       bool   `help:"Exit code 1 where a peer loses fewer clients."`
}

// Help is kong's text below the summary.
func (*rollingCmd) Help() string {
	return `Clients come at a steady rate, each with one request on a connection of its own, while

    rolling    each of three endpoints in turn is away for 4 s, and back for 6 s
    pair       one of two endpoints is away for 4 s, back for 6 s, and then the other one dies
    brief      the same with one that is away for 1 s
    single     the only endpoint is away for 1 s, and later for 1.9 s
    refusing   one of three endpoints refuses connections
    resetting  one of three accepts connections, and resets each at once
    mute       one of three accepts connections, and says nothing
    frozen     one of three is stopped (SIGSTOP), and goes on 20 s later

befalls the endpoints behind penstock run, HAProxy and nginx, of all of them at the same
time. Reported are the clients that got no answer, and how long the others waited for
theirs. Contestants whose name ends in -checks ask their endpoints for an answer of HTTP
every second, and are compared with each other. A round takes three minutes.`
}

// Bounds of its flags.
const (
	leastAway, mostAway = 0.05, 60.0
	mostRollingRate     = 2000
)

// Validate is called by kong once the flags are read.
func (c *rollingCmd) Validate() error {
	switch {
	case c.Rounds != nil && (*c.Rounds < 1 || *c.Rounds > 100):
		return cli.Usagef("--rounds %d: write 1 or more, and at most 100", *c.Rounds)
	case c.Seconds != nil && (!(*c.Seconds >= leastAway) || *c.Seconds > mostAway):
		return cli.Usagef("--seconds %v: write %v or more, and at most %v", *c.Seconds, leastAway, mostAway)
	case c.Rate != nil && (!(*c.Rate >= 1) || *c.Rate > mostRollingRate):
		return cli.Usagef("--rate %v: write 1 or more, and at most %d", *c.Rate, mostRollingRate)
	case c.Timeout != nil && (c.Timeout.Duration() < time.Millisecond || c.Timeout.Duration() > time.Minute):
		return cli.Usagef("--timeout %v: write 1ms or more, and at most 1m", c.Timeout.Duration())
	}
	for name := range c.Binary {
		if name != "haproxy" && name != "nginx" {
			return cli.Usagef("--binary %s=...: write haproxy=PATH or nginx=PATH", name)
		}
	}
	return nil
}
