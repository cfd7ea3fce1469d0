package main

import "github.com/penstock/penstock/proxy/cli"

// iperf3Cmd sends one flow through proxies with iperf3.
type iperf3Cmd struct {
	programFlag

	Seconds  int    `default:"5" placeholder:"S" help:"How long each flow lasts (default: ${default})."`
	Rounds   int    `default:"3" placeholder:"N" help:"Rounds in which the proxies take turns (default: ${default})."`
	Syscalls bool   `default:"true" negatable:"" help:"Count system calls in flows of their own, if perf or strace is here."`
	JSON     string `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*iperf3Cmd) Help() string {
	return `iperf3 sends one flow through penstock proxy, through HAProxy with splicing if it is
installed, through a Go proxy by io.Copy, and without a proxy: client, proxy and
server are processes of their own. What took 30 seconds elsewhere is

    penstock-bench iperf3 --seconds 30`
}

// Validate is called by kong once the flags are read.
func (c *iperf3Cmd) Validate() error {
	switch {
	case c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", c.Rounds)
	case c.Seconds < 1 || c.Seconds > maxSeconds:
		return cli.Usagef("--seconds %d: write 1 or more, and at most %d", c.Seconds, int(maxSeconds))
	}
	return nil
}
