package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/display"
)

type whyCmd struct {
	adminFlags
	Session  string      `arg:"" optional:"" help:"Look at this session: its client, or its id, as penstock sessions lists them."`
	ByID     string      `name:"session" placeholder:"ID" help:"The same, as a flag."`
	Source   string      `placeholder:"ADDRESS" help:"Look at sessions of clients from an address or a prefix."`
	Endpoint string      `placeholder:"NAME" help:"Look at sessions to this endpoint, by its name or its address."`
	Upstream string      `placeholder:"NAME" help:"Look at sessions to this upstream; @unknown: adopted sessions whose upstream is not in the file."`
	Listener string      `placeholder:"NAME" help:"Look at sessions of this listener; @unknown as for an upstream."`
	For      cli.Timeout `default:"1s" placeholder:"TIME" help:"How long to look, up to 1m; 0: the time since the beginning of each session. (default: ${default})"`
	JSON     bool        `name:"json" help:"In JSON, with the waits and the kernel's account of each connection."`
}

// Run prints what limits sessions of a running process.
func (c *whyCmd) Run(e *cli.Env) error {
	q := admin.WhyQuery{Session: cmp.Or(c.Session, c.ByID), Endpoint: c.Endpoint, Upstream: c.Upstream, Listener: c.Listener, For: c.For.Duration()}
	chosen := 0
	for _, name := range []string{c.Session, c.ByID, c.Source, c.Endpoint, c.Upstream, c.Listener} {
		if name != "" {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return cli.Usagef("why: write a session, or one of --source, --endpoint, --upstream and --listener, or none of them")
	case q.For > admin.MaxWhy:
		return cli.Usagef("why: --for: write at most %v", admin.MaxWhy)
	}
	if c.Source != "" {
		var err error
		if q.Source, err = admin.ParseSource(c.Source); err != nil {
			return cli.Usagef("why: --source: %w", err)
		}
	}
	return c.ask(e, "why", func(ctx context.Context, client *admin.Client) error {
		w, err := client.Why(ctx, q)
		if err != nil {
			return err
		}
		if c.JSON {
			return writeJSON(e.Stdout, w)
		}
		return writeWhy(e.Stdout, &w)
	})
}

// whyRows is how many sessions have a row.
const whyRows = 20

// writeWhy writes the verdict on all sessions, what to do, and a row for each of the busiest.
func writeWhy(w io.Writer, y *admin.Why) error {
	if y.Count == 0 {
		_, err := fmt.Fprintln(w, oneLine(cmp.Or(y.Advice, "no session is joined")))
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s of the time of %d %s\n", display.Text(y.Verdict), percent(y.Shares[y.Verdict]), y.Count, cmp.Or(map[bool]string{true: "session"}[y.Count == 1], "sessions"))
	if y.Adopted > 0 {
		fmt.Fprintf(&text, "of adopted sessions, which are %d of these, the time in the lane alone is known\n", y.Adopted)
	}
	if y.Most != nil {
		fmt.Fprintf(&text, "%s: %d of %d sessions, %s of that time\n", display.Text(groupName(y.Most)), y.Most.Limited, y.Most.Sessions, percent(y.Most.Share))
	}
	fmt.Fprintf(&text, "%s\n\n", oneLine(y.Advice))
	form := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	names := slices.Collect(maps.Keys(y.Shares))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(y.Shares[b], y.Shares[a]), cmp.Compare(a, b)) })
	for _, name := range names {
		fmt.Fprintf(form, "%s\t%s\tverdict of %d\n", display.Text(name), percent(y.Shares[name]), y.Verdicts[name])
	}
	if err := form.Flush(); err != nil {
		return err
	}
	text.WriteString("\n")
	if err := writeWhyEndpoints(&text, y); err != nil {
		return err
	}
	for i := range y.Sessions[:min(len(y.Sessions), whyRows)] {
		one := &y.Sessions[i]
		fmt.Fprintf(&text, "%s -> %s  %s\n    %s\n", display.Text(one.Client), display.Text(one.Endpoint), display.Text(one.Verdict), oneLine(one.Why))
	}
	if more := int(y.Count) - min(len(y.Sessions), whyRows); more > 0 || y.More {
		fmt.Fprintf(&text, "... and %d more\n", more)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// whyEndpoints is how many endpoints have a row.
const whyEndpoints = 10

// writeWhyEndpoints writes a row for each endpoint, if there are several.
func writeWhyEndpoints(w *strings.Builder, y *admin.Why) error {
	if len(y.Endpoints) < 2 {
		return nil
	}
	form := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(form, "%s, by endpoint\tsessions\tof that time\tof its own time\n", display.Text(y.Verdict))
	for i := range y.Endpoints[:min(len(y.Endpoints), whyEndpoints)] {
		one := &y.Endpoints[i]
		fmt.Fprintf(form, "%s\t%d of %d\t%s\t%s\n", display.Text(groupName(one)), one.Limited, one.Sessions, percent(one.Share), percent(one.Shares[y.Verdict]))
	}
	if more := len(y.Endpoints) - whyEndpoints; more > 0 {
		fmt.Fprintf(form, "... and %d more\n", more)
	}
	if err := form.Flush(); err != nil {
		return err
	}
	w.WriteString("\n")
	return nil
}

// groupName names an endpoint by its address, and its name if that is another, and its upstream; or an upstream.
func groupName(of *admin.EndpointWhy) string {
	if of.Endpoint == "" {
		return "upstream " + of.Upstream
	}
	text := "endpoint " + of.Endpoint
	if of.Name != "" && of.Name != of.Endpoint {
		text = fmt.Sprintf("endpoint %s (%s)", of.Name, of.Endpoint)
	}
	if of.Upstream != "" {
		text += " of " + of.Upstream
	}
	return text
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
