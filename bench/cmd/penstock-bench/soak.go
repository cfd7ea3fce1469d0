package main

import (
	"time"

	"github.com/penstock/penstock/proxy/cli"
)

// mostSoaking is how many connections a soak may have at once: each takes two
// descriptors of this process, and two ports for a while after its end.
const mostSoaking = 5000

// soakCmd keeps a proxy busy with everything that connections may do.
type soakCmd struct {
	programFlag

	Duration    cli.Timeout `default:"10m" placeholder:"TIME" help:"How long connections are opened (default: ${default})."`
	Connections int         `default:"64" placeholder:"N" help:"Connections at once (default: ${default})."`
	Messages    int64       `placeholder:"N" help:"Exchange small messages until this many have come, in place of for a time; with --lane the lane is switched off and on at random meanwhile."`
	Lane        bool        `help:"Every second connection may leave user space (penstock run), in a network namespace whose loopback loses, doubles and delays 1 % of the packets each; takes root."`
	Seed        *uint64     `placeholder:"N" help:"Seed of all random choices; with the same seed a connection of the same number does the same (default: another each time, which is printed)."`
	Engine      string      `enum:"auto,splice,copy" default:"auto" placeholder:"auto|splice|copy" help:"That of penstock proxy (default: ${default})."`
	Loops       *int        `placeholder:"N" help:"That of penstock proxy (default: its own)."`
	JSON        string      `name:"json" placeholder:"FILE" help:"Write everything that was done as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*soakCmd) Help() string {
	return `Runs a penstock proxy and drives both ends of connections through it, which send
random sizes both ways, stall, idle, half-close, reset, send urgent bytes, close with
bytes unread, or say nothing. Every byte is compared with what was sent, and at the
end of each round of 10 s no connection, byte, pipe or descriptor may be unaccounted
for in the proxy. What is, is named in one line each, and is exit code 1.

With --lane rounds take 20 s, and then as long as sessions linger that have left: 10 s and more.
With --messages they take 2 minutes.`
}

// Validate is called by kong once the flags are read.
func (c *soakCmd) Validate() error {
	switch {
	case c.Lane && (c.Engine != "auto" || c.Loops != nil):
		return cli.Usagef("--lane: --engine and --loops are of penstock proxy: leave them out")
	case c.Messages < 0:
		return cli.Usagef("--messages %d: write 1 or more", c.Messages)
	case c.Duration.Duration() <= 0:
		return cli.Usagef("--duration %v: write more than 0, as 60s", c.Duration.Duration())
	case c.Duration.Duration() > 100*24*time.Hour:
		return cli.Usagef("--duration %v: write at most 2400h", c.Duration.Duration())
	case c.Connections < 1 || c.Connections > mostSoaking:
		return cli.Usagef("--connections %d: write 1 or more, and at most %d", c.Connections, mostSoaking)
	}
	return nil
}
