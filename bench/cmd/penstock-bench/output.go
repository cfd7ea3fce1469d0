package main

import (
	"errors"
	"io"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/proxy/cli"
)

// outputs is where the results go.
type outputs struct {
	json, svg io.Writer // nil: nowhere
	report    io.Writer
	width     int
	markdown  bool
	closers   []io.Closer // owned here
}

// open opens the files before the measurement. Existing files of those names stay until all of
// their content can be replaced.
func (c *benchRunCmd) open(e *cli.Env) (*outputs, error) {
	o := &outputs{report: e.Stdout, markdown: c.Format == "markdown", width: reportWidth}
	if c.JSON == "-" || c.SVG == "-" {
		o.report = e.Stderr
	}
	if width, terminal := cli.TerminalWidth(o.report, e.Getenv); terminal {
		o.width = width
	}
	var err error
	if o.json, err = o.file(e, c.JSON); err != nil {
		return nil, err
	}
	if o.svg, err = o.file(e, c.SVG); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// file opens one, nil for "". It can be written from then on; close puts it in
// its place if something was written, and else leaves no trace.
func (o *outputs) file(e *cli.Env, name string) (io.Writer, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return e.Stdout, nil
	}
	f, err := newAtomicFile(name)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, f)
	return f, nil
}

func (o *outputs) close() error {
	var errs []error
	for _, c := range o.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// write writes all of them, and closes the files.
func (o *outputs) write(d *report.Document) error {
	var errs []error
	if o.markdown {
		errs = append(errs, d.WriteMarkdown(o.report))
	} else {
		errs = append(errs, d.WriteText(o.report, o.width))
	}
	if o.json != nil {
		errs = append(errs, o.writeJSON(d))
	}
	if o.svg != nil {
		errs = append(errs, d.WriteSVG(o.svg))
	}
	return errors.Join(append(errs, o.close())...)
}
