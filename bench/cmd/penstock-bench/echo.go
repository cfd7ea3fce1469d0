package main

import "github.com/penstock/penstock/proxy/cli"

// echoServersCmd measures echo servers on different libraries.
type echoServersCmd struct {
	Dir      string  `required:"" placeholder:"DIR" help:"Where the servers' programs are."`
	Baseline string  `placeholder:"NAME" help:"Server beside which each of them is measured (default: loop, if it is there, else std)."`
	Rounds   int     `default:"6" placeholder:"N" help:"Rounds; an even number lets each go first as often (default: ${default})."`
	Seconds  float64 `default:"0.5" placeholder:"S" help:"Seconds of each trial (default: ${default})."`
	Syscalls bool    `default:"true" negatable:"" help:"Count system calls in trials of their own, if perf or strace is here."`
	JSON     string  `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
	Format   string  `default:"text" enum:"text,markdown" placeholder:"text|markdown" help:"Of the report (default: ${default})."`
}

// Help is kong's text below the summary.
func (*echoServersCmd) Help() string {
	return `No proxy takes part. The servers echo on Penstock's loops, gnet, netpoll and the
standard library. They are in a module of their own, because Penstock needs none of
those libraries; build them in a checkout, and say where they are:

    go build -o echo-servers/ ./bench/echo/...
    penstock-bench echo-servers --dir echo-servers`
}

// Validate is called by kong once the flags are read.
func (c *echoServersCmd) Validate() error {
	switch {
	case c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", c.Rounds)
	case !(c.Seconds >= 0.01) || c.Seconds > 3600:
		return cli.Usagef("--seconds %v: write 0.01 or more, and at most 3600", c.Seconds)
	}
	return nil
}
