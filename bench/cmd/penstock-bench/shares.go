package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/shares"
	"github.com/penstock/penstock/proxy/cli"
)

// sharesCmd draws where the CPU time of a run went.
type sharesCmd struct {
	JSON    string  `name:"json" required:"" placeholder:"FILE" help:"That of the run."`
	Samples string  `required:"" placeholder:"FILE" help:"The output of perf script -F comm,pid,time,ip,sym."`
	Hertz   float64 `default:"1999" placeholder:"N" help:"Samples in a second of CPU time, as perf record -F had it (default: ${default})."`
	SVG     string  `name:"svg" placeholder:"FILE" help:"Draw the picture."`
}

// Help is kong's text below the summary.
func (*sharesCmd) Help() string {
	return `A run of penstock-bench lane, or run, is recorded by perf, as root:

    perf record -g -F 1999 -e cpu-clock -k CLOCK_REALTIME -o perf.data -- penstock-bench lane --scenarios echo-64-64,bulk-8 --peers penstock-run,penstock-copy --json lane.json
    perf script -i perf.data -F comm,pid,time,ip,sym > samples.txt
    penstock-bench shares --json lane.json --samples samples.txt --svg engines.svg

Each sample within a trial of messages or streams is counted for the part of the work that its
stack shows. Only processes of the run are recorded, and those of the load and the sink are one
part. Work that the kernel does in threads of its own is in none.`
}

// Validate is called by kong once the flags are read.
func (c *sharesCmd) Validate() error {
	if !(c.Hertz >= 1) || c.Hertz > 1e6 {
		return cli.Usagef("--hertz %v: write 1 or more, and at most 1000000", c.Hertz)
	}
	return nil
}

// Run counts, writes a table and draws.
func (c *sharesCmd) Run(e *cli.Env) (err error) {
	text, err := os.ReadFile(c.JSON)
	if err != nil {
		return fmt.Errorf("shares: %w", err)
	}
	var doc report.Document
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("shares: %s: %w", c.JSON, err)
	}
	samples, err := os.Open(c.Samples)
	if err != nil {
		return fmt.Errorf("shares: %w", err)
	}
	defer samples.Close()
	list, err := shares.Of(&doc, samples, c.Hertz)
	if err != nil {
		return fmt.Errorf("shares: %s: %w", c.Samples, err)
	}
	if len(list) == 0 {
		return fmt.Errorf("shares: %s has no trial of messages or streams", c.JSON)
	}
	if err := report.WriteSharesText(e.Stdout, list); err != nil || c.SVG == "" {
		return err
	}
	f, err := newAtomicFile(c.SVG)
	if err != nil {
		return fmt.Errorf("shares: %w", err)
	}
	defer f.Close()
	return report.WriteShares(f, list, aboutShares(&doc))
}

// aboutShares are the lines below the title.
func aboutShares(doc *report.Document) []string {
	m := &doc.Machine
	return []string{
		fmt.Sprintf("%s, %d CPUs, %s; %s; %s", m.CPU, m.CPUs, m.Kernel, doc.Began.Format("2006-01-02"), strings.TrimSpace(doc.Command)),
		"A bar is the CPU time of the proxy, the client and the server for a request, or a GB, by samples of perf. It is as long beside the others of its scenario as that time.",
	}
}
