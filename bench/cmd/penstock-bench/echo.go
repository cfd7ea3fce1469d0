package main

import "github.com/penstock/penstock/proxy/cli"

// echoServersCmd measures echo servers on different libraries.
type echoServersCmd struct {
	Dir      string `required:"" placeholder:"DIR" help:"Where the servers' programs are."`
	Baseline string `placeholder:"NAME" help:"Server beside which each of them is measured (default: loop, if it is there, else std; with --connections std)."`
	// Connections are those of the scenarios of many; none: the small ones.
	Connections []int    `placeholder:"N,..." help:"Measure this many active connections, by an echo and a hello of HTTP, with the memory of each (default: an echo over 1 and 64)."`
	Services    []string `default:"echo,hello" enum:"echo,hello" placeholder:"S,..." help:"With --connections: echo, hello (default: both)."`
	Servers     []string `placeholder:"NAME,..." help:"Servers beside the baseline (default: all)."`
	Rounds      int      `default:"6" placeholder:"N" help:"Rounds; an even number lets each go first as often (default: ${default})."`
	Seconds     float64  `default:"0.5" placeholder:"S" help:"Seconds of each trial that count (default: ${default})."`
	Syscalls    bool     `default:"true" negatable:"" help:"Count system calls in trials of their own, if perf or strace is here."`
	JSON        string   `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format      string   `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
}

// Help is kong's text below the summary.
func (*echoServersCmd) Help() string {
	return `No proxy takes part. The servers echo on Penstock's loops, gnet, netpoll and the
standard library. They are in a module of their own, because Penstock needs none of
those libraries; build them in a checkout, and say where they are:

    go build -o echo-servers/ ./bench/echo/...
    penstock-bench echo-servers --dir echo-servers

With --connections 10000 all of these are active, and each server also says hello by
HTTP. The figures then include the latency, the memory of a connection at rest, and the
lines of code.`
}

// Validate is called by kong once the flags are read.
func (c *echoServersCmd) Validate() error {
	for _, n := range c.Connections {
		if n < 1 || n > maxActive {
			return cli.Usagef("--connections %d: write numbers from 1 to %d", n, maxActive)
		}
	}
	switch {
	case c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", c.Rounds)
	case !(c.Seconds >= 0.01) || c.Seconds > 3600:
		return cli.Usagef("--seconds %v: write 0.01 or more, and at most 3600", c.Seconds)
	}
	return nil
}
