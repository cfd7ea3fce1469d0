package main

import "github.com/penstock/penstock/proxy/cli"

// idleCmd measures the cost of idle sessions.
type idleCmd struct {
	Sessions  int     `default:"9500" placeholder:"N" help:"Sessions through the proxy; fewer if a limit of this machine says so (default: ${default})."`
	Talking   *int    `placeholder:"N" help:"How many of them, chosen at random, then talk while the others idle (default: one in a hundred)."`
	Rounds    int     `default:"3" placeholder:"N" help:"Rounds in which the proxies take turns (default: ${default})."`
	Rest      float64 `default:"10" placeholder:"S" help:"Seconds that the sessions rest before they are looked at (default: ${default})."`
	Seconds   float64 `default:"3" placeholder:"S" help:"Seconds of talking; half as long again while garbage is collected (default: ${default})."`
	Simulated int     `default:"1000000" placeholder:"N" help:"Then the same without sockets of their own, up to so many sessions; 0 leaves it out (default: ${default})."`
	JSON      string  `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*idleCmd) Help() string {
	return `Real sessions through a proxy whose clients and servers are other processes: what
one costs that rests, in memory of the proxy and of the kernel, and what messages
of 1 KiB take over a few of them while the others rest. Beside Penstock stand
Penstock without loops, and a proxy with two goroutines and two buffers of 32 KiB
for each session.

Then up to --simulated sessions in one process, by which the memory that a session
takes and the time that an event takes can be seen to stay what they are: Penstock's
sessions, session table, timer wheel and arena, with sockets that they share. It
takes about a minute, and 2 kB of memory for each session.`
}

// Validate is called by kong once the flags are read.
func (c *idleCmd) Validate() error {
	switch {
	case c.Sessions < 1:
		return cli.Usagef("--sessions %d: write 1 or more", c.Sessions)
	case c.Talking != nil && (*c.Talking < 1 || *c.Talking > c.Sessions):
		return cli.Usagef("--talking %d: write 1 or more, and at most --sessions, %d", *c.Talking, c.Sessions)
	case c.Simulated < 0:
		return cli.Usagef("--simulated %d: write 1 or more, or 0 for none", c.Simulated)
	case c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", c.Rounds)
	case !(c.Rest > 0) || c.Rest > maxSeconds:
		return cli.Usagef("--rest %v: write more than 0, and at most %v", c.Rest, float64(maxSeconds))
	case !(c.Seconds > 0) || c.Seconds > maxSeconds:
		return cli.Usagef("--seconds %v: write more than 0, and at most %v", c.Seconds, float64(maxSeconds))
	}
	return nil
}
