package main

import (
	"context"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/shadow"
	"github.com/penstock/penstock/proxy/cli"
)

// rewriteCmd measures the cost of masks and of a module for the sessions that are rewritten.
type rewriteCmd struct{ mirrorCmd }

// Help is kong's text below the summary.
func (*rewriteCmd) Help() string {
	return `penstock run whose sessions are spliced, beside the same with --engine copy, and with masks
and a module of WebAssembly for the bytes of clients. 8 connections send text in bulk, then 64 have messages of 64 bytes
echoed. The clients and the endpoint are on the same processors.`
}

// A rewriteDocument is the document of --json.
type rewriteDocument mirrorDocument

func (d *rewriteDocument) measured() bool { return (*mirrorDocument)(d).measured() }

// Run measures and reports.
func (c *rewriteCmd) Run(e *cli.Env) error {
	d := &rewriteDocument{benchHead: newBenchHead(e, 1), markdown: c.Format == "markdown"}
	return measureDocument(e, "rewrite", c.JSON, d, func(ctx context.Context) error {
		return c.measure(ctx, e, (*mirrorDocument)(d), "Load balancers and an endpoint, each a process of its own", shadow.MeasureRewrites)
	})
}

func (d *rewriteDocument) print(e *cli.Env) {
	p := newDocumentPage(e)
	p.markdown = d.markdown
	p.heading("The cost of rewriting")
	f := d.benchHead.facts((*mirrorDocument)(d).network())
	f.add("method", "%s, trials of %s; the contestants take turns in alternating order", roundsText(d.Rounds), report.Seconds(float64(d.Trial)))
	for _, r := range d.Rows {
		f.add(r.Shadow, "%s", r.About)
	}
	p.header(&d.benchHead, f)
	p.line("")
	p.table(shadowTable("rewrite", d.Rows))
	p.heading("How to read it")
	p.prose(`bulk 8: bytes that 8 connections have sent to the endpoint. echo 64 × 64: messages of 64 bytes on 64 connections, there and back, and the 99th percentile
		of their time. A ratio is the figure divided by that of spliced, the median of the rounds'.`)
}
