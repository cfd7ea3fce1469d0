// Package top is the view of a running process on a terminal: throughput and sessions by listener, upstream
// and endpoint, loops with their lag, problems, and the verdicts on sessions. It refreshes by itself, as top(1).
//
// [Model] is the state of the view and depends on its messages alone. Rates are the differences of two
// statuses by the time between them. [Once] writes the same as text, where there is no terminal.
//
// Every text of the process is escaped by package display before it is shown.
package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// Config sets up a view.
type Config struct {
	Source   Source
	Interval time.Duration // between two looks; longer if the process takes long to answer

	// Input and Output are the terminal. The caller owns them.
	Input  io.Reader
	Output io.Writer
	Getenv func(string) string
}

// Run shows the view until its user or ctx ends it, and gives the terminal back as it was.
func Run(ctx context.Context, c Config) error {
	program := tea.NewProgram(NewModel(ctx, c),
		tea.WithInput(c.Input), tea.WithOutput(c.Output), tea.WithEnvironment(environment(c.Getenv)), tea.WithoutSignalHandler())
	// By tea.WithContext the program would end without waiting for its reader of keys.
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

// A Source is the process that is looked at. [admin.Client] is one.
type Source interface {
	Status(ctx context.Context) (admin.Status, error)
	Why(ctx context.Context, q admin.WhyQuery) (admin.Why, error)
}

// A Look is a status, and the time at which it had come.
type Look struct {
	Status admin.Status
	At     time.Time
	Took   time.Duration // that the request took
}

// see asks for a status.
func see(ctx context.Context, s Source) (Look, error) {
	began := time.Now()
	status, err := s.Status(ctx)
	now := time.Now()
	return Look{Status: status, At: now, Took: now.Sub(began)}, err
}

// share is the part of the time, at most, for which a process answers the view: of a large configuration
// a status costs it tens of milliseconds.
const share = 4

// pause is the time until the next look.
func (l *Look) pause(interval time.Duration) time.Duration {
	return max(interval, (share-1)*l.Took)
}

// same reports whether two looks are at the same process.
func (l *Look) same(o *Look) bool {
	return l.Status.PID == o.Status.PID && l.Status.Started.Equal(o.Status.Started)
}

// oneLine joins several lines into one, and escapes them: joined errors have some.
func oneLine(text string) string { return display.Text(strings.ReplaceAll(text, "\n", "; ")) }
