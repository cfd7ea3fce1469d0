package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy"
)

// page writes text for people to standard output, no wider than need be.
type page struct {
	e      *env
	width  int
	strong bool // the terminal can do bold, and may
	// markdown: it is written in that.
	markdown bool
}

func newPage(e *env) *page {
	width, terminal := terminalWidth(e.stdout, e.getenv)
	if !terminal {
		width = defaultWidth
	}
	return &page{e: e, width: min(width, defaultWidth), strong: terminal && e.getenv("NO_COLOR") == ""}
}

func (p *page) line(s string) { fmt.Fprintln(p.e.stdout, s) }

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

// demoReport says what came out of the trials.
type demoReport struct {
	*page
	trials []bench.Trial
	total  *proxy.Summary // penstock's, of all trials
}

func newReport(e *env, trials []bench.Trial, total *proxy.Summary) *demoReport {
	return &demoReport{page: newPage(e), trials: trials, total: total}
}

func (r *demoReport) print() {
	r.heading("penstock proxy beside a plain io.Copy proxy")
	r.prose(`%s, %d CPUs, loopback. The origin, the load and each proxy are processes of their own; the proxies
		took turns, %s Of throughput and requests more is better, of all else less. CPU is the proxy's own.`,
		kernel(), runtime.NumCPU(), turns(r.rounds()))
	r.compare(load.Bulk)
	r.compare(load.Echo)
	r.moved()
	r.checked()
}

func (r *demoReport) rounds() int { return r.trials[len(r.trials)-1].Round + 1 }

// turns says what figures of so many rounds are.
func turns(rounds int) string {
	if rounds == 1 {
		return "one round, which says nothing of how far figures stray. A ratio is penstock's figure over io.Copy's."
	}
	return fmt.Sprintf(`%d rounds. A figure is the median of the rounds and how far they strayed from it; a ratio is
		penstock's figure over io.Copy's of the same round, again the median, then the least and the greatest.`, rounds)
}

// of returns the trials of one contestant under one workload.
func (r *demoReport) of(contestant string, w load.Workload) []bench.Trial {
	return slices.DeleteFunc(slices.Clone(r.trials), func(t bench.Trial) bool {
		return t.Contestant != contestant || t.Plan.Workload != w
	})
}

// compare writes the table of one workload.
func (r *demoReport) compare(w load.Workload) {
	ours, theirs := r.of(penstockName, w), r.of(rivalName, w)
	r.heading(title(&ours[0]))
	lines := comparison(figures(w), ours, theirs, r.rounds() > 1)
	if slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > r.width }) {
		lines = comparison(figures(w), ours, theirs, false)
	}
	for _, l := range lines {
		r.line(l)
	}
}

// comparison is the lines of a table; only a wide one has the spreads.
func comparison(figures []figure, ours, theirs []bench.Trial, wide bool) []string {
	var table report.Table
	row := func(cells ...string) {
		if !wide {
			cells = cells[:len(cells)-1]
		}
		table.Row(cells...)
	}
	row("", penstockName, rivalName, "ratio", "min .. max")
	for _, f := range figures {
		a, b := f.sample(ours), f.sample(theirs)
		ratio := a.Over(b)
		row("  "+f.name, f.cell(a, wide), f.cell(b, wide), report.Ratio(ratio.Median()), report.Spread(ratio, report.Ratio))
	}
	return table.Lines()
}

// title names a workload.
func title(t *bench.Trial) string {
	if t.Plan.Workload == load.Echo {
		return fmt.Sprintf("Request and response: %d bytes, %d connections", t.Plan.Size, t.Plan.Connections)
	}
	return fmt.Sprintf("Bulk: %d connections that stream", t.Plan.Connections)
}

// moved writes how penstock says that the bytes went.
func (r *demoReport) moved() {
	r.heading("How penstock moved the bytes, by its own account")
	var table report.Table
	table.Row("", "spliced", "copied", "pipes made", "pipes reused")
	for _, w := range []load.Workload{load.Bulk, load.Echo} {
		var moved proxy.Moved
		var made, reused int64
		for _, t := range r.of(penstockName, w) {
			both := bench.Both(t.Summary)
			moved.Spliced += both.Spliced
			moved.Copied += both.Copied
			made += t.Summary.Pipes.Made
			reused += t.Summary.Pipes.Reused
		}
		table.Row("  "+string(w), report.Bytes(float64(moved.Spliced)), report.Bytes(float64(moved.Copied)),
			report.Exact(made), report.Exact(reused))
	}
	r.table(&table)
	r.prose("Fallbacks to copying: %s. Pipes leased now that all is quiet: %d.",
		fallbacks(r.total.Fallbacks), r.total.Pipes.Leased)
	if bench.Both(r.total).Spliced == 0 {
		r.prose("Nothing was spliced here: this kernel or sandbox does not let it.")
		return
	}
	r.prose(`Spliced bytes went from socket to socket through kernel pipes by splice(2) and never entered the
		process. Small messages are copied, because that is cheaper for them. io.Copy splices as well (Go's net
		package does it for two sockets) but keeps no count; the pipes that it holds can be seen from outside.`)
}

// fallbacks lists the reasons, the same way every time.
func fallbacks(counts map[string]int64) string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s %s", reason, report.Exact(counts[reason])))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// checked writes what the figures rest on. Measure has failed if any of it
// were not so.
func (r *demoReport) checked() {
	var received, penstock int64
	for _, t := range r.trials {
		received += t.Result.Received
		if t.Contestant == penstockName {
			penstock += t.Result.Received
		}
	}
	r.heading("Checked")
	r.prose(`Each of the %s bytes that the load received was compared with what the origin was asked for. %s of
		them came through penstock, which counts the same number, and lost %d.`,
		report.Exact(received), report.Exact(penstock), r.total.Lost)
}

// kernel names the running kernel.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + string(bytes.TrimSpace(release))
}
