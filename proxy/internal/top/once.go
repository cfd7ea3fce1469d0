package top

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
)

// plainWidth is the width of lines without a terminal: causes are whole.
const plainWidth = 10_000

// plainRows is how many rows of a table are written.
const plainRows = 100

// Once writes the tables as text: two looks, an interval apart, and the verdicts on the time between.
func Once(ctx context.Context, c Config) error {
	before, err := see(ctx, c.Source)
	if err != nil {
		return err
	}
	y, err := c.Source.Why(ctx, admin.WhyQuery{For: min(c.Interval, admin.MaxWhy)}) // takes the interval
	if err != nil {
		return err
	}
	now, err := see(ctx, c.Source)
	if err != nil {
		return err
	}
	return writePlain(c.Output, &before, &now, &y)
}

// writePlain writes the tables of two looks.
func writePlain(w io.Writer, before, now *Look, y *admin.Why) error {
	p, s := pictureOf(before, now), &now.Status
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d, %s, generation %d, for %s; up %s\n", s.PID, oneLine(string(s.State)), s.Generation, age(now.At.Sub(s.GenerationSince)), age(now.At.Sub(s.Started)))
	fmt.Fprintln(&b, p.totals(&s.Connections))
	for _, t := range []*table{&p.problems, &p.listeners, &p.upstreams, &p.endpoints, &p.loops} {
		t.write(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(verdictLines(y), "\n"))
	sessions := sessionTable(y)
	sessions.write(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the rows after an empty line, nothing if there are none.
func (t *table) write(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	l := t.layout(plainWidth)
	fmt.Fprintf(b, "\n%s\n", t.line(l, func(i int) string { return t.columns[i].name }))
	for i := range t.rows[:min(len(t.rows), plainRows)] {
		fmt.Fprintln(b, t.text(l, &t.rows[i]))
	}
	if more := len(t.rows) - plainRows; more > 0 {
		fmt.Fprintf(b, "... and %d more\n", more)
	}
}
