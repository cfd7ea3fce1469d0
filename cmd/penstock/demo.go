package main

import (
	"strings"

	"github.com/penstock/penstock/proxy/socket"
)

// maxSeconds is a week.
const maxSeconds = 7 * 24 * 60 * 60

// demoCmd shows the proxy at work, and what that costs beside a plain one.
type demoCmd struct {
	Listen  string  `default:"127.0.0.1:0" placeholder:"ADDR" help:"Where the proxy listens (default: a free port of loopback)."`
	Rounds  int     `default:"5" help:"Rounds in which the proxies take turns."`
	Seconds float64 `default:"10" help:"Seconds of load in all."`
	Stay    bool    `help:"Keep serving afterwards, until Ctrl-C."`
}

// Validate is called by kong once the flags are read.
func (c *demoCmd) Validate() error {
	_, err := socket.Parse(c.Listen)
	switch {
	case err != nil:
		return usagef("--listen: %w", err)
	case strings.HasPrefix(c.Listen, "unix:"):
		return usagef("--listen %s: the demo's load speaks TCP", c.Listen)
	case c.Rounds < 1:
		return usagef("--rounds %d: write 1 or more", c.Rounds)
	case !(c.Seconds > 0) || c.Seconds > maxSeconds:
		return usagef("--seconds %v: write more than 0, and at most %v", c.Seconds, float64(maxSeconds))
	}
	return nil
}

// partCmd is a part of the demo in a process of its own. The demo runs it; it
// ends with its standard input, which the demo holds.
type partCmd struct {
	Part string   `arg:"" help:"Which part."`
	Args []string `arg:"" optional:"" help:"Its arguments: where the rival forwards to."`
}
