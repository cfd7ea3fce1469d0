package claims

import (
	"fmt"
	"strings"
)

const intro = `# What is claimed, and what it comes to

Penstock implements ideas that were published with figures. This page has one row for each figure, and below a section with what it measures, where it stands, and where it is wrong or misleads, the honest version. It is written by the program's own tests from the same data that

    penstock-bench claims

prints, with fresh figures of the machine it runs on, in less than a minute; penstock-bench claims NAME measures one row and tells all there is to it.

Where times are compared, contestants take turns, in each round another one first. A turn is about a millisecond, but in stop-timer 100 objects with the timer stopped and 10,000 timed whole, in pool-across-collections ten collections, in pool-pause one, in pool-expensive-new 100 operations on each P, in one-connection and gathered-writes 200 ms. A time is the median of its rounds, and a ratio the median of those within the rounds, with the 10th and 90th percentile: below 1 the first one is faster. Where all processors work, a time is the time elapsed divided by what all of them did, as Go's benchmarks have it.

What is counted takes no turns: bytes allocated are the least of several passes, for others in the process allocate, too; those of slice-headers and its collections the median of three; memory in million-connections is measured once; CPU in one-connection and gathered-writes is that of all rounds. The figures of ten-thousand-connections are a run of penstock-bench switches, recorded apart: the median of its rounds, if it had more than one.
`

// Markdown writes docs/claims.md: the claims, with the results of the record.
func Markdown(claims []*Claim, rec *Record) string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "\nOur results: %s, %s.\n\n", rec.Date, rec.Machine)
	b.WriteString("| claim | published | our result | command |\n|---|---|---|---|\n")
	for _, c := range claims {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |\n", c.Title, c.ID, c.Published, rec.Of(c), c.command())
	}
	for _, c := range claims {
		c.section(&b)
	}
	return b.String()
}

// section writes the parts that do not fit into a row.
func (c *Claim) section(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n%s: %s\n\n", c.ID, c.Title, c.Published)
	fmt.Fprintf(b, "- **What it measures.** %s\n", c.Measures)
	fmt.Fprintf(b, "- **Source.** %s\n", c.Source)
	fmt.Fprintf(b, "- **The honest version.** %s\n", c.Honest)
}

// command is the commands as code, for a cell of a table.
func (c *Claim) command() string {
	if c.Command == noCommand {
		return c.Command
	}
	s := strings.ReplaceAll(c.Command, "|", `\|`)
	s = strings.Replace(s, ", or, with processes of their own, ", "`, or, with processes of their own, `", 1)
	return "`" + strings.Replace(s, ", or go", "`, or `go", 1) + "`"
}
