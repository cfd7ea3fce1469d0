// Package top is the view of a running process on a terminal: throughput and sessions by listener, upstream and
// endpoint, loops with their lag, problems, and the verdicts on sessions. It refreshes by itself, as top(1).
//
// [Model] is the state of the view and depends only on its messages. Rates are the differences of two statuses, divided
// by the time between them. [Once] writes the same as text, without a terminal.
//
// Every text from the process is escaped by package display before it is shown.
package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// The styles. A terminal without colours shows them as bold, faint and reversed, or not at all.
var (
	bold   = ansi.NewStyle().Bold()
	dim    = ansi.NewStyle().Faint()
	marked = ansi.NewStyle().Reverse(true)
	tones  = [...]ansi.Style{calm: nil, faint: dim, warn: ansi.NewStyle().ForegroundColor(ansi.Yellow), bad: ansi.NewStyle().ForegroundColor(ansi.Red)}
)

// A place says how many lines each part of the view gets.
type place struct {
	problems int // lines, including the line that counts the rest
	verdict  int
	whole    int // for the last text of the chosen row
	rows     int // for rows of the table
}

// fixedLines counts the lines of the title, the totals, the tabs, the columns and the keys.
const fixedLines = 5

// place divides the lines of the terminal. The table gets at least half of them.
func (m *Model) place() place {
	var p place
	if m.tab == tabSessions {
		p.verdict = 2 // the verdict on all sessions, and the advice
	}
	if m.tab != tabProblems && m.now != nil {
		p.problems = min(len(m.now.Status.Problems), max((m.height-fixedLines)/5, 1))
	}
	p.whole = 1 + min(m.height/20, 2)
	p.rows = max(m.height-fixedLines-p.problems-p.verdict-p.whole, 0)
	return p
}

// View shows the model.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the view: no more, and none wider, than the terminal allows.
func (m *Model) lines() []string {
	lines := []string{m.title()}
	p := m.place()
	if m.picture != nil {
		lines = append(lines, m.totals())
		lines = append(lines, m.problemLines(p.problems)...)
	}
	lines = append(lines, m.tabs())
	if m.tab == tabSessions {
		lines = append(lines, verdictLines(m.why)...)
	}
	lines = append(lines, m.rows(p.rows)...)
	for len(lines) < m.height-p.whole-1 {
		lines = append(lines, "")
	}
	lines = append(lines, m.detail(p.whole)...)
	lines = append(lines, m.help())
	if len(lines) > m.height { // the keys are the last line of the smallest terminal
		lines = append(lines[:max(m.height-1, 0)], lines[len(lines)-1])
	}
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return lines
}

// title names the process, and the time of the look.
func (m *Model) title() string {
	left := bold.Styled("penstock top")
	if m.now == nil {
		if m.err != nil {
			return left + "  " + tones[bad].Styled(oneLine(m.err.Error()))
		}
		return left + "  waiting for the process ..."
	}
	s := &m.now.Status
	left += fmt.Sprintf("  pid %d  %s  generation %d  for %s  up %s", s.PID, display.Text(string(s.State)), s.Generation, age(m.now.At.Sub(s.GenerationSince)), age(m.now.At.Sub(s.Started)))
	right := m.now.At.Local().Format(time.TimeOnly)
	switch {
	case m.err != nil:
		return left + "  " + tones[bad].Styled("no answer since "+right+": "+oneLine(m.err.Error()))
	case m.paused:
		right = "paused  " + right
	}
	if space := m.width - ansi.StringWidth(left) - len(right); space > 0 {
		return left + strings.Repeat(" ", space) + right
	}
	return left + "  " + right
}

func (m *Model) totals() string { return m.picture.totals(&m.now.Status.Summary.Connections) }

// problemLines returns the first problems, and how many more there are.
func (m *Model) problemLines(n int) (lines []string) {
	all := m.picture.problems.rows
	shown := n
	if len(all) > n {
		shown--
	}
	for _, r := range all[:max(shown, 0)] {
		lines = append(lines, tones[r.tone].Styled(strings.ToUpper(r.cells[0].text)+"  "+r.detail))
	}
	if more := len(all) - max(shown, 0); more > 0 && n > 0 {
		worst := all[max(shown, 0)].tone
		lines = append(lines, tones[worst].Styled(fmt.Sprintf("... and %d more: tab 6", more)))
	}
	return lines
}

