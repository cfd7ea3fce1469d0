package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Page writes a report in Markdown. After the first error of writing, it does nothing.
type Page struct {
	w   io.Writer
	err error
}

// NewPage returns a page that writes to w.
func NewPage(w io.Writer) *Page { return &Page{w: w} }

// Err returns the first error of writing.
func (p *Page) Err() error { return p.err }

// Line writes a line unchanged.
func (p *Page) Line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Heading writes a heading, after an empty line. The other methods below begin with an empty line, too.
func (p *Page) Heading(format string, args ...any) {
	p.Line("\n### %s", escaped(fmt.Sprintf(format, args...)))
}

// Prose writes a paragraph.
func (p *Page) Prose(format string, args ...any) {
	p.Line("")
	for _, l := range Wrap(escaped(fmt.Sprintf(format, args...)), 120) {
		p.Line("%s", l)
	}
}

// Items writes a list. Without items, it writes nothing.
func (p *Page) Items(items ...string) {
	for i, text := range items {
		if i == 0 {
			p.Line("")
		}
		p.Line("- %s", escaped(text))
	}
}

// Table writes a table.
func (p *Page) Table(t *Table) {
	p.Line("")
	for _, l := range t.Lines() {
		p.Line("%s", l)
	}
}

// escaped escapes text, so that Markdown does not interpret it.
func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}

// Facts writes the circumstances of a measurement. more has further pairs of a name and a text.
func (p *Page) Facts(h *Head, network string, more ...[2]string) {
	m := &h.Machine
	governor := ""
	if m.Governor != "" {
		governor = ", governor " + m.Governor
	}
	var t Table
	t.Left("", "") // a Markdown table must have a head
	for _, f := range append([][2]string{
		{"penstock", h.Penstock + ", " + m.Go},
		{"machine", fmt.Sprintf("%s, %d CPUs%s, %s memory", cmp.Or(m.CPU, Unknown), m.CPUs, governor, Bytes(float64(m.MemoryBytes)))},
		{"kernel", m.Kernel},
		{"run by", m.User + ", " + network},
		{"date", fmt.Sprintf("%s, %.0f s", h.Began.Format("2006-01-02 15:04 MST"), float64(h.ElapsedSeconds))},
		{"command", h.Command},
	}, more...) {
		t.Left(f[0], f[1])
	}
	p.Table(&t)
	if h.Interrupted {
		p.Prose("Interrupted: these results were measured until then.")
	}
}

// Network describes the network of a run: a separate network namespace, or why there was none.
func (h *Head) Network() string {
	switch {
	case h.NetworkNamespace:
		return "in a separate network namespace"
	case h.NamespaceMissing != "":
		return "on the host's loopback, without a network namespace: " + h.NamespaceMissing
	}
	return "on the host's loopback, without a network namespace"
}
