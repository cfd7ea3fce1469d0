package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type sourcesCmd struct {
	processFlags
	By      string `placeholder:"ORDER" enum:"connections,rate,refusals,bytes" default:"connections" help:"What there is most of: connections, rate, refusals or bytes. (default: ${default})"`
	Top     int    `placeholder:"N" default:"20" help:"How many. (default: ${default})"`
	Prefix  int    `placeholder:"BITS" default:"32" help:"How many bits of an IPv4 address make one source. (default: ${default})"`
	Prefix6 int    `name:"prefix6" placeholder:"BITS" default:"64" help:"The same, of IPv6. (default: ${default})"`
	JSON    bool   `name:"json" help:"In JSON."`
}

// Run lists sources of clients of a running process.
func (c *sourcesCmd) Run(e *cli.Env) error {
	switch {
	case c.Top < 1 || c.Top > admin.MaxTop:
		return cli.Usagef("sources: --top %d: write 1 to %d", c.Top, admin.MaxTop)
	case c.Prefix < 1 || c.Prefix > 32 || c.Prefix6 < 1 || c.Prefix6 > 128:
		return cli.Usagef("sources: write 1 to 32 for --prefix, and 1 to 128 for --prefix6")
	}
	return c.ask(e, "sources", func(ctx context.Context, client *admin.Client) error {
		s, err := client.Sources(ctx, admin.SourceQuery{By: c.By, Top: c.Top, Prefix4: c.Prefix, Prefix6: c.Prefix6})
		switch {
		case err != nil:
			return err
		case c.JSON:
			return writeJSON(e.Stdout, s)
		}
		return writeSources(e.Stdout, &s)
	})
}

// writeSources writes a table with a row for each source.
func writeSources(w io.Writer, s *admin.Sources) error {
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(form, "source\tconnections\tnew/s\trefused\tbytes")
	for i := range s.Sources {
		one := &s.Sources[i]
		fmt.Fprintf(form, "%s\t%d\t%.1f\t%d\t%s\n", display.Text(one.Source), one.Connections, one.PerSecond, one.Refused, display.Bytes(one.Bytes))
	}
	if more := s.Known - len(s.Sources); more > 0 {
		fmt.Fprintf(form, "... and %d more\n", more)
	}
	return form.Flush()
}
