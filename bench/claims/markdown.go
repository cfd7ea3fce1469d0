package claims

import (
	"fmt"
	"strings"
)

const intro = `# Claims

Penstock implements ideas that were published with figures. This page has one row for each figure. Below, each has a section with its meaning, its source and, where the figure is wrong or misleads, the honest version. The tests of the program write the page, from the same data that

    penstock-bench claims

prints, with new figures of the machine it runs on, in less than a minute. penstock-bench claims NAME measures one row and prints all its details.

**Times.** Contestants take turns, and another one begins in each round. A turn is about a millisecond, with these exceptions: in stop-timer 100 objects with the timer stopped and 10,000 timed as a whole, in pool-across-collections ten collections, in pool-pause one, in pool-expensive-new 100 operations on each P, in one-connection, gathered-writes and gathered-references 200 ms. A time is the median of its rounds. A ratio is the median of the ratios within the rounds, with the 10th and 90th percentile: below 1 the first contestant is faster. If all processors work, a time is the elapsed time divided by all operations, as in Go's benchmarks.

**Counts** take no turns. Allocated bytes are the least of several passes, because other parts of the process allocate too; those of slice-headers, and its collections, are the median of three. Memory in million-connections is measured once; CPU in one-connection, gathered-writes and gathered-references is that of all rounds. Some rows come from separate runs of the commands that they name: ten-thousand-connections, configuration, the incidents and traces.
`

// Markdown writes docs/claims.md: the claims, with the results of the record.
func Markdown(claims []*Claim, rec *Record) string {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "\nPenstock's results: %s, %s.\n\n", rec.Date, rec.Machine)
	b.WriteString("| claim | published | Penstock's result | command |\n|---|---|---|---|\n")
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
	fmt.Fprintf(b, "- **Meaning.** %s\n", c.Measures)
	fmt.Fprintf(b, "- **Source.** %s\n", c.Source)
	fmt.Fprintf(b, "- **Honest version.** %s\n", c.Honest)
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
