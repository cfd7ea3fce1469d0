package top

import (
	"context"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Config sets up a view.
type Config struct {
	Source   Source
	Interval time.Duration // between two looks; longer if the process takes long to answer
	Title    string

	// Input and Output are the terminal. The caller owns them.
	Input  io.Reader
	Output io.Writer
	Getenv func(string) string
}

// A Program is a view that runs. Its methods are safe for concurrent use.
type Program struct {
	ctx context.Context
	tea *tea.Program
}

// New returns a view that does not run yet. It ends when ctx does.
func New(ctx context.Context, c Config) *Program {
	return &Program{ctx, tea.NewProgram(NewModel(ctx, c),
		tea.WithInput(c.Input), tea.WithOutput(c.Output), tea.WithEnvironment(environment(c.Getenv)), tea.WithoutSignalHandler())}
}

// Run shows the view until its user or ctx ends it, and gives the terminal back as it was.
func (p *Program) Run() error {
	// By tea.WithContext the program would end without waiting for its reader of keys.
	defer context.AfterFunc(p.ctx, p.tea.Quit)()
	_, err := p.tea.Run()
	return err
}

// Quit ends the view.
func (p *Program) Quit() { p.tea.Quit() }

// Note adds a line below the table. The last ones are shown.
func (p *Program) Note(text string) { p.tea.Send(noteMsg(text)) }

// Summarize replaces the line below the notes.
func (p *Program) Summarize(text string) { p.tea.Send(summaryMsg(text)) }

// variables are those that the capabilities of a terminal depend on.
var variables = []string{"TERM", "COLORTERM", "CLICOLOR", "TERM_PROGRAM", "SSH_TTY", "WT_SESSION"}

// environment returns the variables of the terminal. Any value of NO_COLOR has no colours used (no-color.org).
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
