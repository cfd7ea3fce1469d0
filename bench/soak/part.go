package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/penstock/penstock/bench/process"
)

// Part is the name of the part that [RunAlone] runs, see contestant.Program.
const Part = "soak"

// eventsFD is the descriptor that the part writes its events to: a report may be longer than the lines of a child.
const eventsFD = 3

// event is one of the part's.
type event struct {
	Progress *Progress `json:",omitempty"`
	Report   *Report   `json:",omitempty"`
	Error    string    `json:",omitempty"` // of the end, which comes with a report or without
}

// RunAlone is Run in a process of its own, in a network namespace of its own, which takes CAP_SYS_ADMIN: without it the
// error wraps syscall.EPERM. Program.Part leads to [RunPart].
func RunAlone(ctx context.Context, cfg *Config) (*Report, error) {
	group, err := process.NewIsolatedGroup()
	if err != nil {
		return nil, fmt.Errorf("soak: a lane takes root: %w", err)
	}
	defer group.Close()
	events, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer events.Close()
	spec := cfg.Program.Spec("the soak", cfg.Program.Part, Part)
	spec.Files = []*os.File{theirs}
	child, err := group.Start(spec)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := child.Send(cfg); err != nil {
		return nil, err
	}
	c := *cfg
	c.fill()
	defer context.AfterFunc(ctx, func() { _ = child.Stop(syscall.SIGTERM, c.Patience) })() // its report comes before its end
	report, err := follow(events, cfg.Watch)
	switch {
	case ctx.Err() != nil:
		return report, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return report, child.Err()
	}
	return report, err
}

// follow reads events until the last one.
func follow(events io.Reader, watch func(Progress)) (*Report, error) {
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		switch {
		case e.Progress == nil && e.Error != "":
			return e.Report, errors.New(e.Error)
		case e.Progress == nil:
			return e.Report, nil
		case watch != nil:
			watch(*e.Progress)
		}
	}
}

// RunPart is the part: it reads a Config, soaks until in ends, and writes events to descriptor 3. Its end is in the last
// event.
func RunPart(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := json.NewDecoder(in)
	var cfg Config
	if err := d.Decode(&cfg); err != nil {
		return fmt.Errorf("soak: %w", err)
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	out := os.NewFile(eventsFD, "events")
	to := json.NewEncoder(out)
	cfg.Watch = func(p Progress) { _ = to.Encode(event{Progress: &p}) } // without a reader it is of no use
	report, err := Run(ctx, &cfg)
	last := event{Report: report}
	if err != nil {
		last.Error = err.Error()
	}
	return errors.Join(to.Encode(last), out.Close())
}