// tabs returns the names of the tabs, with the shown tab in reverse.
func (m *Model) tabs() string {
	var b strings.Builder
	for tab, name := range tabNames {
		text := fmt.Sprintf(" %d %s ", tab+1, name)
		if tab == m.tab {
			text = marked.Styled(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// rows returns the names of the columns, and n rows from the first visible one.
func (m *Model) rows(n int) []string {
	if len(m.shown.columns) == 0 {
		return nil
	}
	l := m.shown.layout(m.width)
	lines := []string{bold.Styled(m.shown.header(l, m.sorts[m.tab]))}
	first := m.first[m.tab]
	for i := first; i < min(first+n, len(m.shown.rows)); i++ {
		r := &m.shown.rows[i]
		text := m.shown.text(l, r)
		switch {
		case i == m.cursor[m.tab]:
			text = marked.Styled(text + strings.Repeat(" ", max(m.width-ansi.StringWidth(text), 0)))
		default:
			text = tones[r.tone].Styled(text)
		}
		lines = append(lines, text)
	}
	return lines
}

// detail returns the last text of the chosen row, and its place among the rows, in n lines.
func (m *Model) detail(n int) []string {
	lines := strings.Split(ansi.Wrap(m.chosen(), max(m.width, 1), ""), "\n")
	if len(lines) > n {
		lines = append(lines[:n-1], strings.Join(lines[n-1:], " ")) // cut later
	}
	for len(lines) < n {
		lines = append(lines, "")
	}
	for i := range lines {
		lines[i] = dim.Styled(lines[i])
	}
	return lines
}

func (m *Model) chosen() string {
	n := len(m.shown.rows)
	switch {
	case n == 0 && m.filter != "":
		return "no row contains " + m.filter
	case n == 0:
		return ""
	}
	at := m.cursor[m.tab]
	return strings.TrimSpace(fmt.Sprintf("%d of %d  %s", at+1, n, oneLine(m.shown.rows[at].detail)))
}

const keys = "1-6 tab  ↑↓ row  s sort  r reverse  / filter  p pause  q quit"

// help is the keys, or the filter that is being written.
func (m *Model) help() string {
	switch {
	case m.typing:
		return bold.Styled("filter: "+m.filter+"_") + dim.Styled("  enter keeps it, esc clears it")
	case m.filter != "":
		return bold.Styled("filter: "+m.filter) + dim.Styled("  esc clears it  "+keys)
	}
	return dim.Styled(keys)
}

// Config sets up a view.
type Config struct {
	Source   Source
	Interval time.Duration // between two looks; longer if the process answers slowly

	// Input and Output are the terminal. The caller owns them.
	Input  io.Reader
	Output io.Writer
	Getenv func(string) string
}

// Run shows the view until its user or ctx ends it, and then restores the terminal.
func Run(ctx context.Context, c Config) error {
	program := tea.NewProgram(NewModel(ctx, c),
		tea.WithInput(c.Input), tea.WithOutput(c.Output), tea.WithEnvironment(environment(c.Getenv)), tea.WithoutSignalHandler())
	// With tea.WithContext the program would end without waiting for its reader of keys.
	defer context.AfterFunc(ctx, program.Quit)()
	_, err := program.Run()
	return err
}

// variables are the environment variables that decide what a terminal can do.
var variables = []string{"TERM", "COLORTERM", "CLICOLOR", "TERM_PROGRAM", "SSH_TTY", "WT_SESSION"}

// environment returns the variables of the terminal. Any value of NO_COLOR switches colours off (no-color.org).
func environment(getenv func(string) string) (list []string) {
	for _, name := range variables {
		if value := getenv(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	if getenv("NO_COLOR") != "" {
		list = append(list, "NO_COLOR=1")
	}
	return list
}

// plainWidth is the width of lines without a terminal: enough for whole causes.
const plainWidth = 10_000

// plainRows is how many rows of a table are written.
const plainRows = 100

// Once writes the tables as text: two looks, one interval apart, and the verdicts on the time between them.
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

func writePlain(w io.Writer, before, now *Look, y *admin.Why) error {
	p, s := pictureOf(before, now), &now.Status
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d, %s, up %s, generation %d for %s\n", s.PID, oneLine(string(s.State)), age(now.At.Sub(s.Started)), s.Generation, age(now.At.Sub(s.GenerationSince)))
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

// write writes the rows after an empty line, or nothing without rows.
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

// A Source is the observed process. [admin.Client] is one.
type Source interface {
	Status(ctx context.Context) (admin.Status, error)
	Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error)
}

// A Look is a status, and when it arrived.
type Look struct {
	Status admin.Status
	At     time.Time
	Took   time.Duration // that the request took
}

func see(ctx context.Context, s Source) (Look, error) {
	began := time.Now()
	status, err := s.Status(ctx)
	now := time.Now()
	return Look{Status: status, At: now, Took: now.Sub(began)}, err
}

// share is the largest part of the time in which a process answers the view: with a large configuration a status costs
// it tens of milliseconds.
const share = 4

// pause returns the time until the next look.
func (l *Look) pause(interval time.Duration) time.Duration {
	return max(interval, (share-1)*l.Took)
}

func (l *Look) same(o *Look) bool {
	return l.Status.PID == o.Status.PID && l.Status.Started.Equal(o.Status.Started)
}

// oneLine joins several lines into one, and escapes them: joined errors have several.
func oneLine(text string) string { return display.Text(strings.ReplaceAll(text, "\n", "; ")) }
