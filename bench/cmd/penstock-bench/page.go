package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// defaultWidth is the number of columns of a report that goes to no terminal.
const defaultWidth = 80

// page writes text for people to standard output, no wider than need be.
type page struct {
	e      *cli.Env
	width  int
	strong bool // the terminal can do bold, and may
	// markdown: it is written in that.
	markdown bool
}

func newPage(e *cli.Env) *page {
	width, terminal := cli.TerminalWidth(e.Stdout, e.Getenv)
	if !terminal {
		width = defaultWidth
	}
	return &page{e: e, width: min(width, defaultWidth), strong: terminal && e.Getenv("NO_COLOR") == ""}
}

func (p *page) line(s string) { fmt.Fprintln(p.e.Stdout, s) }

// heading writes a blank line and then s, in bold where there is such a thing
// (ECMA-48, SGR).
func (p *page) heading(s string) {
	if p.strong {
		s = "\x1b[1m" + s + "\x1b[m"
	}
	p.line("")
	if p.markdown {
		s = "### " + s + "\n"
	}
	p.line(s)
}

// prose writes a paragraph.
func (p *page) prose(format string, args ...any) {
	for _, l := range report.Wrap(fmt.Sprintf(format, args...), p.width) {
		p.line(l)
	}
}

func (p *page) table(t *report.Table) {
	lines := t.Lines
	if p.markdown {
		lines = t.Markdown
	}
	for _, l := range lines() {
		p.line(l)
	}
}

// kernel names the running kernel.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + string(bytes.TrimSpace(release))
}
