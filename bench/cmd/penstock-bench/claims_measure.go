package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/penstock/penstock/bench/claims"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// Validate is called by kong once the arguments are read.
func (c *claimsCmd) Validate() error {
	if _, err := claims.Find(c.Claims); err != nil {
		return cli.UsageError{Err: err}
	}
	return nil
}

// Run measures the claims one after the other and prints them. A signal ends it,
// with those that were measured until then.
func (c *claimsCmd) Run(e *cli.Env) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go func() {
		select {
		case <-e.Stops:
			interrupt(errInterrupted)
		case <-ctx.Done():
		}
	}()
	if err := c.run(ctx, e); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	return nil
}

func (c *claimsCmd) run(ctx context.Context, e *cli.Env) error {
	chosen, err := claims.Find(c.Claims)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	o := new(outputs)
	if o.json, err = o.file(e, c.JSON); err != nil { // first: a wrong name should not cost a measurement
		return err
	}
	rec, err := claims.Run(ctx, chosen, thisMachine(), func(m *claims.Claim) {
		fmt.Fprintf(e.Stderr, "penstock-bench: measuring %s\n", m.ID)
	})
	if err != nil && len(rec.Results) == 0 {
		return cmp.Or(err, o.close())
	}
	to := *e
	if c.JSON == "-" {
		to.Stdout = e.Stderr
	}
	newClaimsPage(&to).print(chosen, rec, len(c.Claims) > 0) // after an interruption, the results until then
	if o.json != nil {
		err = cmp.Or(err, rec.Write(o.json))
	}
	return cmp.Or(err, o.close())
}

// thisMachine describes the machine of the figures, without a distribution's suffix to the
// kernel's version.
func thisMachine() string {
	version, _, _ := strings.Cut(kernel(), "-")
	return fmt.Sprintf("%d CPUs, %s, %s %s/%s", runtime.NumCPU(), version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// claimsPage writes claims for people.
type claimsPage struct{ *page }

// claimsWidth is the most that a line takes.
const claimsWidth = 120

func newClaimsPage(e *cli.Env) claimsPage {
	p := newPage(e)
	width, terminal := cli.TerminalWidth(e.Stdout, e.Getenv)
	if !terminal || width <= 0 {
		width = claimsWidth
	}
	p.width = max(min(width, claimsWidth), 60)
	return claimsPage{p}
}

// print writes the claims in short, or with details all that there is to say.
func (p claimsPage) print(chosen []*claims.Claim, rec *claims.Record, details bool) {
	p.prose("What was published, and what it comes to here: %s, %s. Times are medians of rounds, by turns where several are compared; a ratio is the median of those within the rounds (p10–p90), below 1 the first is faster.", rec.Machine, rec.Date)
	for _, c := range chosen {
		p.heading(c.ID + ": " + c.Title)
		p.item("published", c.Published)
		p.item("here", rec.Of(c))
		if details {
			p.item("measures", c.Measures)
			p.item("source", c.Source)
			p.item("command", c.Command)
		}
		p.item("honestly", c.Honest)
	}
	if !details {
		p.line("")
		p.prose("What each figure measures, and where it stands: penstock-bench claims NAME, or docs/claims.md.")
	}
}

// item writes text beside its name.
func (p claimsPage) item(name, text string) {
	const indent = 12
	for i, l := range report.Wrap(text, p.width-indent) {
		if i > 0 {
			name = ""
		}
		p.line(fmt.Sprintf("  %-*s%s", indent-2, name, l))
	}
}
