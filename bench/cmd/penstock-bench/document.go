package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/proxy/cli"
)

// outFlag is the flag of commands that write their results to a file.
type outFlag struct {
	JSON string `name:"json" placeholder:"FILE" help:"Write all results as JSON to FILE. With - the JSON goes to standard output, and the report to standard error."`
}

// An output is a file that is opened before a measurement, so that a wrong name is found before the measurement.
// Its former content stays until there is new content.
type output struct {
	io.Writer // nil: there is no file
	file      *os.File
}

// open opens a file. With the name "" there is none, and - is standard output.
func open(e *cli.Env, name string) (o output, err error) {
	switch name {
	case "":
	case "-":
		o.Writer = e.Stdout
	default:
		o.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
		o.Writer = o.file
	}
	return o, err
}

// write replaces the content if there is a file, and closes it.
func (o *output) write(content func(io.Writer) error) error {
	if o.Writer == nil {
		return nil
	}
	if o.file != nil {
		if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() {
			if err := o.file.Truncate(0); err != nil {
				return err
			}
		}
	}
	err := content(o.Writer)
	return errors.Join(err, o.close())
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}

// asJSON returns a function that writes a document as indented JSON.
func asJSON(d any) func(io.Writer) error {
	return func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(d)
	}
}

// A head is the beginning of the documents of all commands.
type head struct{ report.Head }

// newHead returns the head of a document for a measurement that begins now.
func newHead(e *cli.Env, format int) head {
	return head{report.Head{Format: format, Penstock: cli.Version(), Command: commandLine(e.Args), Began: time.Now(), Machine: bench.Machine()}}
}

// commandLine returns the command as it was typed.
func commandLine(args []string) string {
	return strings.Join(append([]string{programName}, args...), " ")
}

func (h *head) of() *report.Head { return &h.Head }

// rounds returns the setup of a measurement in n rounds, which reports its progress on standard error. If
// possible, its group of processes has a separate network namespace. The caller closes the group.
func (h *head) rounds(e *cli.Env, n int) rounds.Setup {
	group, missing := process.NewGroupWherePossible()
	h.NetworkNamespace, h.NamespaceMissing = missing == "", missing
	return rounds.Setup{Group: group, Rounds: n, Watch: func(p rounds.Progress) { fmt.Fprintln(e.Stderr, p) }}
}

// A result is the result of a command, which is a document.
type result interface {
	of() *report.Head
	measured() bool // reports whether there are results
	write(p *report.Page)
}

// begins is printed when a measurement begins.
const begins = "Each part runs in its own process. Ctrl-C ends all parts and reports what was measured until then."

// measure calls f, which fills in d until a signal comes. f may use a directory for files. Then measure prints d,
// and writes it as JSON. If f fails, the results before the failure are still printed and written.
func (o outFlag) measure(e *cli.Env, what string, d result, f func(ctx context.Context, dir string) error) error {
	ctx, interrupt := context.WithCancelCause(context.Background())
	defer interrupt(nil)
	go interruptOn(ctx, e.Stops, interrupt)
	err := o.measured(ctx, e, d, f)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (o outFlag) measured(ctx context.Context, e *cli.Env, d result, f func(ctx context.Context, dir string) error) error {
	to, err := open(e, o.JSON)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return errors.Join(err, to.close())
	}
	defer os.RemoveAll(dir)
	fmt.Fprintln(e.Stderr, begins)
	err = f(ctx, dir)
	h := d.of()
	h.ElapsedSeconds, h.Interrupted = report.Number(time.Since(h.Began).Seconds()), errors.Is(err, errInterrupted)
	if err != nil && !d.measured() {
		return errors.Join(err, to.close())
	}
	page := report.NewPage(reportTo(e, o.JSON))
	d.write(page)
	return errors.Join(err, page.Err(), to.write(asJSON(d)))
}

// reportTo returns where the report goes: to standard error if a file goes to standard output.
func reportTo(e *cli.Env, files ...string) io.Writer {
	for _, name := range files {
		if name == "-" {
			return e.Stderr
		}
	}
	return e.Stdout
}

func interruptOn(ctx context.Context, stops <-chan os.Signal, interrupt context.CancelCauseFunc) {
	select {
	case <-stops:
		interrupt(errInterrupted)
	case <-ctx.Done():
	}
}

// seconds writes a time, or [report.Unknown].
func seconds(n report.Number) string { return report.Seconds(float64(n)) }

// ratioOf writes a ratio with its spread. For the first contestant, the ratio is to itself.
func ratioOf(b *report.Band, first bool) string {
	switch {
	case first:
		return "1"
	case b == nil:
		return report.Unknown
	}
	return fmt.Sprintf("%s (%s–%s)", report.Ratio(float64(b.Median)), report.Ratio(float64(b.Low)), report.Ratio(float64(b.High)))
}

// choose returns the values with these names, or an error that lists the names there are. what is the word for a value.
func choose[T any](what string, all []T, names []string, name func(T) string) ([]T, error) {
	known := make([]string, len(all))
	for i, one := range all {
		known[i] = name(one)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("no %s %q: write %s", what, n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !slices.Contains(names, name(one)) }), nil
}

// bounded returns an error if the value of a flag is not within its bounds.
func bounded[T int | float64](flag string, value, least, most T) error {
	if value >= least && value <= most {
		return nil
	}
	return cli.Usagef("--%s %v: write %v or more, and at most %v", flag, value, least, most)
}
