package main

import "github.com/penstock/penstock/proxy/cli"

// benchTLSCmd measures the termination of TLS.
type benchTLSCmd struct {
	programFlag

	Quick   bool              `help:"2 rounds, trials of 0.3 s."`
	Rounds  *int              `placeholder:"N" help:"Rounds in which the contestants take turns (default: 6)."`
	Seconds *float64          `placeholder:"S" help:"Seconds of each of the seven trials of a contestant in a round (default: 1)."`
	Clients int               `default:"16" placeholder:"N" help:"Clients at once (default: ${default})."`
	Binary  map[string]string `placeholder:"NAME=PATH" mapsep:"none" help:"An executable to use: haproxy=PATH."`
	JSON    string            `name:"json" placeholder:"FILE" help:"Write everything that was measured as JSON; - is standard output, and the report then goes to standard error."`
}

// Help is kong's text below the summary.
func (*benchTLSCmd) Help() string {
	return `A listener of penstock run that terminates TLS beside HAProxy's (bind ssl crt, mode tcp,
a thread for each processor), and both without TLS. A client connects, shakes hands, has
64 bytes echoed, closes, and begins again: without a ticket, and with the last one. Then
it has one message after the other echoed on one connection, and on 64 at once. Everybody has the same
certificate (ECDSA, P-256), the key exchange is X25519, and the client's half of the
work is on the same processors: read the proxy's CPU for each handshake first.`
}

// Validate is called by kong once the flags are read.
func (c *benchTLSCmd) Validate() error {
	switch {
	case c.Rounds != nil && *c.Rounds < 1:
		return cli.Usagef("--rounds %d: write 1 or more", *c.Rounds)
	case c.Seconds != nil && (!(*c.Seconds >= 0.05) || *c.Seconds > 3600):
		return cli.Usagef("--seconds %v: write 0.05 or more, and at most 3600", *c.Seconds)
	case c.Clients < 1 || c.Clients > 1000:
		return cli.Usagef("--clients %d: write 1 or more, and at most 1000", c.Clients)
	}
	for name := range c.Binary {
		if name != "haproxy" {
			return cli.Usagef("--binary %s=...: write haproxy=PATH", name)
		}
	}
	return nil
}
