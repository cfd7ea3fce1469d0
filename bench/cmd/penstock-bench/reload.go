package main

import "github.com/penstock/penstock/proxy/cli"

// benchReloadCmd measures changes of a configuration that is in force.
type benchReloadCmd struct {
	programFlag

	Quick     bool        `help:"50 listeners, 500 endpoints, 2 rounds; then 20 reloads in a row with 200 idle connections and 10 listeners."`
	Listeners *int        `placeholder:"N" help:"Listeners, each with an upstream of its own (default: 1000)."`
	Endpoints *int        `placeholder:"N" help:"Endpoints of all upstreams (default: 10000)."`
	Rounds    *int        `placeholder:"N" help:"Reloads of each kind, an even number; 0 leaves them out (default: 6)."`
	Checks    cli.Timeout `default:"30s" placeholder:"TIME" help:"Interval of the endpoints' health checks; 0 for none (default: ${default})."`

	Reloads      *int `placeholder:"N" help:"Reloads in a row, with clients meanwhile; 0 leaves them out (default: 1000)."`
	Idle         *int `placeholder:"N" help:"Connections that rest meanwhile (default: 8000, or as many as RLIMIT_NOFILE allows)."`
	Busy         int  `default:"8" placeholder:"N" help:"Clients that open, echo and close meanwhile, one connection after the other (default: ${default})."`
	RowListeners *int `placeholder:"N" help:"Listeners meanwhile, with ten endpoints each (default: 100)."`

	JSON string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*benchReloadCmd) Help() string {
	return `Runs a penstock run whose configuration is read again by SIGHUP, and connects to one of
its listeners again and again until the greeting is that of the new endpoints. The
process says how long it took from a valid configuration to one that is in force, and
how many turns of its loops took a millisecond or more.

Then reloads follow each other at once, while clients rest and others come and go: none
may be closed or refused, and memory, descriptors and goroutines must not grow. What is
not so is exit code 1. With the defaults it all takes two minutes or three.`
}

// Validate is called by kong once the flags are read.
func (c *benchReloadCmd) Validate() error {
	for _, f := range []struct {
		name  string
		value *int
		least int
		most  int
	}{
		{"listeners", c.Listeners, 1, 16000},
		{"endpoints", c.Endpoints, 1, 1_000_000},
		{"rounds", c.Rounds, 0, 1000},
		{"reloads", c.Reloads, 0, 1_000_000},
		{"idle", c.Idle, 0, 1_000_000},
		{"busy", &c.Busy, 0, 1000},
		{"row-listeners", c.RowListeners, 1, 16000},
	} {
		if f.value != nil && (*f.value < f.least || *f.value > f.most) {
			return cli.Usagef("--%s %d: write %d or more, and at most %d", f.name, *f.value, f.least, f.most)
		}
	}
	if c.Checks.Duration() < 0 {
		return cli.Usagef("--checks %v: write 0 or more", c.Checks.Duration())
	}
	return nil
}
