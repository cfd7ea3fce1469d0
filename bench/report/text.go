package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// WriteText writes the document for people, in lines of at most width
// characters as far as names allow.
func (d *Document) WriteText(w io.Writer, width int) error {
	p := &printer{w: w, width: width}
	p.print(d)
	return p.err
}

// WriteMarkdown writes the same in Markdown.
func (d *Document) WriteMarkdown(w io.Writer) error {
	p := &printer{w: w, width: math.MaxInt, markdown: true}
	p.print(d)
	return p.err
}

// printer writes a document, until something cannot be written.
type printer struct {
	w        io.Writer
	width    int
	markdown bool
	err      error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) print(d *Document) {
	p.header(d)
	for _, s := range d.Scenarios {
		p.scenario(d, s)
	}
	p.standings(d)
	p.parities(d)
	p.legend(d)
	p.list("Failed:", d.Failures)
}

// heading is preceded by an empty line.
func (p *printer) heading(text string) {
	p.line("")
	if p.markdown {
		p.line("### %s\n", escaped(text))
		return
	}
	p.line("%s", text)
}

// prose writes a paragraph.
func (p *printer) prose(text string) {
	if p.markdown {
		p.line("%s", escaped(text))
		return
	}
	for _, l := range Wrap(text, p.width) {
		p.line("%s", l)
	}
}

// list writes a heading and an item for each text, nothing if there is none.
func (p *printer) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	p.heading(heading)
	p.items(items)
}

func (p *printer) items(items []string) {
	for _, text := range items {
		if p.markdown {
			p.line("- %s", escaped(text))
			continue
		}
		for i, l := range Wrap(text, p.width-2) {
			p.line("%s%s", [2]string{"- ", "  "}[min(i, 1)], l)
		}
	}
}

// table writes the widest of the tables that fits, which are tried in turn.
func (p *printer) table(levels int, make func(level int) *Table) {
	var lines []string
	for level := levels; level >= 0; level-- {
		t := make(level)
		if p.markdown {
			lines = t.Markdown()
			break
		}
		if lines = t.Lines(); t.Width() <= p.width {
			break
		}
	}
	for _, l := range lines {
		p.line("%s", l)
	}
}

// header writes the circumstances of the run.
func (p *printer) header(d *Document) {
	var t Table
	row := func(name, format string, args ...any) { t.Left(name, fmt.Sprintf(format, args...)) }
	m := &d.Machine
	governor := ""
	if m.Governor != "" {
		governor = ", governor " + m.Governor
	}
	if p.markdown {
		t.Left("", "")
	}
	row("penstock", "%s, %s", d.Penstock, m.Go)
	row("machine", "%s, %d CPUs%s, %s memory", known(m.CPU), m.CPUs, governor, Bytes(float64(m.MemoryBytes)))
	row("kernel", "%s", m.Kernel)
	row("run by", "%s, %s", m.User, d.Method.network())
	row("date", "%s, %.0f s", d.Began.Format("2006-01-02 15:04 MST"), float64(d.ElapsedSeconds))
	row("command", "%s", d.Command)
	row("method", "%s", d.method())
	row("system calls", "%s", d.Method.counter())
	if d.Method.KernelSlab != "" && slices.ContainsFunc(d.Scenarios, func(s *Scenario) bool { return s.Workload == "idle" }) {
		row("kernel slab", "%s", d.Method.KernelSlab)
	}
	for i, c := range d.Contestants {
		version := ""
		if c.Version != "" {
			version = " (" + c.Version + ")"
		}
		for _, service := range slices.Sorted(maps.Keys(c.Lines)) {
			version += fmt.Sprintf(", %s: %d lines", service, c.Lines[service])
		}
		row([2]string{"contestants", ""}[min(i, 1)], "%s: %s%s", c.Name, c.About, version)
	}
	for i, l := range d.LeftOut {
		row([2]string{"left out", ""}[min(i, 1)], "%s: %s", l.Name, l.Reason)
	}
	p.wrapped(&t)
	if d.Interrupted {
		p.line("")
		p.prose("Interrupted: what follows is what was measured until then.")
	}
}

