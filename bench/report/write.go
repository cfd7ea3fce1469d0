package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// WriteMarkdown writes the document for people.
func (d *Document) WriteMarkdown(w io.Writer) error {
	p := NewPage(w)
	d.facts(p)
	for _, s := range d.Scenarios {
		s.write(p)
	}
	d.standings(p)
	d.legend(p)
	if len(d.Failures) > 0 {
		p.Heading("Failed")
		p.Items(d.Failures...)
	}
	return p.Err()
}

func (d *Document) facts(p *Page) {
	more := [][2]string{{"method", d.method()}, {"system calls", d.Method.counter()}}
	if d.Method.KernelSlab != "" && d.has("idle") {
		more = append(more, [2]string{"kernel slab", d.Method.KernelSlab})
	}
	for _, c := range d.Contestants {
		version := ""
		if c.Version != "" {
			version = " (" + c.Version + ")"
		}
		more = append(more, [2]string{"contestant", c.Name + ": " + c.About + version})
	}
	for _, l := range d.LeftOut {
		more = append(more, [2]string{"left out", l.Name + ": " + l.Reason})
	}
	p.Facts(&d.Head, d.network(), more...)
}

func (d *Document) has(workload string) bool {
	return slices.ContainsFunc(d.Scenarios, func(s *Scenario) bool { return s.Workload == workload })
}

func (d *Document) network() string {
	switch d.Method.Network {
	case "":
		return d.Network()
	case "loss":
		return "in three network namespaces joined by veth; the link to the client loses 1 % of the packets"
	}
	return "in three network namespaces joined by " + d.Method.Network
}

// method describes the method. Idle sessions have a separate sentence. Without paired trials, the sentence about
// them is left out.
func (d *Document) method() string {
	m, paired := &d.Method, len(d.Scenarios) == 0
	var texts []string
	for _, s := range d.Scenarios {
		switch s.Workload {
		case "idle":
			texts = append(texts, fmt.Sprintf("idle: %s, in each every contestant once between two trials of %s, in alternating order", Rounds(s.Rounds), m.Baseline))
		default:
			paired = true
		}
	}
	if paired {
		texts = append([]string{fmt.Sprintf("%s, trials of %s; each contestant right beside %s, in alternating order",
			Rounds(m.Rounds), Seconds(float64(m.TrialSeconds)), m.Baseline)}, texts...)
	}
	return strings.Join(texts, "; ")
}

// Rounds returns a number of rounds in words.
func Rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

func (m *Method) counter() string {
	switch {
	case m.SystemCallCounter != "":
		return "counted by " + m.SystemCallCounter + " in separate, untimed trials. It slows them down, so that each call moves more bytes, and there are fewer calls per MB than in the timed trials"
	case m.SystemCallsMissing != "":
		return "not counted: " + m.SystemCallsMissing
	}
	return "not counted"
}

func (d *Document) legend(p *Page) {
	if len(d.Scenarios) == 0 {
		return
	}
	p.Heading("How to read it")
	p.Prose(`A figure is the median of the rounds ± half of their spread. A ratio is the median of the ratios to
		the trial of %s in the same pair; in brackets is their range (the least and the greatest; from ten rounds on, the 10th and
		90th percentile). "%s" is the baseline measured beside itself: the difference of its ratios from 1 is noise. CPU counts all
		processes and threads of the contestant. machine is the busy time of all processors, with kernel threads, load and
		sink. %s means unknown.`, d.Method.Baseline, againName, Unknown)
	if d.has("idle") {
		p.Prose(`idle: memory does not drift as time does, so a ratio is to the mean of the round's two trials of %s, and the ratio of
			the noise floor to the first trial. Kernel slab counts both ends of all sessions, with load and sink, and also the sockets
			that other programs on the machine open and close. It is left out (%s) if the slab without the sessions changed, from before
			to after, by more than a quarter of what the sessions added.`, d.Method.Baseline, Unknown)
	}
}

// againName is the name of the noise floor in tables.
const againName = "again (noise floor)"

func (s *Scenario) write(p *Page) {
	p.Heading("%s: %s", s.Name, s.Title)
	p.Table(s.figureTable())
	p.Items(s.notes()...)
}

func (c *Cell) name() string {
	switch c.Role {
	case Again:
		return againName
	case Baseline:
		return c.Contestant + " (baseline)"
	}
	return c.Contestant
}

func (s *Scenario) figureTable() *Table {
	figures := Figures(s.Workload)
	head := []string{""}
	for _, f := range figures {
		title := f.Title
		if counted[f.Name] {
			title += " (strace)"
		}
		head = append(head, title)
		if !f.Plain {
			head = append(head, "ratio")
		}
	}
	t := new(Table)
	t.Row(head...)
	for _, c := range s.Cells {
		row := []string{c.name()}
		for _, f := range figures {
			sum, ok := c.Figures[f.Name]
			row = append(row, f.cell(sum, ok))
			switch {
			case f.Plain:
			case ok && c.Role == Baseline:
				row = append(row, "1")
			default:
				row = append(row, band(sum.Ratio, f.Main))
			}
		}
		t.Row(row...)
	}
	return t
}

