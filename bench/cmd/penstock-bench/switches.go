package main

import (
	"slices"

	"github.com/penstock/penstock/proxy/cli"
)

// maxActive is how many connections one address can have to one port, more or
// less: from ports that need no privilege.
const maxActive = 64000

// switchesCmd compares ways to serve many connections that are all active.
type switchesCmd struct {
	Connections []int   `default:"1000,3000,10000" placeholder:"N,..." help:"How many connections, a comparison for each (default: 1000,3000,10000)."`
	Rounds      int     `default:"3" help:"Rounds in which the servers take turns."`
	Seconds     float64 `default:"2" help:"Seconds of measuring in each trial, after all connections are active."`
	JSON        string  `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Validate is called by kong once the flags are read.
func (c *switchesCmd) Validate() error {
	for _, n := range c.Connections {
		if n < 1 || n > maxActive {
			return cli.Usagef("--connections %d: write numbers from 1 to %d", n, maxActive)
		}
	}
	switch {
	case len(c.Connections) == 0:
		return cli.Usagef("--connections is empty: write numbers from 1 to %d", maxActive)
	case len(slices.Compact(slices.Sorted(slices.Values(c.Connections)))) < len(c.Connections):
		return cli.Usagef("--connections has a number twice: write each once")
	case c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", c.Rounds)
	case !(c.Seconds > 0) || c.Seconds > maxSeconds:
		return cli.Usagef("--seconds %v: write more than 0, and at most %v", c.Seconds, float64(maxSeconds))
	}
	return nil
}
