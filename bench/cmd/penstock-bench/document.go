package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/cli"
)

// benchHead is the head of the documents that bench commands write by --json. Each command
// numbers its own formats: adding a field keeps the number, changing the meaning of a field or
// removing it is a new number.
type benchHead struct {
	Format         int            `json:"format"`
	Penstock       string         `json:"penstock"` // the version of the program
	Command        string         `json:"command"`
	Began          time.Time      `json:"began"`
	ElapsedSeconds report.Number  `json:"elapsed_seconds"`
	Interrupted    bool           `json:"interrupted"` // the rest is then the results until that
	Machine        report.Machine `json:"machine"`
}

// newBenchHead returns the head of a document whose measurement begins now.
func newBenchHead(e *cli.Env, format int) benchHead {
	return benchHead{Format: format, Penstock: cli.Version(), Command: commandLine(e.Args), Began: time.Now(), Machine: bench.Machine()}
}

func (h *benchHead) head() *benchHead { return h }

// benchDocument is the result of such a command.
type benchDocument interface {
	head() *benchHead
	measured() bool   // there is something to report
	print(e *cli.Env) // for people
}

// measureDocument has measure fill in d, until a signal, then prints d and writes it to a file
// of that name, "" for none. Results from before a failure are reported, too. The argument
// what is the command, for the error.
func measureDocument(e *cli.Env, what, file string, d benchDocument, measure func(context.Context) error) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	o := new(outputs)
	var err error // a wrong name should not cost a measurement
	if o.json, err = o.file(e, file); err == nil {
		err = measure(ctx)
		h := d.head()
		h.ElapsedSeconds, h.Interrupted = report.Number(time.Since(h.Began).Seconds()), errors.Is(err, errInterrupted)
		if err == nil || d.measured() {
			err = cmp.Or(err, o.present(e, file, d))
		}
		err = errors.Join(err, o.close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// inRounds returns the setup of a measurement in rounds whose progress is on standard error.
func inRounds(e *cli.Env, group *process.Group, n int) rounds.Setup {
	return rounds.Setup{Group: group, Rounds: n, Watch: func(p rounds.Progress) { fmt.Fprintln(e.Stderr, p) }}
}

// announce names the processes of a measurement that begins.
func announce(e *cli.Env, processes string) {
	fmt.Fprintln(e.Stderr, processes+". Ctrl-C ends it and reports the results until then.")
}

// present prints a document, where its JSON does not go, and writes that.
func (o *outputs) present(e *cli.Env, file string, d benchDocument) error {
	to := *e
	if file == "-" {
		to.Stdout = e.Stderr
	}
	d.print(&to)
	if o.json == nil {
		return nil
	}
	return o.writeJSON(d)
}

// writeJSON writes a document to o.json, indented.
func (o *outputs) writeJSON(d any) error {
	text, err := json.MarshalIndent(d, "", "  ")
	if err == nil {
		_, err = o.json.Write(append(text, '\n'))
	}
	return err
}

// documentWidth is the columns of the pages of such documents, which fit on a page.
const documentWidth = 100

// newDocumentPage is as wide whatever the terminal.
func newDocumentPage(e *cli.Env) *page {
	p := newPage(e)
	p.width = documentWidth
	return p
}

// facts are pairs of a name and a text.
type facts [][2]string

func (f *facts) add(name, format string, args ...any) {
	*f = append(*f, [2]string{name, fmt.Sprintf(format, args...)})
}

// facts returns the circumstances of the measurement. network is the namespace.
func (h *benchHead) facts(network string) *facts {
	f := new(facts)
	f.add("penstock", "%s, %s", h.Penstock, h.Machine.Go)
	f.add("machine", "%s, %d CPUs, %s memory", h.Machine.CPU, h.Machine.CPUs, report.Bytes(float64(h.Machine.MemoryBytes)))
	f.add("kernel", "%s", h.Machine.Kernel)
	f.add("run by", "%s, %s", h.Machine.User, network)
	f.add("date", "%s, %.0f s", h.Began.Format("2006-01-02 15:04 MST"), float64(h.ElapsedSeconds))
	f.add("command", "%s", h.Command)
	return f
}

// header writes the facts, and whether that is all.
func (p *page) header(h *benchHead, all *facts) {
	names := 0
	for _, f := range *all {
		names = max(names, len(f[0]))
	}
	var t report.Table
	if p.markdown {
		t.Left("", "") // the head that such a table must have
	}
	for _, f := range *all {
		for i, l := range report.Wrap(f[1], p.width-names-2) {
			t.Left([2]string{f[0], ""}[min(i, 1)], l)
		}
	}
	p.table(&t)
	if h.Interrupted {
		p.line("")
		p.prose("Interrupted: what follows is what was measured until then.")
	}
}