// cell returns the median. For a main figure, it adds half of the spread in percent of the median.
func (f *Figure) cell(sum Summary, ok bool) string {
	if !ok {
		return Unknown
	}
	text := f.Write(float64(sum.Median))
	stray := float64(sum.High-sum.Low) / 2 / math.Abs(float64(sum.Median)) * 100
	if !f.Main || sum.Values < 2 || math.IsNaN(stray) || math.IsInf(stray, 0) {
		return text
	}
	return fmt.Sprintf("%s ±%.0f%%", text, stray)
}

// notes returns facts that the table does not show.
func (s *Scenario) notes() []string {
	var notes []string
	for _, c := range s.Cells {
		add := func(format string, args ...any) { notes = append(notes, c.name()+": "+fmt.Sprintf(format, args...)) }
		if c.Failed != "" {
			add("failed: %s", c.Failed)
		}
		if c.Void != "" {
			add("not counted: %s", c.Void)
		}
		for _, n := range c.Notes {
			add("%s", n)
		}
	}
	return notes
}

func (c *Cell) ours() bool { return IsPenstock(c.Contestant) }

// IsPenstock reports whether the contestant with this name is Penstock, with any engine.
func IsPenstock(name string) bool {
	return name == "penstock" || strings.HasPrefix(name, "penstock-")
}

func (d *Document) standings(p *Page) {
	if len(d.Standings) == 0 {
		return
	}
	p.Heading("Penstock beside the peer against which it does worst")
	t := new(Table)
	t.Row("", "worst beside", "Penstock", "must", "aim", "verdict", "no proxy")
	for i := range d.Standings {
		st := &d.Standings[i]
		title := st.title()
		if st.Among != "" {
			title += " of " + st.Among
		}
		t.Row(title, cmp.Or(st.Peer, Unknown), st.reached(), st.bound(st.Must), st.bound(st.Aim), string(st.Verdict), band(st.Limit, false))
	}
	p.Table(t)
	p.Prose("%s", d.standingsLegend())
}

func (st *Standing) title() string {
	text := st.Scenario + ": " + st.figure().Title
	if st.Subject != subject {
		text += ", " + st.Subject
	}
	return text
}

// reached returns the ratio, or the figure itself for an absolute goal.
func (st *Standing) reached() string {
	if st.Absolute {
		return st.figure().Write(float64(st.Value))
	}
	return band(st.Ratio, true)
}

// bound writes a goal, with ≥ or ≤.
func (st *Standing) bound(x Number) string {
	f := st.figure()
	side := "≤ "
	if f.More {
		side = "≥ "
	}
	switch {
	case !x.Known():
		return Unknown
	case st.Absolute:
		return side + f.Write(float64(x))
	}
	return side + Ratio(float64(x))
}

// band writes a median. If wide is set, it adds the spread of the values.
func band(b *Band, wide bool) string {
	switch {
	case b == nil:
		return Unknown
	case wide && b.Values > 1:
		return fmt.Sprintf("%s (%s–%s)", Ratio(float64(b.Median)), Ratio(float64(b.Low)), Ratio(float64(b.High)))
	}
	return Ratio(float64(b.Median))
}

func (d *Document) standingsLegend() string {
	text := `Each row shows the peer against which Penstock does worst: the median of the rounds' ratios of Penstock to this peer.
		"no proxy" is the same ratio of direct to this peer: the limit of every proxy.`
	if slices.ContainsFunc(d.Standings, func(st Standing) bool { return st.Among == splicers[0].Among }) {
		text += ` HAProxy with splicing is here twice, with separate verdicts: with its default pipe size, and with
			tune.pipesize as large as Penstock's pipes, which is 1 MiB for root (256 KiB for an ordinary user).`
	}
	if !slices.ContainsFunc(d.Standings, func(st Standing) bool { return st.indirect() }) {
		return text
	}
	text += fmt.Sprintf(` Two contestants that were not measured as a pair are compared by their ratios to %s in the same round, so this
		ratio has the noise of both`, d.Method.Baseline)
	if d.Method.Baseline == subject {
		return text + ". Among the kinds of Penstock only the first is measured in pairs with the peers."
	}
	return text + ". --baseline penstock measures each peer in pairs with Penstock."
}

// indirect reports whether a ratio of the standing is a quotient of two ratios.
func (st *Standing) indirect() bool {
	return slices.ContainsFunc(st.Beside, func(p PeerRounds) bool { return !p.Paired })
}