// wrapped writes rows of two cells, of which the second may take more lines.
func (p *printer) wrapped(t *Table) {
	if p.markdown {
		for _, l := range t.Markdown() {
			p.line("%s", l)
		}
		return
	}
	var narrow Table
	const first = len("system calls")
	for _, r := range t.rows {
		for i, l := range Wrap(r.cells[1], p.width-first-len(gap)) {
			narrow.Left([2]string{r.cells[0], ""}[min(i, 1)], l)
		}
	}
	for _, l := range narrow.Lines() {
		p.line("%s", l)
	}
}

func (m *Method) network() string {
	switch m.Network {
	case "":
		return Network(m.NetworkNamespace, m.NamespaceMissing)
	case "loss":
		return "in three network namespaces joined by veth, of which that to the client loses 1 % of the packets"
	}
	return "in three network namespaces joined by " + m.Network
}

// Network describes the network of a run: a network namespace of its own, or why there was
// none, "" if unknown.
func Network(own bool, missing string) string {
	switch {
	case own:
		return "in a network namespace of the run's own"
	case missing != "":
		return "on the host's loopback, without a network namespace: " + missing
	}
	return "on the host's loopback, without a network namespace"
}

// method describes the method. Idle sessions have a sentence of their own. The sentence about
// paired trials is left out if there are none.
func (d *Document) method() string {
	m, paired := &d.Method, len(d.Scenarios) == 0
	var texts []string
	for _, s := range d.Scenarios {
		switch s.Workload {
		case "idle":
			texts = append(texts, fmt.Sprintf("idle: %s, in each every contestant once between two trials of %s, in alternating order", rounds(s.Rounds), m.Baseline))
		case "correct": // described by its own title
		default:
			paired = true
		}
	}
	if paired {
		texts = append([]string{fmt.Sprintf("%s, trials of %s; each contestant right beside %s, in alternating order",
			rounds(m.Rounds), Seconds(float64(m.TrialSeconds)), m.Baseline)}, texts...)
	}
	if len(texts) == 0 {
		return "every contestant once"
	}
	return strings.Join(texts, "; ")
}

// rounds counts them.
func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

func (m *Method) counter() string {
	switch {
	case m.estimated():
		return "counted by strace in separate, untimed trials, which it slows down: more gathers between two calls, so that each moves more, and there are fewer per MB than in the timed trials"
	case m.SystemCallCounter != "":
		return "counted by " + m.SystemCallCounter + " in separate, untimed trials"
	case m.SystemCallsMissing != "":
		return "not counted: " + m.SystemCallsMissing
	}
	return "not counted"
}

// estimated reports whether the tool that counts system calls stops the contestant
// at each, which changes how many there are.
func (m *Method) estimated() bool { return m.SystemCallCounter == "strace" }

// known is text, or Unknown.
func known(text string) string {
	if text == "" {
		return Unknown
	}
	return text
}

// legend explains the columns of the tables.
func (p *printer) legend(d *Document) {
	if len(d.Scenarios) == 0 {
		return
	}
	p.heading("How to read it")
	p.prose(fmt.Sprintf(`A figure is the median of the rounds ± half of their spread; a ratio is the median of the ratios to
		%s's trial right beside, in brackets how far those stray (the least and the greatest; from ten rounds on, the 10th and
		90th percentile). "%s" is the baseline measured beside itself: what its ratios stray from 1 is noise. CPU is of all
		processes and threads of the contestant; machine is the busy time of all processors, kernel threads, load and sink
		included. %s is unknown.`, d.Method.Baseline, againName, Unknown))
	if slices.ContainsFunc(d.Scenarios, func(s *Scenario) bool { return s.Workload == "idle" }) {
		p.prose(fmt.Sprintf(`idle: memory does not drift as time does, so a ratio is to the mean of the round's two trials of %s,
			the noise floor's to the first. Kernel slab is of all ends of all sessions, load and sink included, and of the whole
			machine: what others open and close counts. It is left out (%s) when, without the sessions, it was not the same before
			and after, to a quarter of what they added.`, d.Method.Baseline, Unknown))
	}
}

// escaped keeps Markdown from reading more into text than is there.
func escaped(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(strings.Join(strings.Fields(text), " "))
}
